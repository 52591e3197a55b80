//! How units are laid over a matrix by the element-wise kernels, and what these share on the device.
//!
//! A unit owns one vector of columns and walks down the rows of its part, so that what belongs to a column is read once
//! and a column's sum grows in a register. Called by the operations' `kernel.rs` and `launch.rs`.

use burn::tensor::DType;
use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;

use super::launch::vector_size;

/// Units of a cube.
pub const UNITS: u32 = 256;
/// As many cubes fill the largest device some times over.
const CUBES: usize = 1024;
/// Rows that a unit walks at least, where there are enough: what it does once is shared by them.
const ROWS_EACH: usize = 8;

/// Whether the kernels compute with this type.
pub fn has_kernels(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// How units walk over a matrix.
pub struct RowWalk {
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
        let vector_size = vector_size(&tensor.client, tensor.dtype, columns);
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

/// So many cubes, or some more: over several dimensions where one does not take them.
pub fn cube_count<R: CubeRuntime>(client: &ComputeClient<R>, cubes: usize) -> CubeCount {
    calculate_cube_count_elemwise(client, cubes, CubeDim::new_single())
}

/// Rows and columns.
pub fn dims<R: CubeRuntime>(tensor: &CubeTensor<R>) -> [usize; 2] {
    [0, 1].map(|dimension| tensor.meta.shape()[dimension])
}

/// Zeros beside a tensor, in its type: what sums over no rows are.
pub fn zeros_beside<R: CubeRuntime>(other: &CubeTensor<R>, columns: usize) -> CubeTensor<R> {
    let (client, device, dtype) = (other.client.clone(), other.device.clone(), other.dtype);
    let handle = client.create_from_slice(&vec![0; columns * dtype.size()]);
    CubeTensor::new_contiguous(client, device, [columns].into(), handle, dtype)
}

/// The vector of columns that the unit owns.
#[cube]
pub fn own_column() -> usize {
    (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize
}

/// The unit's first row, which is also the number of its part.
#[cube]
pub fn first_row() -> usize {
    (CUBE_POS_Y * CUBE_DIM_Y + UNIT_POS_Y) as usize
}

/// How far apart a unit's rows are, which is also the number of parts.
#[cube]
pub fn row_step() -> usize {
    (CUBE_COUNT_Y * CUBE_DIM_Y) as usize
}

/// The sum over the units of a one-dimensional cube, whose number is `units`, a power of two; right in unit 0.
///
/// A tree, so that the order is always the same, and nothing depends on the size of planes.
#[cube]
pub fn cube_sum(value: f32, #[comptime] units: usize) -> f32 {
    let mut sums = SharedMemory::<f32>::new(units);
    let unit = UNIT_POS as usize;
    sums[unit] = value;
    sync_cube();
    let mut width = CUBE_DIM_X as usize / 2;
    while width > 0 {
        if unit < width {
            sums[unit] += sums[unit + width];
        }
        sync_cube();
        width /= 2;
    }
    sums[0]
}

/// `1 / (1 + exp(−x))`. Arguments are bounded, so that nothing overflows; beyond the bound it is 1, or below 2^-115.
#[cube]
pub fn sigmoid<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let one = Vector::<f32, N>::new(f32::new(1.0));
    let bound = Vector::<f32, N>::new(f32::new(80.0));
    let zero = Vector::<f32, N>::new(f32::new(0.0));
    let x = max(min(x, bound), zero - bound);
    one / (one + Vector::exp(zero - x))
}
