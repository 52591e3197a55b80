//! Sizes of launches, and the tensors that kernels read and write: flat and without padding.

use burn::tensor::{DType, Shape};
use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;

/// Units of a cube.
pub(crate) const UNITS: u32 = 256;
/// As many cubes fill the largest device some times over.
const CUBES: usize = 1024;
/// Rows that a unit walks at least, where there are enough: what it does once is shared by them.
const ROWS_EACH: usize = 8;

/// Whether the kernels compute with this type.
pub(crate) fn has_kernels(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// How units walk over a matrix.
pub(crate) struct RowWalk {
    /// Columns a load.
    pub vector_size: usize,
    /// Loads a row.
    pub vectors: usize,
    /// Units that share a column's rows.
    pub parts: usize,
    cubes: [u32; 2],
    units: [u32; 2],
}

impl RowWalk {
    /// Plans for `rows` rows of `columns` columns, neither of them 0, of the tensor's type.
    pub fn new<R: CubeRuntime>(tensor: &CubeTensor<R>, rows: usize, columns: usize) -> Self {
        let vector_size = vector_size(tensor, columns);
        let vectors = columns / vector_size;
        let wide = vectors.next_power_of_two().min(UNITS as usize);
        let high = UNITS as usize / wide;
        let tiles = vectors.div_ceil(wide);
        let cubes = (CUBES / tiles).clamp(1, rows.div_ceil(high * ROWS_EACH));
        Self {
            vector_size,
            vectors,
            parts: cubes * high,
            cubes: [tiles as u32, cubes as u32],
            units: [wide as u32, high as u32],
        }
    }

    /// The launch's cubes.
    pub fn cube_count(&self) -> CubeCount {
        CubeCount::new_2d(self.cubes[0], self.cubes[1])
    }

    /// A cube's units.
    pub fn cube_dim(&self) -> CubeDim {
        CubeDim::new_2d(self.units[0], self.units[1])
    }
}

/// The most elements of the tensor that one load takes and that divide `columns`.
pub(crate) fn vector_size<R: CubeRuntime>(tensor: &CubeTensor<R>, columns: usize) -> usize {
    let mut sizes = tensor.client.io_optimized_vector_sizes(tensor.dtype.size());
    sizes.find(|size| columns.is_multiple_of(*size)).unwrap_or(1)
}

/// Returns a tensor to be written, without padding: burn's own pads rows on some devices.
pub(crate) fn empty<R: CubeRuntime>(beside: &CubeTensor<R>, shape: impl Into<Shape>, dtype: DType) -> CubeTensor<R> {
    let shape = shape.into();
    // A buffer of no bytes cannot be bound.
    let bytes = (shape.num_elements() * dtype.size()).max(dtype.size());
    let handle = beside.client.empty(bytes);
    CubeTensor::new_contiguous(beside.client.clone(), beside.device.clone(), shape, handle, dtype)
}

/// The type of indices that reach all elements.
pub(crate) fn address_type<R: CubeRuntime>(tensors: &[&CubeTensor<R>]) -> AddressType {
    let types = tensors.iter().map(|tensor| tensor.required_address_type());
    types.max().unwrap_or_default()
}

/// So many cubes, or some more: over several dimensions where one does not take them.
pub(crate) fn cube_count<R: CubeRuntime>(client: &ComputeClient<R>, cubes: usize) -> CubeCount {
    calculate_cube_count_elemwise(client, cubes, CubeDim::new_single())
}

/// Rows and columns.
pub(crate) fn dims<R: CubeRuntime>(tensor: &CubeTensor<R>) -> [usize; 2] {
    [0, 1].map(|dimension| tensor.meta.shape()[dimension])
}
