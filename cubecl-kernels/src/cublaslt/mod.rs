//! Matmuls by NVIDIA's cuBLASLt on CUDA, with the feature `cublaslt`.
//!
//! [`enable`] loads the library for the rest of the process. [`linear`](crate::linear) then runs its matmuls there, on
//! CubeCL's own stream, between kernel launches; the host waits for the first of each kind only. Factors of 16 bits are
//! multiplied as they are, accumulated in f32, and rounded once, after the bias is added. Those of f32 are multiplied
//! in f32, not in TF32.
//!
//! The library chooses a kernel by shapes, types, the factors' layout and alignment, and the device: ranks that do the
//! same run the same kernels, and a kernel gives the same bits in every run. Burn computes the matmuls that the library
//! has no kernel for, and each kind of them is reported once.
//!
//! A matmul that fails is reported on standard error, its output is not a number, and the next one panics with the
//! reason.
//!
//! Source: <https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api>

mod factor;
mod library;
pub mod measured;
mod plan;
mod product;

use std::any::Any;
use std::sync::OnceLock;

use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::cuda::CudaDevice;
use cubecl::server::Handle;

pub use library::{CublasLtError, Version, version};

use self::factor::Factor;
use self::plan::Batch;
use crate::accumulate::GradientPlace;
use crate::cube::launch::{OnCube, empty_beside, into_contiguous, own};
use crate::cuda::server;
use crate::linear::blocks::{BlockProduct, one_by_one};
use crate::linear::product::{add_multiplied, multiply};
use crate::linear::{LinearInputs, WeightOrder};
use crate::tape::{float, primitive};

/// The library, where products run there.
static ENABLED: OnceLock<Version> = OnceLock::new();

/// The library that products run on, if that is [`enable`]d.
pub fn enabled() -> Option<Version> {
    ENABLED.get().copied()
}

