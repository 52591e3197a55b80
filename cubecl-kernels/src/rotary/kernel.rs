//! The kernels of the split and the rotation.
//!
//! A unit owns two vectors of a head, and walks down the tokens. Where the head turns, each element of one vector has
//! its partner in these two: they are half the rotated elements apart, or next to each other. Elsewhere they are any
//! two that no other unit has.

use cubecl::prelude::*;

use super::{Direction, RotaryLayout};
use crate::cube::walk::{first_row, own_column, row_step};

/// The sizes of a projection.
#[derive(CubeType, CubeLaunch)]
pub struct Sizes {
    /// The tokens.
    pub tokens: usize,
    /// The groups.
    pub groups: usize,
    /// The query heads of a group.
    pub queries: usize,
    /// The vectors of a head.
    pub vectors: usize,
    /// The pairs of vectors of a head, the last of which may lack its second one.
    pub pairs: usize,
    /// The vectors of half the rotated elements: none where nothing turns.
    pub half: usize,
}

/// What a unit moves: vectors of a token.
#[derive(CubeType, Clone, Copy)]
struct Own {
    /// Whether they turn.
    turns: bool,
    /// The vector of a row of the tables.
    angle: usize,
    /// Where they are read; the first one twice where there is no second.
    from: usize,
    from_second: usize,
    /// Where they are written.
    to: usize,
    to_second: usize,
    has_second: bool,
}

/// Writes all heads in their new order, without turning any.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn split<F: Float, N: Size>(
    input: &[Vector<F, N>],
    output: &mut [Vector<F, N>],
    sizes: &Sizes,
    #[comptime] direction: Direction,
    #[define(F)] _dtype: ElemType,
) {
    let row = sizes.groups * (sizes.queries + 2usize) * sizes.vectors;
    let column = own_column();
    if column >= columns(sizes) {
        terminate!();
    }
    let own = own_vectors(sizes, column, RotaryLayout::Halves, direction);
    let mut token = first_row();
    while token < sizes.tokens {
        let at = token * row;
        let first = input[at + own.from];
        let second = input[at + own.from_second];
        output[at + own.to] = first;
        if own.has_second {
            output[at + own.to_second] = second;
        }
        token += row_step();
    }
}

/// Writes all heads in their new order, queries and keys turned: zeros where the tables have no row for a position.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn rotate<F: Float, I: Int, N: Size>(
    input: &[Vector<F, N>],
    cosine: &[Vector<f32, N>],
    sine: &[Vector<f32, N>],
    positions: &[I],
    output: &mut [Vector<F, N>],
    sizes: &Sizes,
    num_positions: usize,
    #[comptime] layout: RotaryLayout,
    #[comptime] direction: Direction,
    #[define(F, I)] _dtypes: [ElemType; 2],
) {
    let row = sizes.groups * (sizes.queries + 2usize) * sizes.vectors;
    let column = own_column();
    if column >= columns(sizes) {
        terminate!();
    }
    let own = own_vectors(sizes, column, layout, direction);
    let mut token = first_row();
    while token < sizes.tokens {
        let at = token * row;
        let mut first = input[at + own.from];
        let mut second = input[at + own.from_second];
        if own.turns {
            let position = positions[token];
            let mut c = Vector::<f32, N>::new(f32::new(0.0));
            let mut s = Vector::<f32, N>::new(f32::new(0.0));
            if position >= I::from_int(0) && position < I::cast_from(num_positions) {
                let angle = u32::cast_from(position) as usize * sizes.half + own.angle;
                c = cosine[angle];
                s = sine[angle];
            }
            if comptime!(direction == Direction::Backward) {
                s = Vector::<f32, N>::new(f32::new(0.0)) - s;
            }
            let x1 = Vector::<f32, N>::cast_from(first);
            let x2 = Vector::<f32, N>::cast_from(second);
            // Both before either is written: in f32, `x1` and `first` are one variable.
            if comptime!(layout == RotaryLayout::Halves) {
                let y1 = x1 * c - x2 * s;
                let y2 = x2 * c + x1 * s;
                first = Vector::cast_from(y1);
                second = Vector::cast_from(y2);
            } else {
                let a = of_pairs::<N>(x1, x2, 0usize);
                let b = of_pairs::<N>(x1, x2, 1usize);
                let y1 = a * c - b * s;
                let y2 = b * c + a * s;
                first = Vector::cast_from(next_to_each_other::<N>(y1, y2, 0usize));
                second = Vector::cast_from(next_to_each_other::<N>(y1, y2, 1usize));
            }
        }
        output[at + own.to] = first;
        if own.has_second {
            output[at + own.to_second] = second;
        }
        token += row_step();
    }
}

