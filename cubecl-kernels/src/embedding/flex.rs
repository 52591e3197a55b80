//! Embeddings on the CPU: rows are copied, and added up, side by side.

use std::mem::MaybeUninit;

use burn::tensor::Element;
use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexTensor};
use parking_lot::Mutex;

use super::{AddRows, TokenRange};
use crate::flex::blocks::{Rows, in_blocks, in_tasks, uninit};
use crate::flex::lanes::{Destination, accumulate};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{dims, in_order, tensor};

/// Rows of the table that one task adds to.
const ROWS_EACH: usize = 32;

/// Returns each token's row; zeros for tokens outside the range.
pub fn forward(table: FlexTensor, tokens: FlexTensor, range: TokenRange) -> FlexTensor {
    with_number!(table.dtype(), T => forward_in::<T>(table, rows_of(tokens, range)))
}

fn forward_in<T: Number>(table: FlexTensor, rows: Vec<Option<usize>>) -> FlexTensor {
    let [_, columns] = dims(&table);
    let shape = [rows.len(), columns];
    if columns == 0 {
        return tensor(Vec::<T>::new(), shape);
    }
    let table = in_order(table);
    let table = table.storage::<T>();
    let mut output = uninit::<T>(rows.len() * columns);
    in_blocks(shape, Rows::new(&mut output[..], columns), |range, output| {
        let places = output.values.chunks_exact_mut(columns);
        for (place, row) in places.zip(&rows[range]) {
            match row {
                Some(row) => {
                    place.write_copy_of_slice(&table[row * columns..][..columns]);
                }
                None => place.fill(MaybeUninit::new(T::zeroed())),
            }
        }
    });
    // SAFETY: the blocks are all rows, and each was written.
    tensor(unsafe { output.assume_init() }.into_vec(), shape)
}

/// Returns the sums with each token's gradient added to its row.
pub fn add_rows(
    sums: FlexTensor,
    tokens: FlexTensor,
    gradient: FlexTensor,
    &AddRows { offset, range }: &AddRows,
) -> FlexTensor {
    let rows = rows_of(tokens, range);
    with_number!(sums.dtype(), S => {
        if gradient.dtype() == S::dtype() {
            add_in::<S, S>(sums, offset, rows, gradient)
        } else {
            type Wide = <S as Number>::Real;
            add_in::<S, Wide>(sums, offset, rows, Flex::float_cast(gradient, Wide::dtype().into()))
        }
    })
}

fn add_in<S: Number, G: Number<Real = S::Real>>(
    sums: FlexTensor,
    offset: usize,
    rows: Vec<Option<usize>>,
    gradient: FlexTensor,
) -> FlexTensor {
    let [_, columns] = dims(&gradient);
    let (mut sums, gradient) = (in_order(sums), in_order(gradient));
    let gradient = gradient.storage::<G>();
    let mut order: Vec<(usize, usize)> = rows
        .into_iter()
        .enumerate()
        .filter_map(|(index, row)| Some((row?, index)))
        .collect();
    if columns == 0 || order.is_empty() {
        return sums;
    }
    // By rows, and those of a row in the tokens' order.
    order.sort_unstable();
    let of_rows: Vec<&[(usize, usize)]> = order.chunk_by(|a, b| a.0 == b.0).collect();
    let places = rows_at(&mut sums.storage_mut::<S>()[offset..], columns, &of_rows);
    let tasks: Vec<_> = split(of_rows.into_iter().zip(places)).map(Mutex::new).collect();
    in_tasks(tasks.len(), |number| {
        let mut task = tasks[number].lock();
        vectorised(
            #[inline(always)]
            || {
                for (terms, place) in task.iter_mut() {
                    add_row::<S, G>(terms, gradient, place);
                }
            },
        );
    });
    drop(tasks);
    sums
}

/// Adds the sum of a row's terms to its place.
#[inline(always)]
fn add_row<S: Number, G: Number<Real = S::Real>>(terms: &[(usize, usize)], gradient: &[G], place: &mut [S]) {
    let columns = place.len();
    let mut sum = vec![S::Real::ZERO; columns];
    let mut buffer = Vec::new();
    for (_, index) in terms {
        let term = G::read(&gradient[index * columns..][..columns], &mut buffer);
        accumulate(
            &mut sum,
            [term],
            #[inline(always)]
            |[term]| term,
        );
    }
    let mut buffer = Vec::new();
    S::through(
        Destination::Over(place),
        &mut buffer,
        #[inline(always)]
        |place| {
            crate::flex::lanes::map(
                place,
                [&sum[..]],
                #[inline(always)]
                |before, [sum]| before + sum,
            );
        },
    );
}

/// The places of rows in ascending order.
fn rows_at<'a, S>(sums: &'a mut [S], columns: usize, of_rows: &[&[(usize, usize)]]) -> Vec<&'a mut [S]> {
    let (mut rest, mut end) = (sums, 0);
    let mut places = Vec::with_capacity(of_rows.len());
    for terms in of_rows {
        let start = terms[0].0 * columns;
        let (_, from_start) = std::mem::take(&mut rest).split_at_mut(start - end);
        let (place, others) = from_start.split_at_mut(columns);
        places.push(place);
        (rest, end) = (others, start + columns);
    }
    places
}

/// Tasks of some rows each.
fn split<T>(rows: impl Iterator<Item = T>) -> impl Iterator<Item = Vec<T>> {
    let mut rows = rows.peekable();
    std::iter::from_fn(move || {
        rows.peek()?;
        Some(rows.by_ref().take(ROWS_EACH).collect())
    })
}

/// Each token's row, none for one outside the range.
fn rows_of(tokens: FlexTensor, range: TokenRange) -> Vec<Option<usize>> {
    let tokens = tokens.into_data();
    tokens.iter::<i64>().map(|token| range.row(token)).collect()
}
