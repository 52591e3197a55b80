//! The forward pass: a task for each sample, head and block of queries.

use burn_flex::FlexTensor;

use super::bias::Bias;
use super::block::{Queries, Running};
use super::heads::{Heads, Places};
use super::{KEYS, QUERIES, unpack};
use crate::flash_attention::AttentionOptions;
use crate::flash_attention::projections::Projections;
use crate::flex::blocks::{in_tasks, uninit};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::product::{Matrix, MatrixMut, Onto, product};
use crate::flex::tensor::{in_order, tensor};

/// Returns output and row statistics.
pub fn forward(
    inputs: Projections<FlexTensor>,
    bias: Option<FlexTensor>,
    options: &AttentionOptions,
) -> (FlexTensor, FlexTensor) {
    with_number!(inputs.first().dtype(), T => forward_of::<T>(unpack(inputs), bias, options))
}

/// Inputs of all tasks.
struct Inputs<'a, T: Number> {
    query: Heads<'a, T>,
    key: Heads<'a, T>,
    value: Heads<'a, T>,
    bias: Option<Bias<T::Real>>,
}

/// Memory of a task.
struct Scratch<R> {
    query: Vec<R>,
    key: Vec<R>,
    value: Vec<R>,
    scores: Vec<R>,
    output: Vec<R>,
}

impl<R> Default for Scratch<R> {
    fn default() -> Self {
        Self {
            query: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            scores: Vec::new(),
            output: Vec::new(),
        }
    }
}

fn forward_of<T: Number>(
    inputs: [FlexTensor; 3],
    bias: Option<FlexTensor>,
    options: &AttentionOptions,
) -> (FlexTensor, FlexTensor) {
    let [query, key, value] = inputs.each_ref().map(Heads::<T>::of);
    let (dims @ [batch, queries, heads, _], keys) = (query.dims, key.dims[1]);
    let inputs = Inputs {
        query,
        key,
        value,
        bias: bias.map(|bias| {
            Bias::new(
                in_order(bias).storage(),
                queries + keys - 1,
                keys,
                T::Real::of(options.scale),
            )
        }),
    };
    let blocks = queries.div_ceil(QUERIES);
    let mut output = uninit::<T>(dims.iter().product());
    let [places] = Places::cut(&mut output, dims, [0]);
    let run = |task: usize| {
        let scratch = &mut Scratch::default();
        let [sample, head, block] = [task / (heads * blocks), task / blocks % heads, task % blocks];
        let block = Queries::new([sample, head, block * QUERIES], [queries, keys], options);
        let running = attend(&inputs, [sample, head], &block, options, scratch);
        let kept = options.dropout.as_ref().map_or(1.0, |dropout| dropout.scale());
        let factor = |row: usize| {
            if running.sum[row] == T::Real::ZERO {
                T::Real::ZERO
            } else {
                T::Real::of(kept) / running.sum[row]
            }
        };
        // SAFETY: no other task has this head's block of queries.
        unsafe { places.write([sample, head, block.range.start], &mut scratch.output, factor) };
        let lanes = 0..block.range.len();
        lanes.map(|lane| running.log_sum_exp(lane)).collect::<Vec<_>>()
    };
    let log_sum_exp = in_tasks(batch * heads * blocks, run);
    // SAFETY: the tasks have written every query of every head.
    let output = unsafe { output.assume_init() }.into_vec();
    let log_sum_exp = tensor(log_sum_exp.concat(), [batch, heads, queries]);
    (tensor(output, dims), log_sum_exp)
}

/// Leaves the sums of the values, weighted and not yet divided, in `scratch.output`.
fn attend<T: Number>(
    Inputs {
        query,
        key,
        value,
        bias,
    }: &Inputs<'_, T>,
    [sample, head]: [usize; 2],
    block: &Queries<'_>,
    options: &AttentionOptions,
    scratch: &mut Scratch<T::Real>,
) -> Running<T::Real> {
    let ([_, _, heads, d_head], [_, _, kv_heads, _]) = (query.dims, key.dims);
    let (count, width) = (block.range.len(), block.width());
    let kv_head = head * kv_heads / heads;
    let scale = T::Real::of(options.scale);
    let mut running = Running::new();
    let query = query
        .rows(sample, head, block.range.clone())
        .widened(&mut scratch.query);
    scratch.output.clear();
    scratch.output.resize(count * d_head, T::Real::ZERO);
    scratch.scores.resize(KEYS * QUERIES, T::Real::ZERO);
    for (index, range) in block.key_blocks().enumerate() {
        let is_first = index == 0;
        let scores = &mut scratch.scores[..range.len() * width];
        let rows = key.rows(sample, kv_head, range.clone()).widened(&mut scratch.key);
        let mut onto = Onto::Nothing;
        if let Some(bias) = bias {
            bias.write(scores, head, block, range.clone());
            onto = Onto::Sum;
        }
        let into = MatrixMut::new(scores, [count, range.len()], [1, width]);
        product(query, rows.transposed(), into, onto);
        vectorised(
            #[inline(always)]
            || {
                running.weigh(scores, block, range.clone(), scale);
                if !is_first {
                    for (row, rescale) in scratch.output.chunks_exact_mut(d_head).zip(running.rescale) {
                        for value in row {
                            *value = *value * rescale;
                        }
                    }
                }
            },
        );
        let weights = Matrix::new(scores, 0, [count, range.len()], [1, width as isize]);
        let rows = value.rows(sample, kv_head, range).widened(&mut scratch.value);
        let into = MatrixMut::new(&mut scratch.output, [count, d_head], [d_head, 1]);
        let onto = if is_first { Onto::Nothing } else { Onto::Sum };
        product(weights, rows, into, onto);
    }
    running
}
