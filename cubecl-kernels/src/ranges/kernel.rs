//! The kernels that copy ranges and clear them.

use cubecl::prelude::*;

use crate::cube::parts::{Parts, is_idle, own_part};

/// Copies the parts of `input` to their places in `output`. Parts and places begin and end where vectors do.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn copy_parts<F: Float, N: Size>(
    input: &Array<Vector<F, N>>,
    output: &mut Array<Vector<F, N>>,
    parts: &Parts,
    #[comptime] units: usize,
    #[define(F)] _dtype: StorageType,
) {
    if is_idle(parts) {
        terminate!();
    }
    let part = own_part(parts);
    let (from, to) = (part.start / N::value(), part.place / N::value());
    let mut vector = part.cube * units + UNIT_POS as usize;
    while vector * N::value() < part.count {
        output[to + vector] = input[from + vector];
        vector += part.cubes * units;
    }
}

/// Writes zeros to the parts, which begin and end where vectors do.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn clear_parts<F: Float, N: Size>(
    output: &mut Array<Vector<F, N>>,
    parts: &Parts,
    #[comptime] units: usize,
    #[define(F)] _dtype: StorageType,
) {
    if is_idle(parts) {
        terminate!();
    }
    let part = own_part(parts);
    let first = part.start / N::value();
    let mut vector = part.cube * units + UNIT_POS as usize;
    while vector * N::value() < part.count {
        output[first + vector] = Vector::new(F::from_int(0));
        vector += part.cubes * units;
    }
}
