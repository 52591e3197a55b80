//! The matmul by burn or by a library, and its sum with a place in a buffer.

#[cfg(feature = "cublaslt")]
use burn::backend::DispatchDevice;
#[cfg(feature = "cubecl")]
use burn::tensor::DType;
use burn::tensor::{Device, Tensor};
#[cfg(feature = "cublaslt")]
use burn_cubecl::CubeDevice;
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

#[cfg(feature = "cubecl")]
use super::launch;
use crate::accumulate::{Accumulate, GradientPlace, GradientSums};
use crate::operation::{Of, Operation, Spec, apply};
use crate::precision::zeros;

/// Returns whether products on a device run in a library, of which burn's fusion knows nothing.
#[cfg_attr(not(feature = "cublaslt"), allow(unused_variables, reason = "there is no library"))]
pub fn multiplies_in_library(device: &Device) -> bool {
    #[cfg(feature = "cublaslt")]
    if let DispatchDevice::Cube(CubeDevice::Cuda(_)) = device.clone().inner().as_dispatch() {
        return crate::cublaslt::enabled().is_some();
    }
    false
}

/// Returns whether products on a client's device run in a library.
#[cfg(feature = "cubecl")]
#[cfg_attr(not(feature = "cublaslt"), allow(unused_variables, reason = "there is no library"))]
pub(super) fn is_in_library(client: &Client) -> bool {
    #[cfg(feature = "cublaslt")]
    return client.name() == "cuda" && crate::cublaslt::enabled().is_some();
    #[cfg(not(feature = "cublaslt"))]
    false
}

/// Returns burn's product: of 16 bits, it is rounded, and its sum with the bias once more. Zeros where there is nothing
/// to add up: it cannot be launched on CubeCL for no elements.
pub(super) fn multiply(a: Tensor<2>, b: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let ([rows, depth], [_, columns]) = (a.dims(), b.dims());
    let product = if [rows, depth, columns].contains(&0) {
        zeros([rows, columns], &a.device(), a.dtype())
    } else {
        a.matmul(b)
    };
    match bias {
        Some(bias) if rows * columns > 0 => product + bias.unsqueeze::<2>(),
        _ => product,
    }
}

/// Adds `a · b` to its place among sums of the type that gradients are added up in, or writes it there when it is the
/// first; `place.parameter` is without effect.
///
/// With factors of 16 bits, a library's product is added up in f32, and is not rounded before it is added.
pub fn add_product(sums: Tensor<1>, a: Tensor<2>, b: Tensor<2>, place: GradientPlace) -> Tensor<1> {
    apply(&AddProduct(place), (sums, a, b))
}

/// Sums and two factors to the sums with the product at its place.
#[derive(Clone, Copy, Debug)]
struct AddProduct(GradientPlace);

impl Operation for AddProduct {
    type Inputs = (Tensor<1>, Tensor<2>, Tensor<2>);
    type Outputs = Tensor<1>;

    const NAME: &'static str = "add_product";

    fn outputs(&self, (sums, ..): Of<Self::Inputs, Spec>) -> Spec {
        sums
    }

    fn reference(&self, (sums, a, b): Self::Inputs) -> Tensor<1> {
        let length = a.dims()[0] * b.dims()[1];
        if length == 0 {
            return sums;
        }
        let sums = GradientSums {
            non_finite: zeros([self.0.parameter + 1], &sums.device(), sums.dtype()),
            sums,
        };
        apply(&Accumulate(self.0), (sums, multiply(a, b, None).reshape([length]))).sums
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, client: &Client, (sums, ..): Of<Self::Inputs, Spec>) -> bool {
        is_in_library(client) && sums.1 == DType::F32
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (sums, a, b): Of<Self::Inputs, CubeTensor>) -> CubeTensor {
        launch::add_product(sums, [a, b], self.0)
    }
}
