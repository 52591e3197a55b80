//! Differentiable regions: how activations and their gradients move between tensor-parallel ranks.
//!
//! A region is a pair of movements, one for the activation in the forward pass and one for its gradient in the backward
//! pass, each the adjoint of the other.
//!
//! Regions keep the element type. Sums of f16 and bf16 are added up in f32 and rounded once in host memory; NCCL rounds
//! every partial sum, in an order of its own.
//!
//! | region                      | forward        | backward       |
//! |-----------------------------|----------------|----------------|
//! | [`copy_to_tensor_region`]   | keep           | all-reduce     |
//! | [`reduce_from_tensor_region`] | all-reduce   | keep           |
//! | [`scatter_to_tensor_region`] | split         | all-gather     |
//! | [`gather_from_tensor_region`] | all-gather   | split          |
//! | [`gather_from_sequence_region`] | all-gather | reduce-scatter |
//! | [`reduce_scatter_to_sequence_region`] | reduce-scatter | all-gather |

use burn::tensor::Tensor;

use crate::collectives::{Movement, ProcessGroup, move_differentiable, show_input};

/// Enters a tensor-parallel region: Megatron's `f`.
///
/// Every rank continues with the same input and computes a part of the output, so the parts of the gradient are summed.
///
/// # Communication
/// Forward: none. Backward: one all-reduce of the input's size over `group`.
///
/// # Panics
/// When the backward collective fails (see [`move_differentiable`]).
///
/// # Reference
/// Shoeybi et al. 2019, arXiv:1909.08053, section 3.
#[track_caller]
pub fn copy_to_tensor_region<const D: usize>(input: Tensor<D>, group: &ProcessGroup) -> Tensor<D> {
    show_input(|| "the way into a tensor-parallel region".to_owned(), &input, group);
    region(input, Movement::Keep, Movement::AllReduce, group)
}

/// Leaves a tensor-parallel region: Megatron's `g`.
///
/// Each rank holds a partial sum of the output; every rank needs the whole gradient, and has it.
///
/// # Communication
/// Forward: one all-reduce of the input's size over `group`. Backward: none.
///
/// # Panics
/// When the collective fails.
///
/// # Reference
/// Shoeybi et al. 2019, arXiv:1909.08053, section 3.
#[track_caller]
pub fn reduce_from_tensor_region<const D: usize>(input: Tensor<D>, group: &ProcessGroup) -> Tensor<D> {
    region(input, Movement::AllReduce, Movement::Keep, group)
}

/// Cuts an input that every rank holds along `dimension`; each rank continues with its own part.
///
/// Along dimension 0 this is also the way into a sequence-parallel region.
///
/// # Communication
/// Forward: none. Backward: one all-gather to the input's size over `group`.
///
/// # Panics
/// When the group's size does not divide the dimension, or the backward collective fails.
#[track_caller]
pub fn scatter_to_tensor_region<const D: usize>(input: Tensor<D>, dimension: usize, group: &ProcessGroup) -> Tensor<D> {
    show_input(|| "a tensor that each rank takes its part of".to_owned(), &input, group);
    region(
        input,
        Movement::Split { dimension },
        Movement::AllGather { dimension },
        group,
    )
}

/// Joins the parts of all ranks along `dimension`; every rank continues with the same tensor, and computes the same.
///
/// # Communication
/// Forward: one all-gather to the output's size over `group`. Backward: none.
///
/// # Panics
/// When the collective fails.
#[track_caller]
pub fn gather_from_tensor_region<const D: usize>(
    input: Tensor<D>,
    dimension: usize,
    group: &ProcessGroup,
) -> Tensor<D> {
    region(
        input,
        Movement::AllGather { dimension },
        Movement::Split { dimension },
        group,
    )
}

/// Joins the tokens of all ranks on the way from a sequence-parallel into a tensor-parallel region.
///
/// Every rank computes a different part of what follows, so the gradient is a partial sum on each.
///
/// # Communication
/// Forward: one all-gather to the output's size over `group`. Backward: one reduce-scatter of that size.
///
/// # Panics
/// When a collective fails.
///
/// # Reference
/// Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2.
#[track_caller]
pub fn gather_from_sequence_region<const D: usize>(input: Tensor<D>, group: &ProcessGroup) -> Tensor<D> {
    region(
        input,
        Movement::AllGather { dimension: 0 },
        Movement::ReduceScatter,
        group,
    )
}

/// Sums the partial outputs of all ranks and leaves each with its own tokens.
///
/// The way from a tensor-parallel into a sequence-parallel region.
///
/// # Communication
/// Forward: one reduce-scatter of the input's size over `group`. Backward: one all-gather to that size.
///
/// # Panics
/// When the group's size does not divide dimension 0, or a collective fails.
///
/// # Reference
/// Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2.
#[track_caller]
pub fn reduce_scatter_to_sequence_region<const D: usize>(input: Tensor<D>, group: &ProcessGroup) -> Tensor<D> {
    region(
        input,
        Movement::ReduceScatter,
        Movement::AllGather { dimension: 0 },
        group,
    )
}

#[track_caller]
fn region<const D: usize>(input: Tensor<D>, forward: Movement, backward: Movement, group: &ProcessGroup) -> Tensor<D> {
    if group.size() == 1 {
        return input;
    }
    move_differentiable(input, forward, backward, group)
}
