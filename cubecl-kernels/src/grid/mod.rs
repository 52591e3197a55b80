//! What the element-wise kernels share: how units are laid over a matrix, and sums that come out the same every time.
//!
//! A unit owns one vector of columns and walks down the rows of its part, so that what belongs to a column is read once
//! and a column's sum grows in a register. Called by the operations' `kernel.rs` and `launch.rs`.

mod column_sum;
mod dropout;
mod launch;
mod reduce;

pub(crate) use column_sum::column_sum;
pub(crate) use dropout::{DropoutSite, factors, site};
pub(crate) use launch::{RowWalk, UNITS, address_type, cube_count, dims, empty, has_kernels, vector_size};
pub(crate) use reduce::{cube_sum, sigmoid};

use cubecl::prelude::*;

/// The vector of columns that the unit owns.
#[cube]
pub(crate) fn own_column() -> usize {
    (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize
}

/// The unit's first row, which is also the number of its part.
#[cube]
pub(crate) fn first_row() -> usize {
    (CUBE_POS_Y * CUBE_DIM_Y + UNIT_POS_Y) as usize
}

/// How far apart a unit's rows are, which is also the number of parts.
#[cube]
pub(crate) fn row_step() -> usize {
    (CUBE_COUNT_Y * CUBE_DIM_Y) as usize
}
