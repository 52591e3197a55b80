//! The product for the CPU: tiles of the output as tasks, each a product on one thread.
//!
//! Tiles are as large as leaves enough of them for many threads: the `gemm` crate packs both factors of each, one of
//! them element by element where it is transposed. They follow from the output's shape alone, so that the results do
//! not depend on the number of threads. Of 16 bits, the factors of a tile are widened in blocks, added up in f32 and
//! rounded once.

use std::mem::MaybeUninit;

use burn::tensor::Element;
use burn_flex::FlexTensor;

use super::factors::{factor_gradients, input_first};
use super::{LinearWanted, WeightOrder};
use crate::flex::blocks::{add_up, in_blocks, share_out, uninit};
use crate::flex::lanes::{Destination, accumulate};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::product::{Matrix, MatrixMut, Onto, product};
use crate::flex::tensor::{in_order, rounded, tensor};

/// Rows and columns of a tile, at most; the first are taken of which there are enough.
const TILES: [[usize; 2]; 3] = [[512, 256], [256, 256], [256, 128]];
/// Tiles that are enough for many threads.
const ENOUGH: usize = 16;
/// Multiplications that are over before another thread has woken up.
const SMALL: usize = 1 << 22;
/// A tile's columns are a multiple of this, if there are several tiles.
const WIDTH: usize = 64;
/// Terms of a sum that are widened at once.
const DEPTH: usize = 1024;

/// Returns `input · weight + bias`.
pub(super) fn forward(
    input: FlexTensor,
    weight: FlexTensor,
    bias: Option<FlexTensor>,
    order: WeightOrder,
) -> FlexTensor {
    with_number!(input.dtype(), T => forward_of::<T>(input, weight, bias, order))
}

/// Returns the gradients of input, weight and bias that are wanted for the output's.
pub(super) fn backward(inputs: [FlexTensor; 3], order: WeightOrder, wanted: LinearWanted) -> Gradients {
    with_number!(inputs[2].dtype(), T => backward_of::<T>(inputs, order, wanted))
}

type Gradients = (Option<FlexTensor>, Option<FlexTensor>, Option<FlexTensor>);

fn forward_of<T: Number>(
    input: FlexTensor,
    weight: FlexTensor,
    bias: Option<FlexTensor>,
    order: WeightOrder,
) -> FlexTensor {
    let [input, weight] = [&input, &weight].map(matrix::<T>);
    let weight = input_first(weight, order, Matrix::transposed);
    let bias = bias.map(in_order);
    let mut buffer = Vec::new();
    let bias = bias.as_ref().map(|bias| T::read(bias.storage(), &mut buffer));
    let [output] = multiply([Some(Product::new(input, weight, bias))]);
    output.expect("asked for")
}

fn backward_of<T: Number>(inputs: [FlexTensor; 3], order: WeightOrder, wanted: LinearWanted) -> Gradients {
    let [x, w, dy] = inputs.each_ref().map(matrix::<T>);
    let product = |a, b| Product::new(a, b, None);
    let [of_input, of_weight] = multiply(factor_gradients([x, w, dy], order, wanted, Matrix::transposed, product));
    (of_input, of_weight, wanted.bias.then(|| column_sums(dy)))
}

fn matrix<T: Number>(tensor: &FlexTensor) -> Matrix<'_, T> {
    let layout = tensor.layout();
    let strides = [layout.strides()[0], layout.strides()[1]];
    let shape = [layout.shape()[0], layout.shape()[1]];
    Matrix::new(tensor.storage(), layout.start_offset(), shape, strides)
}

/// A product to compute: `a · b + bias`.
struct Product<'a, T: Number> {
    a: Matrix<'a, T>,
    b: Matrix<'a, T>,
    bias: Option<&'a [T::Real]>,
}

impl<'a, T: Number> Product<'a, T> {
    fn new(a: Matrix<'a, T>, b: Matrix<'a, T>, bias: Option<&'a [T::Real]>) -> Self {
        Self { a, b, bias }
    }

    fn shape(&self) -> [usize; 2] {
        [self.a.shape()[0], self.b.shape()[1]]
    }

