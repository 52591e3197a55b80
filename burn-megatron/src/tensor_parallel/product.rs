//! The matrix products of the linear layers and of the output head, in the parameters' type.
//!
//! Fused products add the bias where the product is computed, and sum in f32 in 16 bits. burn's own are used as they
//! are, except in 16 bits where a factor or the result is a single row or column: those are computed in f32, because
//! burn's CPU backend rounds their sum to f16 after every term, so that 1 + 1 + … stalls at 2048. They are thin, so
//! that costs little.

use burn::tensor::module::linear as burn_linear;
use burn::tensor::{Tensor, backend::Backend};
use cubecl_kernels::linear::{LinearInputs, WeightOrder};
use cubecl_kernels::{KernelBackend, Kernels, linear};

use super::checked;
use crate::collectives::{CollectiveBackend, ProcessGroup, RegionEntry};
use crate::context::ParallelContext;
use crate::mappings::{copy_to_tensor_region, gather_from_sequence_region};
use crate::precision::{by_rows, is_half, narrow, widen};

/// Products whose input enters the tensor-parallel region.
#[derive(Clone, Debug)]
pub(super) struct ColumnParallelMatmul {
    kernels: Kernels,
    pub sequence_parallel: bool,
    /// Whether the gradient of the input is added up while that of the weight is computed.
    overlaps: bool,
    pub group: ProcessGroup,
}

impl ColumnParallelMatmul {
    pub fn new(context: &ParallelContext) -> Self {
        Self {
            kernels: context.kernels(),
            sequence_parallel: context.is_sequence_parallel(),
            overlaps: context.overlaps_tensor_reduce(),
            group: context.tensor_group().clone(),
        }
    }

    /// Returns `input · weight + bias`: [`affine`]'s shapes, except under sequence parallelism, where the input is
    /// `[tokens / tp, ..., d_input]`.
    pub fn affine<B: CollectiveBackend, const D: usize>(
        &self,
        input: Tensor<B, D>,
        weight: Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
    ) -> Tensor<B, D> {
        if self.is_one_operation() {
            by_rows(input, |rows| self.linear(rows, weight, bias, WeightOrder::InputFirst))
        } else {
            affine(self.kernels, self.entered(input), weight, bias)
        }
    }

    /// Returns `input · weight + bias` of an input that is in the region already: all tokens, its gradient a part.
    pub fn entered_affine<B: KernelBackend, const D: usize>(
        &self,
        input: Tensor<B, D>,
        weight: Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
    ) -> Tensor<B, D> {
        affine(self.kernels, input, weight, bias)
    }

    /// Returns `input · weightᵀ`.
    pub fn transposed<B: CollectiveBackend>(&self, input: Tensor<B, 2>, weight: Tensor<B, 2>) -> Tensor<B, 2> {
        if self.is_one_operation() {
            self.linear(input, weight, None, WeightOrder::OutputFirst)
        } else {
            product_transposed(self.kernels, self.entered(input), weight)
        }
    }

    fn is_one_operation(&self) -> bool {
        self.overlaps && self.kernels == Kernels::Fused && self.group.size() > 1
    }

    fn linear<B: CollectiveBackend>(
        &self,
        input: Tensor<B, 2>,
        weight: Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
        order: WeightOrder,
    ) -> Tensor<B, 2> {
        let inputs = checked(linear::checked(LinearInputs {
            input,
            weight,
            bias,
            order,
        }));
        let entry = if self.sequence_parallel {
            RegionEntry::GatherRows
        } else {
            RegionEntry::Copy
        };
        B::linear_into_region(inputs, entry, &self.group)
    }

    /// Returns an input as it enters the region: whole, its gradient summed over the group on the way back.
    pub fn entered<B: CollectiveBackend, const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        if self.sequence_parallel {
            gather_from_sequence_region(input, &self.group)
        } else {
            copy_to_tensor_region(input, &self.group)
        }
    }
}

/// Returns `input · weight + bias`.
///
/// # Shapes
/// - `input`: `[..., d_input]`; two dimensions in 16 bits
/// - `weight`: `[d_input, d_output]`
/// - output: `[..., d_output]`
pub(super) fn affine<B: KernelBackend, const D: usize>(
    kernels: Kernels,
    input: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, D> {
    if kernels == Kernels::Fused {
        return by_rows(input, |rows| checked(linear::linear(rows, weight, bias)));
    }
    let dtype = input.dtype();
    if is_widened(&input, &weight) {
        narrow(burn_linear(widen(input), widen(weight), bias.map(widen)), dtype)
    } else {
        burn_linear(input, weight, bias)
    }
}

/// Returns `input · weightᵀ`.
fn product_transposed<B: KernelBackend>(kernels: Kernels, input: Tensor<B, 2>, weight: Tensor<B, 2>) -> Tensor<B, 2> {
    if kernels == Kernels::Fused {
        return checked(linear::linear_transposed(input, weight));
    }
    let (dtype, weight) = (input.dtype(), weight.transpose());
    if is_widened(&input, &weight) {
        narrow(widen(input).matmul(widen(weight)), dtype)
    } else {
        input.matmul(weight)
    }
}

fn is_widened<B: Backend, const D: usize>(input: &Tensor<B, D>, weight: &Tensor<B, 2>) -> bool {
    is_half(input.dtype()) && (weight.dims().contains(&1) || input.dims()[0] == 1)
}
