//! Sums and maxima over the units that share a row, and how rows are laid out over units.
//!
//! A cube is `units × rows`: the units along x share a row, and hold `slots` vectors of it each, vector
//! `slot * units + UNIT_POS_X` in slot `slot`. Either a row's units are one plane, and then a cube may hold several
//! rows; or they are a whole cube. Planes may be of any size, which is known to the device alone where devices choose
//! it; devices without operations over planes reduce by halves in shared memory.
//!
//! All units of a cube must call a reduction, the same number of times: rows that there are none of are worked on too,
//! and not written. Planes leave their sums in shared memory, and each plane adds up what all have left.
#![allow(clippy::manual_div_ceil, reason = "these are expressions of kernels")]

use cubecl::prelude::*;

/// Layout of a row over units: part of a kernel's specialisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowLayout {
    /// The vectors of a row that a unit holds, at most.
    pub slots: usize,
    /// The units of a row.
    pub units: usize,
    /// The rows of a cube.
    pub rows: usize,
    /// True if the slots are few enough for registers, and loops over them are unrolled.
    pub is_unrolled: bool,
    /// True if the device has operations over planes; else all goes through shared memory.
    pub has_planes: bool,
    /// Planes that share a row, at most, or without operations over planes the cube's units, a power of two.
    pub parts: usize,
}

/// The rows of a contiguous tensor, as kernels are given them.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Rows {
    /// Their number; there is one at least.
    pub count: usize,
    /// The vectors of each.
    pub vectors: usize,
}

#[cube]
impl Rows {
    /// Returns how often each cube takes up rows, so that all are worked on.
    pub fn turns(&self) -> usize {
        (self.count + rows_at_once() - 1) / rows_at_once()
    }

    /// The row of this unit in a turn; at or beyond the count where there is none.
    pub fn of_turn(&self, turn: usize) -> usize {
        turn * rows_at_once() + CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize
    }
}

/// The rows that all cubes work on in a turn.
#[cube]
fn rows_at_once() -> usize {
    CUBE_COUNT * CUBE_DIM_Y as usize
}

/// Returns the sum over the units of a row, in each of them.
#[cube]
pub fn row_sum(value: f32, #[comptime] layout: RowLayout) -> f32 {
    let mut result = value;
    if comptime!(layout.has_planes) {
        result = plane_sum(value);
    }
    if comptime!(layout.parts > 1) {
        let mut parts = Shared::<[f32]>::new_slice(comptime!(layout.parts));
        if comptime!(layout.has_planes) {
            if UNIT_POS_PLANE == 0 {
                parts[PLANE_POS as usize] = result;
            }
            sync_cube();
            let mut share = 0.0f32;
            let mut plane = UNIT_POS_PLANE as usize;
            while plane < plane_count() {
                share += parts[plane];
                plane += PLANE_DIM as usize;
            }
            result = plane_sum(share);
        } else {
            let unit = UNIT_POS as usize;
            parts[unit] = value;
            sync_cube();
            let mut distance = CUBE_DIM as usize / 2;
            while distance > 0 {
                if unit < distance {
                    parts[unit] += parts[unit + distance];
                }
                sync_cube();
                distance /= 2;
            }
            result = parts[0];
        }
        // The next reduction writes the parts again.
        sync_cube();
    }
    result
}

/// Returns the sums of two numbers over the units of a row, in each of them: cheaper than two sums.
///
/// Turns count up by one from call to call: two of them follow each other without waiting for the first one's reads.
#[cube]
pub fn row_sums(first: f32, second: f32, turn: usize, #[comptime] layout: RowLayout) -> (f32, f32) {
    let mut first_sum = first;
    let mut second_sum = second;
    if comptime!(layout.has_planes) {
        first_sum = plane_sum(first);
        second_sum = plane_sum(second);
    }
    if comptime!(layout.parts > 1) {
        // Who writes the half of this turn has passed the barrier of the turn before, and there all had read it.
        let mut parts = Shared::<[f32]>::new_slice(comptime!(4 * layout.parts));
        let half = turn % 2 * comptime!(2 * layout.parts);
        if comptime!(layout.has_planes) {
            if UNIT_POS_PLANE == 0 {
                parts[half + 2 * PLANE_POS as usize] = first_sum;
                parts[half + 2 * PLANE_POS as usize + 1] = second_sum;
            }
            sync_cube();
            let mut first_share = 0.0f32;
            let mut second_share = 0.0f32;
            let mut plane = UNIT_POS_PLANE as usize;
            while plane < plane_count() {
                first_share += parts[half + 2 * plane];
                second_share += parts[half + 2 * plane + 1];
                plane += PLANE_DIM as usize;
            }
            first_sum = plane_sum(first_share);
            second_sum = plane_sum(second_share);
        } else {
            let place = 2 * UNIT_POS as usize;
            parts[half + place] = first;
            parts[half + place + 1] = second;
            sync_cube();
            let mut distance = CUBE_DIM as usize;
            while distance > 1 {
                if place < distance {
                    parts[half + place] += parts[half + place + distance];
                    parts[half + place + 1] += parts[half + place + distance + 1];
                }
                sync_cube();
                distance /= 2;
            }
            first_sum = parts[half];
            second_sum = parts[half + 1];
        }
    }
    (first_sum, second_sum)
}

/// Returns the maximum over the units of a row, in each of them. What it is with a NaN among them is left open.
#[cube]
pub fn row_max(value: f32, #[comptime] layout: RowLayout) -> f32 {
    let mut result = value;
    if comptime!(layout.has_planes) {
        result = plane_max(value);
    }
    if comptime!(layout.parts > 1) {
        let mut parts = Shared::<[f32]>::new_slice(comptime!(layout.parts));
        if comptime!(layout.has_planes) {
            if UNIT_POS_PLANE == 0 {
                parts[PLANE_POS as usize] = result;
            }
            sync_cube();
            let mut share = parts[0];
            let mut plane = UNIT_POS_PLANE as usize;
            while plane < plane_count() {
                share = max(share, parts[plane]);
                plane += PLANE_DIM as usize;
            }
            result = plane_max(share);
        } else {
            let unit = UNIT_POS as usize;
            parts[unit] = value;
            sync_cube();
            let mut distance = CUBE_DIM as usize / 2;
            while distance > 0 {
                if unit < distance {
                    parts[unit] = max(parts[unit], parts[unit + distance]);
                }
                sync_cube();
                distance /= 2;
            }
            result = parts[0];
        }
        sync_cube();
    }
    result
}

/// Returns the sum of a vector's numbers.
#[cube]
pub fn vector_sum<N: Size>(vector: Vector<f32, N>) -> f32 {
    let mut result = vector.extract(0usize);
    #[unroll]
    for element in 1..N::value() {
        result += vector.extract(element);
    }
    result
}

/// Returns the largest number of a vector.
#[cube]
pub fn vector_max<N: Size>(vector: Vector<f32, N>) -> f32 {
    let mut result = vector.extract(0usize);
    #[unroll]
    for element in 1..N::value() {
        result = max(result, vector.extract(element));
    }
    result
}

/// The planes of this cube.
#[cube]
fn plane_count() -> usize {
    ((CUBE_DIM + PLANE_DIM - 1) / PLANE_DIM) as usize
}
