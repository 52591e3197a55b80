//! The kernels that copy ranges and clear them.

use cubecl::prelude::*;

use crate::cube::parts::{Parts, is_idle, own_part};

/// Vectors that a unit asks for before it waits for any.
const AT_ONCE: usize = 4;

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
    let vectors = part.count / N::value();
    let step = part.cubes * units;
    let mut vector = part.cube * units + UNIT_POS as usize;
    while vector < vectors {
        let mut loaded = Array::<Vector<F, N>>::new(AT_ONCE);
        #[unroll]
        for turn in 0..AT_ONCE {
            let own = vector + turn * step;
            if own < vectors {
                loaded[turn] = input[from + own];
            }
        }
        #[unroll]
        for turn in 0..AT_ONCE {
            let own = vector + turn * step;
            if own < vectors {
                output[to + own] = loaded[turn];
            }
        }
        vector += AT_ONCE * step;
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