/// Loads cuBLASLt, prepares it for a device, and lets all products of [`linear`](crate::linear) on CUDA run there from
/// now on. Call it on every rank, before the first product. Returns the library's version.
///
/// # Errors
/// When the library is not there, refuses the device, or CubeCL computes on several streams
/// ([`use_one_stream`](crate::cuda::use_one_stream)).
pub fn enable(device: &CudaDevice) -> Result<Version, CublasLtError> {
    let version = version()?;
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

/// Returns `a · b + bias`: here if it is enabled and the library has a kernel for it, and else as burn multiplies.
///
/// # Panics
/// When an earlier product failed, or shapes or types do not fit each other.
pub(crate) fn multiply_or_burn<R: CubeRuntime, B: OnCube<R>>(
    a: Tensor<B, 2>,
    b: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, 2> {
    let ([rows, depth], [_, columns]) = (a.dims(), b.dims());
    let is_taken = is_enabled::<R>() && plan::data_type(a.dtype()).is_some() && ![rows, depth, columns].contains(&0);
    if !is_taken {
        return multiply(a, b, bias);
    }
    let factors = [a, b].map(primitive);
    let bias = bias.map(|bias| into_contiguous(primitive(bias)));
    let output = empty_beside(&factors[0], &[rows, columns], factors[0].dtype);
    let to = Output {
        handle: output.handle.clone(),
        dtype: output.dtype,
        is_added: false,
        batch: Batch::ONE,
    };
    match queue(factors, bias.as_ref(), to) {
        None => float(output),
        Some([a, b]) => multiply(float(a), float(b), bias.map(float)),
    }
}

/// Returns the sums with `a · b` added to its place, or written there when it is the first; in their own memory if
/// nothing else holds them. With factors of 16 bits the matmul accumulates in f32, and is not rounded before it is
/// added. Computed by burn if the library is not enabled, or has no kernel for it.
///
/// # Panics
/// When an earlier product failed, or shapes, types or the place do not fit each other.
pub(crate) fn add_product<R: CubeRuntime, B: OnCube<R>>(
    sums: Tensor<B, 1>,
    a: Tensor<B, 2>,
    b: Tensor<B, 2>,
    place: GradientPlace,
) -> Tensor<B, 1> {
    if !is_enabled::<R>() {
        return add_multiplied(sums, a, b, place);
    }
    let ([elements], length) = (sums.dims(), a.dims()[0] * b.dims()[1]);
    assert!(
        place.offset + length <= elements,
        "a product of {length} elements at {} of {elements} sums",
        place.offset
    );
    let sums = own(primitive(sums));
    let to = Output {
        handle: sums
            .handle
            .clone()
            .offset_start((place.offset * sums.dtype.size()) as u64),
        dtype: sums.dtype,
        is_added: !place.is_first,
        batch: Batch::ONE,
    };
    match queue([a, b].map(primitive), None, to) {
        None => float(sums),
        Some([a, b]) => add_multiplied(float(sums), float(a), float(b), place),
    }
}

/// Returns the output with the rows of the product, all blocks of them computed by one call, from where they are to
/// where they belong. Computed block by block if the library is not enabled, or has no kernel for it.
///
/// # Panics
/// When an earlier product failed, or shapes or types do not fit each other.
pub(crate) fn multiply_blocks<R: CubeRuntime, B: OnCube<R>>(product: BlockProduct<B>) -> Tensor<B, 2> {
    let inputs = &product.inputs;
    let elements = product.from.rows * product.from.count * inputs.weight.shape().num_elements();
    if !is_enabled::<R>() || plan::data_type(inputs.input.dtype()).is_none() || elements == 0 {
        return one_by_one(product);
    }
    let BlockProduct { inputs, output, .. } = product;
    let product = BlockProduct {
        inputs: LinearInputs {
            input: float(into_contiguous(primitive(inputs.input))),
            ..inputs
        },
        output: float(own(primitive(output))),
        ..product
    };
    if queue_blocks(&product) {
        product.output
    } else {
        one_by_one(product)
    }
}

/// Queues a product of contiguous rows. Returns whether the library has a kernel for it.
fn queue_blocks<R: CubeRuntime, B: OnCube<R>>(product: &BlockProduct<B>) -> bool {
    let BlockProduct { from, to, .. } = *product;
    let inputs = &product.inputs;
    let ([_, depth], [_, columns]) = (inputs.input.dims(), product.output.dims());
    let weight = match inputs.order {
        WeightOrder::InputFirst => inputs.weight.clone(),
        WeightOrder::OutputFirst => inputs.weight.clone().transpose(),
    };
    let first_rows = rows_of(primitive(inputs.input.clone()), from.first, from.rows);
    let bias = inputs.bias.clone().map(|bias| into_contiguous(primitive(bias)));
    let output = rows_of(primitive(product.output.clone()), to.first, to.rows);
    let batch = match from.count {
        1 => Batch::ONE,
        count => Batch {
            count,
            strides: [from.stride * depth, to.stride * columns],
        },
    };
    let goes = Output {
        handle: output.handle,
        dtype: output.dtype,
        is_added: false,
        batch,
    };
    queue([first_rows, primitive(weight)], bias.as_ref(), goes).is_none()
}

/// Rows of a contiguous matrix, where they are.
fn rows_of<R: CubeRuntime>(matrix: CubeTensor<R>, first: usize, rows: usize) -> CubeTensor<R> {
    let columns = matrix.meta.shape()[1];
    let bytes = (first * columns * matrix.dtype.size()) as u64;
    CubeTensor::new_contiguous(
        matrix.client,
        matrix.device,
        Shape::new([rows, columns]),
        matrix.handle.offset_start(bytes),
        matrix.dtype,
    )
}

/// Where a product goes: row by row.
struct Output {
    handle: Handle,
    dtype: DType,
    /// Whether it is added to what is there.
    is_added: bool,
    batch: Batch,
}

/// Queues a product. Gives its factors back if the library has no kernel for it.
fn queue<R: CubeRuntime>(
    factors: [CubeTensor<R>; 2],
    bias: Option<&CubeTensor<R>>,
    to: Output,
) -> Option<[CubeTensor<R>; 2]> {
    if let Some(why) = product::failure() {
        panic!("{why}");
    }
    let [(a, a_factor), (b, b_factor)] = factors.map(laid_out);
    let dims = |tensor: &CubeTensor<R>| [tensor.meta.shape()[0], tensor.meta.shape()[1]];
    let ([rows, depth], [rows_of_b, columns]) = (dims(&a), dims(&b));
    assert_eq!(depth, rows_of_b, "[{rows}, {depth}] · [{rows_of_b}, {columns}]");
    assert_eq!(a.dtype, b.dtype, "factors of two types");
    if let Some(bias) = bias {
        let found = (bias.meta.shape().num_elements(), bias.dtype);
        assert_eq!(
            found,
            (columns, a.dtype),
            "a bias does not fit [.., {columns}] of {:?}",
            a.dtype
        );
    }
    let buffers = [a.handle.clone(), b.handle.clone(), to.handle].map(Handle::binding);
    let kind = plan::Kind {
        dtypes: [a.dtype, to.dtype],
        factors: [a_factor, b_factor],
        shape: [rows, depth, columns],
        has_bias: bias.is_some(),
        batch: to.batch,
    };
    let product = product::QueuedProduct {
        kind: plan::PlanKind::of(kind, &buffers),
        buffers,
        bias: bias.map(|bias| bias.handle.clone().binding()),
        is_added: to.is_added,
    };
    let device: &dyn Any = &a.device;
    let device = device
        .downcast_ref::<CudaDevice>()
        .expect("it is enabled on CUDA only")
        .clone();
    let server = server(&device);
    if !product::has_kernel(&product, &server) {
        return Some([a, b]);
    }
    server.submit(move |server| product.run(server));
    None
}

/// Returns the tensor as it is if the library takes its layout, else a copy; and its layout.
fn laid_out<R: CubeRuntime>(tensor: CubeTensor<R>) -> (CubeTensor<R>, Factor) {
    let of = |tensor: &CubeTensor<R>| {
        let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
        Factor::of([shape[0], shape[1]], [strides[0], strides[1]])
    };
    match of(&tensor) {
        Some(factor) => (tensor, factor),
        None => {
            let tensor = into_contiguous(tensor);
            let factor = of(&tensor).expect("a contiguous tensor is row-major");
            (tensor, factor)
        }
    }
}

/// In words, for messages.
fn name(dtype: DType) -> String {
    format!("{dtype:?}").to_lowercase()
}