/// The pairs of vectors of a token.
#[cube]
fn columns(sizes: &Sizes) -> usize {
    sizes.groups * (sizes.queries + 2usize) * sizes.pairs
}

/// The vectors of a unit, which are numbered in the split order.
#[cube]
fn own_vectors(
    sizes: &Sizes,
    column: usize,
    #[comptime] layout: RotaryLayout,
    #[comptime] direction: Direction,
) -> Own {
    let split = column / sizes.pairs;
    let pair = column % sizes.pairs;

    let num_queries = sizes.groups * sizes.queries;
    let mut group = split / sizes.queries;
    let mut in_group = split % sizes.queries;
    if split >= num_queries {
        group = (split - num_queries) % sizes.groups;
        in_group = sizes.queries + (split - num_queries) / sizes.groups;
    }
    let packed = group * (sizes.queries + 2usize) + in_group;

    let half = select(in_group <= sizes.queries, sizes.half, 0usize);
    let turns = pair < half;
    // What does not turn comes after what does: a part of it that is as long as the pairs left, and then the others.
    let mut first = half + pair;
    let mut second = sizes.pairs + pair;
    if turns {
        if comptime!(layout == RotaryLayout::Halves) {
            first = pair;
            second = half + pair;
        } else {
            first = 2usize * pair;
            second = 2usize * pair + 1usize;
        }
    }
    let has_second = second < sizes.vectors;
    let read_second = select(has_second, second, first);

    let packed = packed * sizes.vectors;
    let split = split * sizes.vectors;
    if comptime!(direction == Direction::Forward) {
        Own {
            turns,
            angle: pair,
            from: packed + first,
            from_second: packed + read_second,
            to: split + first,
            to_second: split + second,
            has_second,
        }
    } else {
        Own {
            turns,
            angle: pair,
            from: split + first,
            from_second: split + read_second,
            to: packed + first,
            to_second: packed + second,
            has_second,
        }
    }
}

/// The first or second elements of the pairs in two vectors, pair after pair.
#[cube]
fn of_pairs<N: Size>(x1: Vector<f32, N>, x2: Vector<f32, N>, #[comptime] which: usize) -> Vector<f32, N> {
    let mut result = Vector::<f32, N>::empty();
    let size = N::value();
    #[unroll]
    for pair in 0..size {
        let at = comptime!(2 * pair + which);
        if comptime!(at < size) {
            result.insert(pair, x1.extract(at));
        } else {
            result.insert(pair, x2.extract(comptime!(at - size)));
        }
    }
    result
}

/// The first or second of the two vectors in which the pairs' elements are next to each other.
#[cube]
fn next_to_each_other<N: Size>(y1: Vector<f32, N>, y2: Vector<f32, N>, #[comptime] which: usize) -> Vector<f32, N> {
    let mut result = Vector::<f32, N>::empty();
    let size = N::value();
    #[unroll]
    for lane in 0..size {
        let at = comptime!(which * size + lane);
        if comptime!(at % 2 == 0) {
            result.insert(lane, y1.extract(comptime!(at / 2)));
        } else {
            result.insert(lane, y2.extract(comptime!(at / 2)));
        }
    }
    result
}
