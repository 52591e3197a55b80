//! Matmuls by NVIDIA's cuBLASLt on CUDA, with the feature `cublaslt`.
//!
//! [`enable`] loads the library for the rest of the process. [`linear`](crate::linear) then runs its matmuls there, on
//! CubeCL's own streams, between kernel launches; the host waits for the first of each kind only. Factors of 16 bits
//! are multiplied as they are, accumulated in f32, and rounded once, after the bias is added. Those of f32 are
//! multiplied in f32, not in TF32.
//!
//! The library chooses a kernel by shapes, types, the factors' layout and alignment, and the device: ranks that do the
//! same run the same kernels, and a kernel gives the same bits in every run. Burn computes the matmuls that the library
//! has no kernel for, and each kind of them is reported once.
//!
//! Reading what a failed matmul was to write, or what was computed from it, reports why it failed.
//!
//! Source: <https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api>

mod factor;
mod library;
pub mod measured;
mod plan;
mod product;

use std::sync::OnceLock;

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::Device;
use cubecl::cuda::CudaDevice;
use cubecl::server::Handle;

pub use library::{CublasLtError, Version, version};

use self::factor::Factor;
use self::plan::Batch;
use crate::accumulate::GradientPlace;
use crate::cube::launch::empty_beside;
use crate::cube::walk::dims;
use crate::cuda::server;
use crate::row_blocks::RowBlocks;

/// The library, where products run there.
static ENABLED: OnceLock<Version> = OnceLock::new();

/// Returns the library that products run on, if that is [`enable`]d.
pub fn enabled() -> Option<Version> {
    ENABLED.get().copied()
}

/// Loads cuBLASLt, prepares it for a device, and lets all products of [`linear`](crate::linear) on CUDA run there from
/// now on. Call it on every rank, before the first product. Returns the library's version.
///
/// # Errors
/// When the library is not there, or refuses the device.
pub fn enable(device: &CudaDevice) -> Result<Version, CublasLtError> {
    let version = version()?;
    let prepared = server(device).submit_blocking(|_| product::with_library(|_| Ok(())));
    prepared
        .map_err(|error| CublasLtError::Refused(format!("CubeCL's server: {error:?}")))?
        .map_err(CublasLtError::Refused)?;
    Ok(*ENABLED.get_or_init(|| version))
}

/// Returns `a · b + bias`, if the library has a kernel for it.
///
/// # Panics
/// When shapes or types do not fit each other.
pub(crate) fn multiply(factors: [&CubeTensor; 2], bias: Option<&CubeTensor>) -> Option<CubeTensor> {
    let [[rows, _], [_, columns]] = factors.map(dims);
    let output = empty_beside(factors[0], &[rows, columns], factors[0].dtype);
    let to = Output {
        handle: output.handle.clone(),
        dtype: output.dtype,
        is_added: false,
        batch: Batch::ONE,
    };
    queue(factors, bias, to).then_some(output)
}

/// Adds `a · b` to its place among sums, or writes it there when it is the first; with factors of 16 bits the matmul
/// accumulates in f32, and is not rounded before it is added. Returns whether the library has a kernel for it.
///
/// # Panics
/// When shapes, types or the place do not fit each other.
pub(crate) fn add_product(sums: &CubeTensor, factors: [&CubeTensor; 2], place: GradientPlace) -> bool {
    let [[rows, _], [_, columns]] = factors.map(dims);
    let (elements, length) = (sums.meta.shape()[0], rows * columns);
    assert!(
        place.offset + length <= elements,
        "a product of {length} elements at {} of {elements} sums",
        place.offset
    );
    let offset = (place.offset * sums.dtype.size()) as u64;
    let to = Output {
        handle: sums.handle.clone().offset_start(offset),
        dtype: sums.dtype,
        is_added: !place.is_first,
        batch: Batch::ONE,
    };
    queue(factors, None, to)
}

/// Writes a product of rows of a contiguous input to rows of a contiguous output, all blocks of them by one call.
/// Returns whether the library has a kernel for it.
///
/// # Panics
/// When shapes or types do not fit each other.
pub(crate) fn multiply_blocks(
    input: &CubeTensor,
    weight: &CubeTensor,
    bias: Option<&CubeTensor>,
    output: &CubeTensor,
    [from, to]: [RowBlocks; 2],
) -> bool {
    let batch = match from.count {
        1 => Batch::ONE,
        count => Batch {
            count,
            strides: [from.stride * dims(input)[1], to.stride * dims(output)[1]],
        },
    };
    let goes = Output {
        handle: rows_of(output, to).handle,
        dtype: output.dtype,
        is_added: false,
        batch,
    };
    queue([&rows_of(input, from), weight], bias, goes)
}

/// Returns the rows of a contiguous matrix's first block, where they are.
fn rows_of(matrix: &CubeTensor, blocks: RowBlocks) -> CubeTensor {
    let columns = matrix.meta.shape()[1];
    let bytes = (blocks.first * columns * matrix.dtype.size()) as u64;
    CubeTensor::new_contiguous(
        matrix.client.clone(),
        matrix.device.clone(),
        Shape::new([blocks.rows, columns]),
        matrix.handle.clone().offset_start(bytes),
        matrix.dtype,
    )
}

/// Destination of a product: row by row.
struct Output {
    handle: Handle,
    dtype: DType,
    /// True if it is added to what is there.
    is_added: bool,
    batch: Batch,
}

/// Queues a product. Returns whether the library has a kernel for it.
fn queue(factors: [&CubeTensor; 2], bias: Option<&CubeTensor>, to: Output) -> bool {
    let [(a, a_factor), (b, b_factor)] = factors.map(laid_out);
    let bias = bias.map(|bias| into_contiguous(bias.clone()));
    let [[rows, depth], [rows_of_b, columns]] = [&a, &b].map(dims);
    assert_eq!(depth, rows_of_b, "[{rows}, {depth}] · [{rows_of_b}, {columns}]");
    assert_eq!(a.dtype, b.dtype, "factors of two types");
    if let Some(bias) = &bias {
        let found = (bias.meta.shape().num_elements(), bias.dtype);
        assert_eq!(
            found,
            (columns, a.dtype),
            "a bias does not fit [.., {columns}] of {:?}",
            a.dtype
        );
    }
    let Device::Cuda(device) = &a.device else {
        unreachable!("it is enabled on CUDA only");
    };
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
        bias: bias.map(|bias| bias.handle.binding()),
        is_added: to.is_added,
    };
    let server = server(device);
    let has_kernel = product::has_kernel(product.kind, &server);
    if has_kernel {
        product.queue(&server);
    }
    has_kernel
}

/// Returns the tensor as it is if the library takes its layout, else a copy; and its layout.
fn laid_out(tensor: &CubeTensor) -> (CubeTensor, Factor) {
    let of = |tensor: &CubeTensor| {
        let strides = tensor.meta.strides();
        Factor::of(dims(tensor), [strides[0], strides[1]])
    };
    match of(tensor) {
        Some(factor) => (tensor.clone(), factor),
        None => {
            let tensor = into_contiguous(tensor.clone());
            let factor = of(&tensor).expect("a contiguous tensor is row-major");
            (tensor, factor)
        }
    }
}
