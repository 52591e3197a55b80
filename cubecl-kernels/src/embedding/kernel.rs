//! The kernels of embeddings.

use cubecl::prelude::*;

use crate::cube::walk::{ROWS_AT_ONCE, first_row, own_column, row_of_turn, row_step};

/// Tokens that a unit looks at before all units of its cube tell each other what they have found.
pub(super) const TOKENS_EACH: usize = 16;

/// Writes each token's row of the table; zeros where the table has none.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn rows<F: Float, I: Int, N: Size>(
    table: &[Vector<F, N>],
    tokens: &[I],
    output: &mut [Vector<F, N>],
    num_tokens: usize,
    vectors: usize,
    first: usize,
    count: usize,
    #[define(F, I)] _dtypes: [ElemType; 2],
) {
    let vector = own_column();
    if vector >= vectors {
        terminate!();
    }
    let mut token = first_row();
    while token < num_tokens {
        let mut rows = Array::<Vector<F, N>>::new(ROWS_AT_ONCE);
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            let number = tokens[row_of_turn(token, turn, num_tokens)];
            rows[turn] = Vector::new(F::from_int(0));
            if is_within::<I>(number, first, count) {
                rows[turn] = table[row_of::<I>(number, first) * vectors + vector];
            }
        }
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            let own = token + turn * row_step();
            if own < num_tokens {
                output[own * vectors + vector] = rows[turn];
            }
        }
        token += ROWS_AT_ONCE * row_step();
    }
}

/// Adds up the gradients of each token that the range has, and adds them to its row of the sums, whose vectors begin at
/// `offset`.
///
/// There are `parts` cubes for each position, with a vector of its row for each unit. Of the cubes of one token's
/// positions, those of the first one add up all of them, and the others have nothing to do. So each row is written by
/// one unit for each vector, and its terms are added in the order of the positions.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn add_rows<S: Float, G: Float, I: Int, N: Size>(
    tokens: &[I],
    gradient: &[Vector<G, N>],
    sums: &mut [Vector<S, N>],
    num_tokens: usize,
    vectors: usize,
    parts: usize,
    offset: usize,
    first: usize,
    count: usize,
    #[comptime] units: usize,
    #[define(S, G, I)] _dtypes: [ElemType; 3],
) {
    let own = CUBE_POS / parts;
    if own >= num_tokens {
        terminate!();
    }
    let number = tokens[own];
    if !is_within::<I>(number, first, count) {
        terminate!();
    }
    let vector = (CUBE_POS % parts) * units + UNIT_POS as usize;
    let mut found = Shared::<[u32]>::new_slice(units);
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    let mut is_first = true;
    let mut start = 0usize;
    while is_first && start < num_tokens {
        found[UNIT_POS as usize] = find::<I>(tokens, number, start, num_tokens, units);
        sync_cube();
        let mut unit = 0usize;
        while is_first && unit < units {
            let bits = found[unit];
            if bits != 0u32 {
                #[unroll]
                for bit in 0..comptime!(TOKENS_EACH as u32) {
                    if (bits >> bit) & 1u32 == 1u32 {
                        let token = start + unit * comptime!(TOKENS_EACH) + bit as usize;
                        if token < own {
                            is_first = false;
                        } else if is_first && vector < vectors {
                            sum += Vector::<f32, N>::cast_from(gradient[token * vectors + vector]);
                        }
                    }
                }
            }
            unit += 1usize;
        }
        // The next part's findings are written to the same memory.
        sync_cube();
        start += comptime!(units * TOKENS_EACH);
    }
    if is_first && vector < vectors {
        let at = offset + row_of::<I>(number, first) * vectors + vector;
        sums[at] = Vector::cast_from(Vector::<f32, N>::cast_from(sums[at]) + sum);
    }
}

/// Returns at which of the unit's own positions from `start` on the token is: a bit for each. The units' positions
/// follow each other; they are read across, so that units that are next to each other read numbers that are.
#[cube]
fn find<I: Int>(tokens: &[I], number: I, start: usize, num_tokens: usize, #[comptime] units: usize) -> u32 {
    let mut is_there = Shared::<[u32]>::new_slice(comptime!(units * (TOKENS_EACH + 1)));
    let unit = UNIT_POS as usize;
    #[unroll]
    for step in 0..comptime!(TOKENS_EACH) {
        let at = step * units + unit;
        let mut bit = 0u32;
        if start + at < num_tokens {
            bit = select(tokens[start + at] == number, 1u32, 0u32);
        }
        // One place in between for each unit: the units then read from different banks.
        is_there[at + at / comptime!(TOKENS_EACH)] = bit;
    }
    sync_cube();
    let mut bits = 0u32;
    #[unroll]
    for bit in 0..comptime!(TOKENS_EACH) {
        bits |= is_there[unit * comptime!(TOKENS_EACH + 1) + bit] << (bit as u32);
    }
    bits
}

/// Returns whether a token has a row here: compared in its own type, because it may not fit another.
#[cube]
fn is_within<I: Int>(number: I, first: usize, count: usize) -> bool {
    number >= I::cast_from(first) && number < I::cast_from(first + count)
}

#[cube]
fn row_of<I: Int>(number: I, first: usize) -> usize {
    u32::cast_from(number) as usize - first
}
