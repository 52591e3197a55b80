//! The backward pass: a task for each sample and head of keys, over the blocks of queries of the heads that share it.

use std::ops::Range;

use burn::tensor::Element;
use burn_flex::FlexTensor;

use super::bias::{Bias, BiasSums};
use super::block::{Known, Queries};
use super::heads::{Heads, Places};
use super::{KEYS, QUERIES, unpack};
use crate::flash_attention::AttentionOptions;
use crate::flash_attention::projections::Projections;
use crate::flash_attention::{Backward, BackwardInputs};
use crate::flex::blocks::{in_tasks, uninit};
use crate::flex::lanes::sums;
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::product::{Matrix, MatrixMut, Onto, product};
use crate::flex::tensor::{dims, in_order, tensor};
use crate::operation::Of;

type Given = Of<BackwardInputs, FlexTensor>;

/// Returns the gradients of queries, keys and values for the output's, and of the bias where it is wanted.
pub fn backward(given: Given, pass: &Backward) -> (Projections<FlexTensor>, Option<FlexTensor>) {
    with_number!(given.0.first().dtype(), T => backward_of::<T>(given, pass))
}

fn backward_of<T: Number>(given: Given, pass: &Backward) -> (Projections<FlexTensor>, Option<FlexTensor>) {
    let mut memory = given.0.by_ref().map(|input| {
        let dims = dims::<4>(input);
        (uninit::<T>(dims.iter().product()), dims)
    });
    let places = match &mut memory {
        Projections::Separate(memory) => memory.each_mut().map(|(memory, dims)| {
            let [places] = Places::cut(memory, *dims, [0]);
            places
        }),
        Projections::Packed((memory, dims), heads) => Places::cut(memory, *dims, heads.parts().map(|(first, _)| first)),
    };
    let of_bias = run(given, pass, places);
    // SAFETY: `run` has written queries, keys and values, which are all there is.
    let gradients = memory.map(|(memory, dims)| tensor(unsafe { memory.assume_init() }.into_vec(), dims));
    (gradients, of_bias)
}

/// Memory of a task.
struct Scratch<R> {
    /// Key, value, query and gradient of the output, where they are widened.
    wide: [Vec<R>; 4],
    /// The output, and its gradient, row after row.
    rows: [Vec<R>; 2],
    scores: Vec<R>,
    gradients: Vec<R>,
    of_query: Vec<R>,
    of_key: Vec<R>,
    of_value: Vec<R>,
}

impl<R> Default for Scratch<R> {
    fn default() -> Self {
        Self {
            wide: [const { Vec::new() }; 4],
            rows: [const { Vec::new() }; 2],
            scores: Vec::new(),
            gradients: Vec::new(),
            of_query: Vec::new(),
            of_key: Vec::new(),
            of_value: Vec::new(),
        }
    }
}

/// Inputs of all tasks.
struct Inputs<'a, T: Number> {
    query: Heads<'a, T>,
    key: Heads<'a, T>,
    value: Heads<'a, T>,
    output: Heads<'a, T>,
    gradient: Heads<'a, T>,
    /// `[batch, heads, queries]`
    log_sum_exp: &'a [T::Real],
    bias: Option<Bias<T::Real>>,
}

/// Which block of queries is worked on.
#[derive(Clone, Copy)]
struct BlockPlace {
    sample: usize,
    head: usize,
    kv_head: usize,
    /// The head's number among those of the key head.
    member: usize,
}