    fn multiplications(&self) -> usize {
        let [[rows, depth], [_, columns]] = [self.a.shape(), self.b.shape()];
        rows * depth * columns
    }

    /// Cuts the output, which `memory` is for, into `enough` tiles if it is large.
    fn tiles<'b>(&'b self, memory: &'b mut [MaybeUninit<T>], enough: usize) -> impl Iterator<Item = Tile<'b, T>> {
        let [rows, columns] = self.shape();
        assert_eq!(
            memory.len(),
            rows * columns,
            "an output of {rows} rows and {columns} columns"
        );
        let [[down, across], [tile_rows, tile_columns]] = tiling([rows, columns], enough);
        let memory = memory.as_mut_ptr();
        (0..down * across).map(move |tile| {
            let (row, column) = (tile % down * tile_rows, tile / down * tile_columns);
            let (last_row, last_column) = (rows.min(row + tile_rows), columns.min(column + tile_columns));
            Tile {
                a: self.a.rows(row..last_row),
                b: self.b.columns(column..last_column),
                bias: self.bias.map(|bias| &bias[column..last_column]),
                // SAFETY: it is inside, as just checked.
                to: unsafe { memory.add(row * columns + column) },
                stride: columns,
            }
        })
    }
}

/// Returns the products that are wanted, computed at the same time.
fn multiply<T: Number, const N: usize>(products: [Option<Product<'_, T>>; N]) -> [Option<FlexTensor>; N] {
    // Each of several needs fewer tiles. Not of those that are wanted: the others must not change their bits.
    let enough = ENOUGH / N;
    let mut outputs = products.each_ref().map(|product| {
        let [rows, columns] = product.as_ref()?.shape();
        Some(uninit::<T>(rows * columns))
    });
    let tiles: Vec<_> = products
        .iter()
        .flatten()
        .zip(outputs.iter_mut().flatten())
        .flat_map(|(product, output)| product.tiles(output, enough))
        .collect();
    // SAFETY: each tile is written once.
    let write = |tile: usize| unsafe { tiles[tile].write(&mut Scratch::default()) };
    if products.iter().flatten().map(Product::multiplications).sum::<usize>() < SMALL {
        (0..tiles.len()).for_each(write)
    } else {
        share_out(tiles.len(), &write)
    }
    drop(tiles);
    let shapes = products.map(|product| product.map(|product| product.shape()));
    std::array::from_fn(|i| {
        let output = outputs[i].take()?;
        // SAFETY: the tiles cover it.
        Some(tensor(unsafe { output.assume_init() }.into_vec(), shapes[i]?))
    })
}

/// Returns how many tiles an output is cut into, down and across, and their rows and columns at most.
fn tiling([rows, columns]: [usize; 2], enough: usize) -> [[usize; 2]; 2] {
    let cut = |[tile_rows, tile_columns]: [usize; 2]| [rows.div_ceil(tile_rows), columns.div_ceil(tile_columns)];
    let is_enough = |tile: &[usize; 2]| cut(*tile).iter().product::<usize>() >= enough;
    let tile = TILES.into_iter().find(is_enough).unwrap_or(TILES[TILES.len() - 1]);
    let [down, across] = cut(tile);
    // Of equal sizes, so that no thread waits long for another.
    let tile_rows = rows.div_ceil(down.max(1));
    let tile_columns = columns.div_ceil(across.max(1)).next_multiple_of(WIDTH);
    [[down, across], [tile_rows, tile_columns]]
}

/// A part of a product's output, computed by one thread.
struct Tile<'a, T: Number> {
    a: Matrix<'a, T>,
    b: Matrix<'a, T>,
    bias: Option<&'a [T::Real]>,
    to: *mut MaybeUninit<T>,
    /// Numbers from one row of the output to the next.
    stride: usize,
}

// SAFETY: what `to` points at is touched by `write` only, whose callers take care.
unsafe impl<T: Number> Sync for Tile<'_, T> {}

/// Memory that a tile is computed in.
#[derive(Default)]
struct Scratch<R> {
    left: Vec<R>,
    right: Vec<R>,
    sums: Vec<R>,
}

