//! [`Boundary`]: how activations and gradients cross from stage to stage.
//!
//! Each direction has a process group of its own, so that each is matched in its own order. Where all tensor ranks hold
//! the same activation, each sends its part of it, and the receiving tensor ranks put the parts together: what crosses,
//! often from node to node, crosses once.
//!
//! # Reference
//! Narayanan et al. 2021, arXiv:2104.04473, section 4.1: the scatter/gather optimization.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, TensorMetadata};

use super::schedule::Direction;
use crate::collectives::{CollectiveBackend, CollectiveError, Movement, Pending, PendingTensor, ProcessGroup};
use crate::context::ParallelContext;

/// The ways out of a stage and into it.
#[derive(Clone, Debug)]
pub(super) struct Boundary {
    forward: ProcessGroup,
    backward: ProcessGroup,
    /// The tensor ranks, where all hold the same activation.
    spread: Option<ProcessGroup>,
}

/// A tensor that is on its way here.
pub(super) struct Incoming<B: CollectiveBackend> {
    /// The whole tensor, or this rank's part of it, flat.
    pub(super) pending: PendingTensor<B>,
    shape: Shape,
}

impl Boundary {
    /// Returns the boundary of this rank's stage.
    pub(super) fn new(context: &ParallelContext) -> Self {
        let tensor = context.tensor_group();
        let is_replicated = tensor.size() > 1 && !context.is_sequence_parallel();
        Self {
            forward: context.pipeline_group().clone(),
            backward: context.pipeline_backward_group().clone(),
            spread: is_replicated.then(|| tensor.clone()),
        }
    }

    /// Returns what this rank sends of a tensor.
    pub(super) fn outgoing<B: CollectiveBackend>(
        &self,
        tensor: FloatTensor<B>,
    ) -> Result<FloatTensor<B>, CollectiveError> {
        match &self.spread {
            None => Ok(tensor),
            Some(group) => part::<B>(tensor, group),
        }
    }

    /// Starts to send what is [`outgoing`](Self::outgoing) to a stage.
    pub(super) fn send_start<B: CollectiveBackend>(
        &self,
        outgoing: FloatTensor<B>,
        (direction, stage): (Direction, usize),
        label: &str,
    ) -> Pending<()> {
        B::send_start(outgoing, stage, &self.group(direction).labelled(label))
    }

    /// Starts to receive a tensor of a shape from a stage.
    pub(super) fn recv_start<B: CollectiveBackend>(
        &self,
        shape: Shape,
        dtype: DType,
        device: &B::Device,
        (direction, stage): (Direction, usize),
        label: &str,
    ) -> Incoming<B> {
        let here = match &self.spread {
            None => shape.clone(),
            Some(group) => Shape::new([shape.num_elements().div_ceil(group.size())]),
        };
        let group = self.group(direction).labelled(label);
        Incoming {
            pending: B::recv_start(here, dtype, device, stage, &group),
            shape,
        }
    }

    /// Waits for a tensor and makes it whole.
    ///
    /// # Communication
    /// Where all tensor ranks hold the same, one all-gather of the tensor's size over the tensor group.
    pub(super) fn finish<B: CollectiveBackend>(
        &self,
        incoming: Incoming<B>,
    ) -> Result<FloatTensor<B>, CollectiveError> {
        let tensor = incoming.pending.wait()?;
        match &self.spread {
            None => Ok(tensor),
            Some(group) => whole::<B>(tensor, incoming.shape, group),
        }
    }

    /// The number of stages of this pipeline.
    pub(super) fn num_stages(&self) -> usize {
        self.forward.size()
    }

    /// The global rank of a stage of this pipeline.
    pub(super) fn rank_of(&self, stage: usize) -> usize {
        self.forward.ranks()[stage]
    }

    fn group(&self, direction: Direction) -> &ProcessGroup {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Backward => &self.backward,
        }
    }
}

/// This rank's part of a tensor, flat; the last parts are filled up with zeros.
fn part<B: CollectiveBackend>(tensor: FloatTensor<B>, group: &ProcessGroup) -> Result<FloatTensor<B>, CollectiveError> {
    let len = tensor.shape().num_elements();
    let padded = len.next_multiple_of(group.size());
    let mut flat = B::float_reshape(tensor, Shape::new([len]));
    if padded > len {
        let device = B::float_device(&flat);
        let zeros = B::float_zeros(Shape::new([padded - len]), &device, flat.dtype().into());
        flat = B::float_cat(vec![flat, zeros], 0);
    }
    B::move_data(flat, Movement::Split { dimension: 0 }, group)
}

/// A tensor from the parts of all ranks.
fn whole<B: CollectiveBackend>(
    part: FloatTensor<B>,
    shape: Shape,
    group: &ProcessGroup,
) -> Result<FloatTensor<B>, CollectiveError> {
    let padded = B::move_data(part, Movement::AllGather { dimension: 0 }, group)?;
    let len = shape.num_elements();
    let flat = if padded.shape().num_elements() == len {
        padded
    } else {
        B::float_slice(padded, &[(0..len).into()])
    };
    Ok(B::float_reshape(flat, shape))
}