/// Writes the gradients of query, key and value, all of them. Returns that of the bias where it is wanted.
fn run<T: Number>(
    (inputs, bias, output, log_sum_exp, gradient): Given,
    pass: &Backward,
    [of_query, of_key, of_value]: [Places<'_, T>; 3],
) -> Option<FlexTensor> {
    let Backward {
        options,
        is_bias_wanted,
    } = pass;
    let (inputs, log_sum_exp) = (unpack(inputs), in_order(log_sum_exp));
    let [query, key, value] = inputs.each_ref().map(Heads::<T>::of);
    let ([batch, queries, heads, _], [_, keys, kv_heads, d_head]) = (query.dims, key.dims);
    let scale = T::Real::of(options.scale);
    let distances = (queries + keys).saturating_sub(1);
    let inputs = Inputs {
        query,
        key,
        value,
        output: Heads::of(&output),
        gradient: Heads::of(&gradient),
        log_sum_exp: log_sum_exp.storage(),
        bias: bias.map(|bias| Bias::new(in_order(bias).storage(), distances, keys, scale)),
    };
    let group = heads / kv_heads;
    let run = |task: usize| {
        let scratch = &mut Scratch::default();
        let [sample, kv_head] = [task / kv_heads, task % kv_heads];
        for sums in [&mut scratch.of_key, &mut scratch.of_value] {
            sums.clear();
            sums.resize(keys * d_head, T::Real::ZERO);
        }
        let bias = inputs.bias.as_ref().filter(|_| *is_bias_wanted);
        let mut of_bias = bias.map(|bias| bias.sums(group));
        for member in 0..group {
            let head = kv_head * group + member;
            let place = BlockPlace {
                sample,
                head,
                kv_head,
                member,
            };
            for first in (0..queries).step_by(QUERIES) {
                let block = Queries::new([sample, head, first], [queries, keys], options);
                inputs.add_block(place, &block, options, scratch, of_bias.as_mut());
                // SAFETY: no other task has this head of queries.
                unsafe { of_query.write([sample, head, first], &mut scratch.of_query, |_| T::Real::ONE) };
            }
        }
        // SAFETY: no other task has this head of keys.
        unsafe {
            of_key.write([sample, kv_head, 0], &mut scratch.of_key, |_| T::Real::ONE);
            of_value.write([sample, kv_head, 0], &mut scratch.of_value, |_| T::Real::ONE);
        }
        of_bias
    };
    let of_tasks = in_tasks(batch * kv_heads, run);
    is_bias_wanted.then(|| {
        let of_tasks: Vec<BiasSums<T::Real>> = of_tasks.into_iter().flatten().collect();
        let gradient = if of_tasks.is_empty() {
            vec![T::Real::ZERO; heads * distances]
        } else {
            BiasSums::gradient(&of_tasks, kv_heads, distances, scale)
        };
        tensor(gradient, [heads, distances])
    })
}

impl<T: Number> Inputs<'_, T> {
    /// Leaves the gradient of a block of queries in `scratch.of_query`, and adds those of the keys and values, and of
    /// the bias where it is wanted, to theirs.
    fn add_block(
        &self,
        place: BlockPlace,
        block: &Queries<'_>,
        options: &AttentionOptions,
        scratch: &mut Scratch<T::Real>,
        mut of_bias: Option<&mut BiasSums<T::Real>>,
    ) {
        let BlockPlace {
            sample,
            head,
            kv_head,
            member,
        } = place;
        let [_, queries, heads, d_head] = self.query.dims;
        let (count, width) = (block.range.len(), block.width());
        let scale = T::Real::of(options.scale);
        let [wide_key, wide_value, wide_query, wide_gradient] = &mut scratch.wide;

        let first = (sample * heads + head) * queries + block.range.start;
        let mut known = self.known(
            [sample, head],
            block,
            &self.log_sum_exp[first..first + count],
            &mut scratch.rows,
        );
        let query = self.query.rows(sample, head, block.range.clone()).widened(wide_query);
        let gradient = self
            .gradient
            .rows(sample, head, block.range.clone())
            .widened(wide_gradient);
        for buffer in [&mut scratch.scores, &mut scratch.gradients] {
            buffer.resize(KEYS * QUERIES, T::Real::ZERO);
        }
        scratch.of_query.clear();
        scratch.of_query.resize(count * d_head, T::Real::ZERO);

        let factors =
            |range: Range<usize>, key: Matrix<'_, T::Real>, value: Matrix<'_, T::Real>, blocks: [&mut [T::Real]; 2]| {
                let [scores, gradients] = blocks;
                let shape = [count, range.len()];
                let mut onto = Onto::Nothing;
                if let Some(bias) = &self.bias {
                    bias.write(scores, head, block, range);
                    onto = Onto::Sum;
                }
                product(query, key.transposed(), MatrixMut::new(scores, shape, [1, width]), onto);
                product(
                    gradient,
                    value.transposed(),
                    MatrixMut::new(gradients, shape, [1, width]),
                    Onto::Nothing,
                );
            };
        if T::dtype() != <T::Real as Element>::dtype() {
            // The rounded output is too far off where the gradients are the small rest of large terms.
            known.start();
            for range in block.key_blocks() {
                let scores = &mut scratch.scores[..range.len() * width];
                let gradients = &mut scratch.gradients[..range.len() * width];
                let key = self.key.rows(sample, kv_head, range.clone()).widened(wide_key);
                let value = self.value.rows(sample, kv_head, range.clone()).widened(wide_value);
                factors(range.clone(), key, value, [scores, gradients]);
                vectorised(
                    #[inline(always)]
                    || known.add([scores, gradients], block, range.clone(), scale),
                );
            }
            known.finish();
        }
        for range in block.key_blocks() {
            let shape = [count, range.len()];
            let scores = &mut scratch.scores[..range.len() * width];
            let gradients = &mut scratch.gradients[..range.len() * width];
            let key = self.key.rows(sample, kv_head, range.clone()).widened(wide_key);
            let value = self.value.rows(sample, kv_head, range.clone()).widened(wide_value);
            factors(range.clone(), key, value, [scores, gradients]);
            vectorised(
                #[inline(always)]
                || known.gradients([scores, gradients], block, range.clone(), scale),
            );
            if let Some(of_bias) = of_bias.as_deref_mut() {
                of_bias.add(gradients, member, block, range.clone());
            }
            let of_rows = range.start * d_head..range.end * d_head;
            let strides = [1, width as isize];
            let weights = Matrix::new(scores, 0, shape, strides);
            let into = MatrixMut::new(
                &mut scratch.of_value[of_rows.clone()],
                [range.len(), d_head],
                [d_head, 1],
            );
            product(weights.transposed(), gradient, into, Onto::Sum);
            let gradients = Matrix::new(gradients, 0, shape, strides);
            let into = MatrixMut::new(&mut scratch.of_key[of_rows], [range.len(), d_head], [d_head, 1]);
            product(gradients.transposed(), query, into, Onto::Sum);
            let into = MatrixMut::new(&mut scratch.of_query, [count, d_head], [d_head, 1]);
            product(gradients, key, into, Onto::Sum);
        }
    }

    fn known(
        &self,
        [sample, head]: [usize; 2],
        block: &Queries<'_>,
        log_sum_exp: &[T::Real],
        [outputs, gradients]: &mut [Vec<T::Real>; 2],
    ) -> Known<T::Real> {
        let d_head = self.query.dims[3];
        self.output.rows(sample, head, block.range.clone()).copy_rows(outputs);
        self.gradient
            .rows(sample, head, block.range.clone())
            .copy_rows(gradients);
        let mut known = Known::new();
        let rows = outputs.chunks_exact(d_head).zip(gradients.chunks_exact(d_head));
        for (lane, (&log_sum_exp, (output, gradient))) in log_sum_exp.iter().zip(rows).enumerate() {
            known.along[lane] = vectorised(
                #[inline(always)]
                || {
                    sums(
                        [output, gradient],
                        #[inline(always)]
                        |[output, gradient]| [output * gradient],
                    )[0]
                },
            );
            // Where all scores are −∞, their exponentials stay 0.
            if log_sum_exp != T::Real::NEG_INFINITY {
                known.log_sum_exp[lane] = log_sum_exp;
            }
        }
        known
    }
}
