//! The split and the rotation on the CPU.

use std::mem::MaybeUninit;

use burn_flex::FlexTensor;

use super::{Angles, Direction, RotaryHeads, RotaryLayout};
use crate::flex::blocks::{Rows, each_row, in_blocks, uninit};
use crate::flex::lanes::{map, map_neighbours, map_pairs};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{dims, in_order, tensor};

/// Returns all query heads, all key heads and all value heads; queries and keys rotated.
pub fn forward(input: FlexTensor, angles: Option<Angles<FlexTensor>>) -> FlexTensor {
    let shape @ [tokens, _, _, d_head] = dims(&input);
    let heads = RotaryHeads::of(shape);
    let pass = Pass {
        heads: heads_to_write(heads, Direction::Forward),
        d_head,
        direction: Direction::Forward,
    };
    let angles = angles.map(Turns::of);
    with_number!(input.dtype(), T => {
        tensor(pass.run::<T>(tokens, in_order(input), angles), [tokens, heads.total(), d_head])
    })
}

/// Returns the input's gradient for the output's.
pub fn backward(gradient: FlexTensor, heads: RotaryHeads, angles: Option<Angles<FlexTensor>>) -> FlexTensor {
    let [tokens, _, d_head] = dims(&gradient);
    let pass = Pass {
        heads: heads_to_write(heads, Direction::Backward),
        d_head,
        direction: Direction::Backward,
    };
    let (angles, shape) = (angles.map(Turns::of), [tokens, heads.groups, heads.queries + 2, d_head]);
    with_number!(gradient.dtype(), T => tensor(pass.run::<T>(tokens, in_order(gradient), angles), shape))
}

/// A head to be written.
#[derive(Clone, Copy, Default)]
struct Head {
    /// Which of those that are read.
    from: usize,
    /// Whether it is rotated.
    turns: bool,
}

/// The heads of a token in the order in which they are written.
fn heads_to_write(heads: RotaryHeads, direction: Direction) -> Vec<Head> {
    let mut list = vec![Head::default(); heads.total()];
    for split in 0..heads.total() {
        let (packed, turns) = (heads.packed(split), split < heads.turning());
        match direction {
            Direction::Forward => list[split] = Head { from: packed, turns },
            Direction::Backward => list[packed] = Head { from: split, turns },
        }
    }
    list
}

/// The angles, with their rows looked up.
struct Turns {
    tables: [FlexTensor; 2],
    rows: Vec<usize>,
    half: usize,
    layout: RotaryLayout,
}

impl Turns {
    fn of(angles: Angles<FlexTensor>) -> Self {
        let [count, half] = dims(&angles.cosine);
        Self {
            tables: [in_order(angles.cosine), in_order(angles.sine)],
            rows: rows_of(angles.positions, count),
            half,
            layout: angles.layout,
        }
    }
}

/// The positions, each of which has a row in the tables.
fn rows_of(positions: FlexTensor, count: usize) -> Vec<usize> {
    let positions = positions.into_data();
    let row = |(token, position): (usize, i64)| match usize::try_from(position) {
        Ok(row) if row < count => row,
        _ => panic!("rotary: the position of token {token} must be below {count}, the tables' rows, got {position}"),
    };
    positions.iter::<i64>().enumerate().map(row).collect()
}

/// A pass over all tokens' heads.
struct Pass {
    heads: Vec<Head>,
    d_head: usize,
    direction: Direction,
}

impl Pass {
    fn run<T: Number>(&self, tokens: usize, input: FlexTensor, angles: Option<Turns>) -> Vec<T> {
        let (d_head, width) = (self.d_head, self.heads.len() * self.d_head);
        if width == 0 {
            return Vec::new();
        }
        let input = input.storage::<T>();
        let angles = angles.as_ref().map(|turns| {
            let [cosine, sine] = turns.tables.each_ref().map(|table| table.storage::<T::Real>());
            (turns, [cosine, sine])
        });
        let mut output = uninit::<T>(tokens * width);
        in_blocks([tokens, width], Rows::new(&mut output[..], width), |range, rows| {
            vectorised(
                #[inline(always)]
                || {
                    let mut buffers = [Vec::new(), Vec::new()];
                    each_row(
                        range,
                        rows,
                        #[inline(always)]
                        |token, row| {
                            let input = &input[token * width..][..width];
                            for (output, head) in row.values.chunks_exact_mut(d_head).zip(&self.heads) {
                                let input = &input[head.from * d_head..][..d_head];
                                match &angles {
                                    Some((turns, tables)) if head.turns => {
                                        let start = turns.rows[token] * turns.half;
                                        let [cosine, sine] = tables.map(|table| &table[start..][..turns.half]);
                                        self.turn::<T>(input, [cosine, sine], turns.layout, output, &mut buffers);
                                    }
                                    _ => {
                                        output.write_copy_of_slice(input);
                                    }
                                }
                            }
                        },
                    );
                },
            );
        });
        // SAFETY: every row was written, all its heads.
        unsafe { output.assume_init() }.into_vec()
    }

    /// Writes a head, rotated.
    #[inline(always)]
    fn turn<T: Number>(
        &self,
        input: &[T],
        angle: [&[T::Real]; 2],
        layout: RotaryLayout,
        output: &mut [MaybeUninit<T>],
        [input_buffer, buffer]: &mut [Vec<T::Real>; 2],
    ) {
        let half = angle[0].len();
        let sign = match self.direction {
            Direction::Forward => T::Real::ONE,
            Direction::Backward => -T::Real::ONE,
        };
        T::make(
            T::read(input, input_buffer),
            output,
            buffer,
            #[inline(always)]
            |output| {
                let (turning, rest) = output.split(2 * half);
                match layout {
                    RotaryLayout::Halves => {
                        let (first, second) = turning.split(half);
                        map_pairs(
                            [first, second],
                            angle,
                            #[inline(always)]
                            |pair, angle| turned(pair, angle, sign),
                        );
                    }
                    RotaryLayout::Interleaved => map_neighbours(
                        turning,
                        angle,
                        #[inline(always)]
                        |pair, angle| turned(pair, angle, sign),
                    ),
                }
                map(
                    rest,
                    [],
                    #[inline(always)]
                    |x, []| x,
                );
            },
        );
    }
}

/// A pair, rotated by the angle of a cosine and a sine times the sign.
#[inline(always)]
fn turned<R: Real>([a, b]: [R; 2], [cosine, sine]: [R; 2], sign: R) -> [R; 2] {
    let sine = sign * sine;
    [a * cosine - b * sine, b * cosine + a * sine]
}
