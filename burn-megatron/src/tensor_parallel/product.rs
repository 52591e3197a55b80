//! The matrix products of the linear layers and of the output head, in the parameters' type.
//!
//! Under sequence parallelism they communicate in chunks while they multiply, where the context says so.
//!
//! They add the bias where the product is computed, and sum in f32 in 16 bits.

use burn::tensor::Tensor;
use cubecl_kernels::linear;
use cubecl_kernels::linear::{LinearInputs, WeightOrder};

use super::checked;
use super::overlap::{OverlapSizes, chunks_of};
use crate::collectives::{ProcessGroup, RegionEntry, RowChunks, linear_into_region, linear_out_of_region};
use crate::context::{ParallelContext, TensorOverlap};
use crate::mappings::{
    copy_to_tensor_region, gather_from_sequence_region, reduce_from_tensor_region, reduce_scatter_to_sequence_region,
};
use crate::precision::by_rows;

/// Products whose input enters the tensor-parallel region.
#[derive(Clone, Debug)]
pub(super) struct ColumnParallelMatmul {
    pub sequence_parallel: bool,
    /// Says that the gradient of the input is added up while that of the weight is computed.
    overlaps: bool,
    overlap: TensorOverlap,
    pub group: ProcessGroup,
}

/// Products of which each rank computes one term of a sum, and whose output leaves the tensor-parallel region.
#[derive(Clone, Debug)]
pub(super) struct RowParallelMatmul {
    sequence_parallel: bool,
    overlap: TensorOverlap,
    pub group: ProcessGroup,
}

impl ColumnParallelMatmul {
    pub fn new(context: &ParallelContext) -> Self {
        Self {
            sequence_parallel: context.is_sequence_parallel(),
            overlaps: context.overlaps_tensor_reduce(),
            overlap: context.tensor_overlap(),
            group: context.tensor_group().clone(),
        }
    }

    /// Returns the same product of whole inputs, without sequence parallelism.
    pub fn with_whole_tokens(self) -> Self {
        Self {
            sequence_parallel: false,
            ..self
        }
    }

    /// Returns `input · weight + bias`: [`affine`]'s shapes, except under sequence parallelism, where the input is
    /// `[tokens / tp, ..., d_input]`.
    pub fn affine<const D: usize>(&self, input: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
        if self.is_one_operation() {
            by_rows(input, |rows| self.linear(rows, weight, bias, WeightOrder::InputFirst))
        } else {
            affine(self.entered(input), weight, bias)
        }
    }

    /// Returns `input · weightᵀ` of an input that is in the region already.
    pub fn entered_transposed(&self, input: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
        product_transposed(input, weight)
    }

    /// Returns `input · weightᵀ`.
    pub fn transposed(&self, input: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
        if self.is_one_operation() {
            self.linear(input, weight, None, WeightOrder::OutputFirst)
        } else {
            product_transposed(self.entered(input), weight)
        }
    }

    fn is_one_operation(&self) -> bool {
        let is_chunked = self.sequence_parallel && self.overlap != TensorOverlap::Off;
        (self.overlaps || is_chunked) && self.group.size() > 1
    }

    fn linear(&self, input: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>, order: WeightOrder) -> Tensor<2> {
        let inputs = LinearInputs {
            input,
            weight,
            bias,
            order,
        };
        let inputs = checked(inputs.checked());
        let entry = if self.sequence_parallel {
            RegionEntry::GatherRows {
                chunks: self.chunks(&inputs),
            }
        } else {
            RegionEntry::Copy
        };
        linear_into_region(inputs, entry, &self.group)
    }

    fn chunks(&self, inputs: &LinearInputs) -> RowChunks {
        let [d_input, d_output] = columns(inputs);
        let sizes = OverlapSizes {
            ranks: self.group.size(),
            rows: inputs.input.dims()[0],
            d_input,
            d_output,
            communicated: d_input,
            element_bytes: inputs.input.dtype().size(),
        };
        chunks_of(self.overlap, &inputs.input, sizes)
    }