impl<T: Number> Tile<'_, T> {
    /// Writes the tile's rows.
    ///
    /// # Safety
    /// No other thread writes the same tile at the same time.
    unsafe fn write(&self, scratch: &mut Scratch<T::Real>) {
        let Self { a, b, bias, to, stride } = *self;
        let [[rows, depth], [_, columns]] = [a.shape(), b.shape()];
        if T::dtype() == <T::Real as Element>::dtype() {
            let to = to.cast::<T::Real>();
            // SAFETY: the caller says so.
            let into = unsafe { MatrixMut::from_raw(to, [rows, columns], [stride, 1]) };
            // Neither of them is widened.
            let (a, b) = (a.widened(&mut scratch.left), b.widened(&mut scratch.right));
            product(a, b, into, Onto::Nothing);
            if let Some(bias) = bias {
                // SAFETY: as above, and the product has written all of the rows.
                let row_of = |row: usize| unsafe { std::slice::from_raw_parts_mut(to.add(row * stride), columns) };
                add_to_rows((0..rows).map(row_of), bias);
            }
            return;
        }
        scratch.sums.clear();
        scratch.sums.resize(rows * columns, T::Real::ZERO);
        for first in (0..depth).step_by(DEPTH) {
            let range = first..depth.min(first + DEPTH);
            let a = a.columns(range.clone()).widened(&mut scratch.left);
            let b = b.rows(range).widened(&mut scratch.right);
            let into = MatrixMut::new(&mut scratch.sums, [rows, columns], [columns, 1]);
            product(a, b, into, Onto::Sum);
        }
        if let Some(bias) = bias {
            add_to_rows(scratch.sums.chunks_exact_mut(columns), bias);
        }
        for (row, sums) in scratch.sums.chunks_exact(columns).enumerate() {
            // SAFETY: the caller says so.
            let to = unsafe { std::slice::from_raw_parts_mut(to.add(row * stride), columns) };
            vectorised(
                #[inline(always)]
                || T::write(sums, Destination::New { from: &[], to }),
            );
        }
    }
}

fn add_to_rows<'a, R: Real>(rows: impl Iterator<Item = &'a mut [R]>, bias: &[R]) {
    vectorised(
        #[inline(always)]
        || {
            for row in rows {
                accumulate(
                    row,
                    [bias],
                    #[inline(always)]
                    |[bias]| bias,
                );
            }
        },
    );
}

/// Returns the sums over rows, those of blocks of them added up in order.
fn column_sums<T: Number>(values: Matrix<'_, T>) -> FlexTensor {
    let shape @ [_, columns] = values.shape();
    let sums = in_blocks(shape, (), |range, ()| {
        let mut sums = vec![T::Real::ZERO; columns];
        let mut buffer = Vec::new();
        for row in range {
            let values = values.rows(row..row + 1);
            match values.row(0) {
                Some(values) => vectorised(
                    #[inline(always)]
                    || add(&mut sums, T::read(values, &mut buffer)),
                ),
                None => {
                    values.copy_rows(&mut buffer);
                    add(&mut sums, &buffer);
                }
            }
        }
        sums
    });
    rounded::<T, 1>(add_up(sums.iter().map(|sums| &sums[..]), columns), [columns])
}

#[inline(always)]
fn add<R: Real>(sums: &mut [R], values: &[R]) {
    accumulate(
        sums,
        [values],
        #[inline(always)]
        |[value]| value,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_the_output_once() {
        let lengths = || (0..700).chain([1023, 1024, 1025, 4097, 8192, 50_257]);
        for (rows, columns) in lengths().flat_map(|rows| lengths().map(move |columns| (rows, columns))) {
            for enough in [ENOUGH / 2, ENOUGH] {
                let [[down, across], [tile_rows, tile_columns]] = tiling([rows, columns], enough);
                assert!(down * tile_rows >= rows && across * tile_columns >= columns);
                // None is empty: it would start outside.
                assert!(down == 0 || (down - 1) * tile_rows < rows);
                assert!(across == 0 || (across - 1) * tile_columns < columns);
                assert!(tile_rows <= 512 && tile_columns <= 256);
            }
        }
    }
}
