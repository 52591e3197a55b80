//! How units are laid over a matrix by the element-wise kernels.
//!
//! A unit owns one vector of columns and walks down the rows of its part, so that what belongs to a column is read once
//! and a column's sum grows in a register.

use std::cmp::Reverse;

use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::launch::vector_size;

/// Units of a cube.
pub const UNITS: u32 = 256;
/// Units along a row come in multiples of this, the most that a plane has where it is known: few shapes of cubes, which
/// are kernels of their own each.
const STEP: usize = 32;
/// Rows of which a unit asks for the numbers before it waits for any: enough that memory is busy while they come.
pub const ROWS_AT_ONCE: usize = 2;
/// Rows that a unit walks, where there are enough to fill the device so: what it does once is shared by them.
const ROWS_EACH: usize = 2 * ROWS_AT_ONCE;
/// Times over that the cubes then fill the device at least, so that the last ones take little of the time.
const WAVES: usize = 8;
/// Units that a processor holds at once, of kernels with up to 64 registers a unit.
const RESIDENT_UNITS: u32 = 1024;

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
    /// Plans for `rows` rows of `columns` columns, neither of them 0, of the tensor's type: cubes for all of them,
    /// whose units walk a few rows each.
    pub fn over(tensor: &CubeTensor, rows: usize, columns: usize) -> Self {
        let size = vector_size(&tensor.client, tensor.dtype, columns);
        Self::of_vectors(&tensor.client, rows, size, columns / size)
    }

    /// Plans as [`over`](Self::over) for rows of `vectors` vectors that a unit has one each of.
    pub fn of_vectors(client: &Client, rows: usize, vector_size: usize, vectors: usize) -> Self {
        let mut walk = Self::wide(vector_size, vectors);
        let once = rows.div_ceil(walk.units[1] as usize);
        let resident = walk.resident_rows(client);
        let each = once / (WAVES * resident) / ROWS_AT_ONCE * ROWS_AT_ONCE;
        let each = each.clamp(1, ROWS_EACH);
        walk.set_high(client, once.div_ceil(each));
        walk
    }

    /// Plans for kernels that leave a sum for each part of the rows: no more cubes than run at once.
    pub fn in_parts(tensor: &CubeTensor, rows: usize, columns: usize) -> Self {
        let size = vector_size(&tensor.client, tensor.dtype, columns);
        let mut walk = Self::wide(size, columns / size);
        let enough = rows.div_ceil(walk.units[1] as usize * 2 * ROWS_EACH);
        let resident = walk.resident_rows(&tensor.client);
        walk.set_high(&tensor.client, enough.min(resident));
        walk
    }

    /// Plans the units of a cube, and one row of cubes that covers the columns.
    fn wide(vector_size: usize, vectors: usize) -> Self {
        let wide = units_along(vectors);
        let high = UNITS as usize / wide;
        Self {
            vector_size,
            vectors,
            parts: high,
            cubes: [vectors.div_ceil(wide) as u32, 1],
            units: [wide as u32, high as u32],
        }
    }

    /// The cubes one below the other that run at once.
    fn resident_rows(&self, client: &Client) -> usize {
        let units = self.units[0] * self.units[1];
        (resident_cubes(client, units) / self.cubes[0] as usize).max(1)
    }

    fn set_high(&mut self, client: &Client, cubes: usize) {
        let most = client.properties().hardware.max_cube_count.1 as usize;
        self.cubes[1] = cubes.min(most) as u32;
        self.parts = (self.cubes[1] * self.units[1]) as usize;
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

/// The units of a cube along a row of `vectors` vectors: of whole planes, those that leave the fewest without
/// a vector, and then the most; for short rows a power of two, and cubes hold several of them.
fn units_along(vectors: usize) -> usize {
    if vectors < STEP {
        return vectors.next_power_of_two();
    }
    let counts = (STEP..=UNITS as usize).step_by(STEP);
    let idle = |units: usize| vectors.div_ceil(units) * units - vectors;
    counts
        .min_by_key(|&units| (idle(units), Reverse(units)))
        .unwrap_or(STEP)
}

/// Returns how many cubes of `units` units run at once.
pub fn resident_cubes(client: &Client, units: u32) -> usize {
    let processors = client.properties().hardware.num_streaming_multiprocessors.unwrap_or(16);
    (processors * (RESIDENT_UNITS / units).max(1)) as usize
}

/// Returns `cubes` cubes, or some more: over several dimensions if one does not take them.
pub fn cube_count(client: &Client, cubes: usize) -> CubeCount {
    calculate_cube_count_elemwise(client, cubes, CubeDim::new_single())
}

/// Rows and columns.
pub fn dims(tensor: &CubeTensor) -> [usize; 2] {
    [0, 1].map(|dimension| tensor.meta.shape()[dimension])
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

/// A row to read in the turn that begins with `row`, its first one again where there are no more.
#[cube]
pub fn row_of_turn(row: usize, turn: usize, rows: usize) -> usize {
    let own = row + turn * row_step();
    select(own < rows, own, row)
}

/// The sum over the units of a one-dimensional cube, whose number is `units`, a power of two; in each of them.
///
/// A tree, so that the order is always the same, and nothing depends on the size of planes.
#[cube]
pub fn cube_sum(value: f32, #[comptime] units: usize) -> f32 {
    cube_tree(value, units, true)
}

/// The largest number over the units of such a cube, in each of them. What it is with a NaN among them is left open.
#[cube]
pub fn cube_max(value: f32, #[comptime] units: usize) -> f32 {
    cube_tree(value, units, false)
}

#[cube]
fn cube_tree(value: f32, #[comptime] units: usize, #[comptime] is_sum: bool) -> f32 {
    let mut parts = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    parts[unit] = value;
    sync_cube();
    let mut width = CUBE_DIM_X as usize / 2;
    while width > 0 {
        if unit < width {
            let other = parts[unit + width];
            if comptime!(is_sum) {
                parts[unit] += other;
            } else {
                parts[unit] = max(parts[unit], other);
            }
        }
        sync_cube();
        width /= 2;
    }
    let result = parts[0];
    // The next one may write to the same memory.
    sync_cube();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_units_have_no_vector() {
        for (vectors, expected) in [
            (1, 1),
            (24, 32),
            (96, 96),
            (192, 192),
            (256, 256),
            (384, 192),
            (768, 256),
        ] {
            assert_eq!(units_along(vectors), expected, "{vectors} vectors");
        }
        for vectors in STEP..4096 {
            let units = units_along(vectors);
            let idle = vectors.div_ceil(units) * units - vectors;
            assert!(
                idle < STEP && units.is_multiple_of(STEP),
                "{vectors} vectors: {idle} idle of {units}"
            );
        }
    }
}