    /// Returns an input as it enters the region: whole, its gradient summed over the group on the way back.
    pub fn entered<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        if self.sequence_parallel {
            gather_from_sequence_region(input, &self.group)
        } else {
            copy_to_tensor_region(input, &self.group)
        }
    }
}

impl RowParallelMatmul {
    pub fn new(context: &ParallelContext) -> Self {
        Self {
            sequence_parallel: context.is_sequence_parallel(),
            overlap: context.tensor_overlap(),
            group: context.tensor_group().clone(),
        }
    }

    /// Returns the same product with whole outputs, without sequence parallelism.
    pub fn with_whole_tokens(self) -> Self {
        Self {
            sequence_parallel: false,
            ..self
        }
    }

    /// Returns the sum over the ranks of `input · weight`: [`affine`]'s shapes, except under sequence parallelism,
    /// where the output is `[tokens / tp, ..., d_output]`.
    pub fn summed<const D: usize>(&self, input: Tensor<D>, weight: Tensor<2>) -> Tensor<D> {
        if let Some(chunks) = self.chunks(&input, &weight) {
            return by_rows(input, |input| {
                let inputs = LinearInputs {
                    input,
                    weight,
                    bias: None,
                    order: WeightOrder::InputFirst,
                };
                let inputs = checked(inputs.checked());
                linear_out_of_region(inputs, chunks, &self.group)
            });
        }
        self.sum(affine(input, weight, None))
    }

    /// Returns the sum of two such sums, of pairs of an input and a weight, by one collective; in chunks by two.
    pub fn summed_with(
        &self,
        [(input, weight), (other_input, other_weight)]: [(Tensor<2>, Tensor<2>); 2],
    ) -> Tensor<2> {
        let is_chunked = self.chunks(&input, &weight).is_some() || self.chunks(&other_input, &other_weight).is_some();
        if is_chunked {
            return self.summed(input, weight) + self.summed(other_input, other_weight);
        }
        let part = affine(input, weight, None) + affine(other_input, other_weight, None);
        self.sum(part)
    }

    /// Returns the sum over the ranks of their terms, `[tokens, ..., d_output]`, as [`summed`](Self::summed) does.
    pub fn sum<const D: usize>(&self, part: Tensor<D>) -> Tensor<D> {
        if self.sequence_parallel {
            reduce_scatter_to_sequence_region(part, &self.group)
        } else {
            reduce_from_tensor_region(part, &self.group)
        }
    }

    /// The chunks of this rank's rows of the output, if there are several.
    fn chunks<const D: usize>(&self, input: &Tensor<D>, weight: &Tensor<2>) -> Option<RowChunks> {
        let (ranks, tokens, [d_input, d_output]) = (self.group.size(), input.dims()[0], weight.dims());
        let is_possible = self.sequence_parallel && ranks > 1;
        if !is_possible || !tokens.is_multiple_of(ranks) {
            return None;
        }
        let rows_of_each: usize = input.dims()[1..D - 1].iter().product();
        let sizes = OverlapSizes {
            ranks,
            rows: tokens / ranks * rows_of_each,
            d_input,
            d_output,
            communicated: d_output,
            element_bytes: input.dtype().size(),
        };
        let chunks = chunks_of(self.overlap, input, sizes);
        (!chunks.is_whole()).then_some(chunks)
    }
}

/// The columns of input and output.
fn columns(inputs: &LinearInputs) -> [usize; 2] {
    let [first, second] = inputs.weight.dims();
    match inputs.order {
        WeightOrder::InputFirst => [first, second],
        WeightOrder::OutputFirst => [second, first],
    }
}

/// Returns `input · weight + bias`.
///
/// # Shapes
/// - `input`: `[..., d_input]`; two dimensions in 16 bits
/// - `weight`: `[d_input, d_output]`
/// - output: `[..., d_output]`
pub(super) fn affine<const D: usize>(input: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    by_rows(input, |rows| checked(linear::linear(rows, weight, bias)))
}

/// Returns `input · weightᵀ`.
fn product_transposed(input: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    checked(linear::linear_transposed(input, weight))
}
