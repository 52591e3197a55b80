//! Dropout of rows, for trials of operations that take one.

use cubecl_kernels::random::{RowDropout, RowPlace};

/// Returns a dropout of `rows` rows, three tokens of each sample.
pub fn dropout(rows: usize, probability: f64) -> RowDropout {
    let place = |row: usize| RowPlace {
        position: row as u32 * 37 + 5,
        sample: u32::MAX - row as u32 / 3,
    };
    RowDropout {
        key: [0x1234_5678, 0x9ABC_DEF0],
        iteration: 77,
        first_head: 0,
        probability,
        places: (0..rows).map(place).collect(),
    }
}
