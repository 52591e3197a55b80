//! `Region`: how the tokens of a converted composite come in and go out; and `TokenPass`, one forward pass of it.

use burn::tensor::Tensor;

use super::TokenContext;
use super::conversion::module_name;
use crate::collectives::ProcessGroup;
use crate::context::ParameterScope;
use crate::mappings::{
    copy_to_tensor_region, gather_from_sequence_region, gather_from_tensor_region, scatter_to_tensor_region,
};
use crate::random::StepCoordinates;
use crate::topology::nearest_multiples;

/// The tensor-parallel region of a composite: burn's `[batch, seq, d_model]` outside, `[tokens, d_model]` inside.
///
/// Under sequence parallelism each rank holds its own tokens inside; outside, every rank holds all of them.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// The composite's name, in messages.
    module: String,
    group: ProcessGroup,
    sequence_parallel: bool,
}

impl Region {
    /// Returns the region of the composite of this scope, a module of this kind.
    pub fn new(scope: &ParameterScope, kind: &str) -> Self {
        Self {
            module: module_name(scope, kind),
            group: scope.context().tensor_group().clone(),
            sequence_parallel: scope.context().is_sequence_parallel(),
        }
    }

    /// Returns a forward pass of tokens `[batch, seq, d_model]`; `step` says where they are in the run, if anything is
    /// dropped.
    ///
    /// # Panics
    /// As [`check_tokens`](Self::check_tokens).
    #[track_caller]
    pub fn pass(&self, dims: [usize; 3], step: Option<StepCoordinates>) -> TokenPass {
        self.check_tokens(dims);
        let [batch, seq, _] = dims;
        let sequence_group = self.sequence_parallel.then_some(&self.group);
        TokenPass {
            batch,
            places: step.map(|step| TokenContext::new(&step, seq, sequence_group)),
        }
    }

    /// `[batch, seq, d_model]` to this rank's `[tokens, d_model]`. Backward: one all-gather under sequence parallelism.
    #[track_caller]
    pub fn split(&self, input: Tensor<3>) -> Tensor<2> {
        let input = rows(input);
        if self.sequence_parallel {
            scatter_to_tensor_region(input, 0, &self.group)
        } else {
            input
        }
    }

    /// This rank's `[tokens, d_model]` to the whole `[batch, seq, d_model]`. Forward: one all-gather under sequence
    /// parallelism.
    pub fn join(&self, output: Tensor<2>, batch: usize) -> Tensor<3> {
        let output = if self.sequence_parallel {
            gather_from_tensor_region(output, 0, &self.group)
        } else {
            output
        };
        samples(output, batch)
    }

    /// This rank's tokens to all, of which each rank then computes its own part of the features: every layer's entry.
    pub fn enter(&self, input: Tensor<2>) -> Tensor<2> {
        if self.sequence_parallel {
            gather_from_sequence_region(input, &self.group)
        } else {
            copy_to_tensor_region(input, &self.group)
        }
    }

    /// The same for `[batch, seq, d_model]` that every rank holds whole.
    #[track_caller]
    pub fn enter_whole(&self, input: Tensor<3>) -> Tensor<2> {
        copy_to_tensor_region(rows(input), &self.group)
    }

    /// Checks that sequence parallelism can cut the tokens.
    ///
    /// # Panics
    /// When it cannot.
    #[track_caller]
    pub fn check_tokens(&self, [batch, seq, _]: [usize; 3]) {
        let (module, tokens, ranks) = (&self.module, batch * seq, self.group.size());
        assert!(
            !self.sequence_parallel || tokens.is_multiple_of(ranks),
            "{module}: sequence parallelism cuts the tokens, batch * seq = {batch} * {seq} = {tokens}, into {ranks} \
             equal parts; the nearest valid numbers of tokens are {}",
            nearest_multiples(tokens, ranks)
        );
    }
}

/// What the layers of a composite must know of a forward pass.
#[derive(Clone, Debug)]
pub(super) struct TokenPass {
    /// The number of samples.
    pub batch: usize,
    /// Where the tokens are in the run; `None` if nothing is dropped.
    pub places: Option<TokenContext>,
}

impl TokenPass {
    /// The places of all tokens, for what happens inside tensor-parallel regions.
    pub fn all(&self) -> Option<&StepCoordinates> {
        self.places.as_ref().map(|places| &places.all)
    }

    /// The places of this rank's tokens, for what happens between them.
    pub fn local(&self) -> Option<&StepCoordinates> {
        self.places.as_ref().map(|places| &places.local)
    }
}

/// `[batch, seq, n]` to `[batch * seq, n]`.
pub(super) fn rows(input: Tensor<3>) -> Tensor<2> {
    let [batch, seq, n] = input.dims();
    input.reshape([batch * seq, n])
}

/// `[batch * seq, n]` to `[batch, seq, n]`.
pub(super) fn samples(input: Tensor<2>, batch: usize) -> Tensor<3> {
    let [tokens, n] = input.dims();
    input.reshape([batch, tokens / batch.max(1), n])
}
