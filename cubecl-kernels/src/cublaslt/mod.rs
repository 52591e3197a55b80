//! Matrix products by NVIDIA's cuBLASLt on CUDA, with the feature `cublaslt`.
//!
//! [`enable`] loads the library for the rest of the process, and [`linear`](crate::linear) then runs its products there, on
//! CubeCL's own stream, between the launches of kernels: nothing waits on the host. Factors of 16 bits are multiplied as they
//! are, added up in f32, and rounded once, behind the sum with a bias. Those of f32 are multiplied in f32, not in TF32.
//!
//! Which of its kernels runs is chosen by shapes, types and the device alone, so that it is the same on every rank, and a kernel
//! gives the same bits in every run.
//!
//! A product that fails is told on the log, its output is not a number, and the next product panics with the reason.
//!
//! Source: <https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api>

mod factor;
mod library;
mod plan;
mod product;

use std::any::Any;
use std::sync::OnceLock;

use burn::tensor::{DType, Tensor};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::cuda::CudaDevice;
use cubecl::server::Handle;

pub use library::{CublasLtError, Version};

use crate::accumulate::GradientPlace;
use crate::cube::launch::{empty_beside, into_contiguous};
use crate::cuda::server;
use crate::linear::product::multiply;
use crate::tape::{float, primitive};

/// The library, where products run there.
static ENABLED: OnceLock<Version> = OnceLock::new();

/// Returns the version of the library that is there.
///
/// # Errors
/// [`CublasLtError::Missing`], with the names that were tried.
pub fn version() -> Result<Version, CublasLtError> {
    library::find()
}

/// The library that products run on, if that is [`enable`]d.
pub fn enabled() -> Option<Version> {
    ENABLED.get().copied()
}

/// Loads cuBLASLt, prepares it for a device, and lets all products of [`linear`](crate::linear) on CUDA run there from now on.
/// Call it on every rank, before the first product. Returns the library's version.
///
/// # Errors
/// When the library is not there, refuses the device, or CubeCL computes on several streams
/// ([`use_one_stream`](crate::cuda::use_one_stream)).
pub fn enable(device: &CudaDevice) -> Result<Version, CublasLtError> {
    let version = library::find()?;
    let prepared = server(device).submit_blocking(product::prepare);
    prepared
        .map_err(|error| CublasLtError::Refused(format!("CubeCL's server: {error:?}")))?
        .map_err(CublasLtError::Refused)?;
    Ok(*ENABLED.get_or_init(|| version))
}

/// Whether products on a runtime's devices run here.
pub(crate) fn is_enabled<R: CubeRuntime>() -> bool {
    let is_cuda = std::any::TypeId::of::<R::Device>() == std::any::TypeId::of::<CudaDevice>();
    is_cuda && ENABLED.get().is_some()
}

/// Returns `a · b + bias`: here if it is enabled, and else as burn multiplies.
///
/// # Panics
/// When an earlier product failed.
pub(crate) fn multiply_or_burn<R, F, I, BT>(
    a: Tensor<CubeBackend<R, F, I, BT>, 2>,
    b: Tensor<CubeBackend<R, F, I, BT>, 2>,
    bias: Option<Tensor<CubeBackend<R, F, I, BT>, 1>>,
) -> Tensor<CubeBackend<R, F, I, BT>, 2>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    let ([rows, depth], [_, columns]) = (a.dims(), b.dims());
    let is_taken = is_enabled::<R>() && plan::data_type(a.dtype()).is_some() && ![rows, depth, columns].contains(&0);
    if !is_taken {
        return multiply(a, b, bias);
    }
    let (a, b) = (primitive(a), primitive(b));
    let output = empty_beside(&a, &[rows, columns], a.dtype);
    let to = Output {
        handle: output.handle.clone(),
        dtype: output.dtype,
        is_added: false,
    };
    queue(a, b, bias.map(primitive), to);
    float(output)
}

/// Returns the sums with `a · b` added to its place, or written there when it is the first; in their own memory if nobody else
/// holds it. Of factors of 16 bits the product is added up in f32, and not rounded before.
///
/// # Panics
/// When an earlier product failed, or none is [`enable`]d.
pub(crate) fn add_product<R, F, I, BT>(
    sums: Tensor<CubeBackend<R, F, I, BT>, 1>,
    a: Tensor<CubeBackend<R, F, I, BT>, 2>,
    b: Tensor<CubeBackend<R, F, I, BT>, 2>,
    place: GradientPlace,
) -> Tensor<CubeBackend<R, F, I, BT>, 1>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    let sums = primitive(sums);
    let sums = match sums.can_mut() {
        true => into_contiguous(sums),
        false => sums.copy(),
    };
    let to = Output {
        handle: sums
            .handle
            .clone()
            .offset_start((place.offset * sums.dtype.size()) as u64),
        dtype: sums.dtype,
        is_added: !place.is_first,
    };
    queue(primitive(a), primitive(b), None, to);
    float(sums)
}

/// Where a product goes: row by row.
struct Output {
    handle: Handle,
    dtype: DType,
    /// Whether it is added to what is there.
    is_added: bool,
}

fn queue<R: CubeRuntime>(a: CubeTensor<R>, b: CubeTensor<R>, bias: Option<CubeTensor<R>>, to: Output) {
    if let Some(why) = product::failure() {
        panic!("{why}");
    }
    let device: &dyn Any = &a.device;
    let device = device
        .downcast_ref::<CudaDevice>()
        .expect("products run here on CUDA")
        .clone();
    let (a, a_factor) = as_factor(a);
    let (b, b_factor) = as_factor(b);
    let product = product::Product {
        dtypes: [a.dtype, to.dtype],
        factors: [a_factor, b_factor],
        shape: [a.meta.shape()[0], a.meta.shape()[1], b.meta.shape()[1]],
        buffers: [a.handle, b.handle, to.handle].map(Handle::binding),
        bias: bias.map(|bias| into_contiguous(bias).handle.binding()),
        is_added: to.is_added,
    };
    server(&device).submit(move |server| product.run(server));
}

/// The tensor, laid out as a factor may be.
fn as_factor<R: CubeRuntime>(tensor: CubeTensor<R>) -> (CubeTensor<R>, factor::Factor) {
    let of = |tensor: &CubeTensor<R>| {
        let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
        factor::Factor::of([shape[0], shape[1]], [strides[0], strides[1]])
    };
    match of(&tensor) {
        Some(factor) => (tensor, factor),
        None => {
            let tensor = into_contiguous(tensor);
            let factor = of(&tensor).expect("a contiguous tensor lies row by row");
            (tensor, factor)
        }
    }
}

/// In words, for messages.
fn name(dtype: DType) -> String {
    format!("{dtype:?}").to_lowercase()
}
