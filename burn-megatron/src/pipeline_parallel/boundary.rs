//! [`Boundary`]: the way of activations and gradients from stage to stage.
//!
//! Each direction has a process group of its own, so that each is matched in its own order. Where all tensor ranks hold
//! the same activation, each sends its part of it, and the receiving tensor ranks put the parts together: what crosses,
//! often from node to node, crosses once.
//!
//! # Reference
//! Narayanan et al. 2021, arXiv:2104.04473, section 4.1: the scatter/gather optimization.

use burn::backend::{Dispatch, DispatchTensor};
use burn::tensor::{DType, Device, Shape, Tensor};

use super::schedule::Direction;
use crate::collectives::{
    CollectiveBackend, CollectiveError, Movement, Pending, PendingTensor, ProcessGroup, move_data,
};
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
pub(super) struct Incoming {
    /// The whole tensor, or this rank's part of it, flat.
    pub(super) pending: PendingTensor,
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
    pub(super) fn outgoing<const D: usize>(&self, tensor: Tensor<D>) -> Result<DispatchTensor, CollectiveError> {
        match &self.spread {
            None => Ok(tensor.into_dispatch()),
            Some(group) => Ok(part(tensor, group)?.into_dispatch()),
        }
    }

    /// Starts to send what is [`outgoing`](Self::outgoing) to a stage.
    pub(super) fn send_start(
        &self,
        outgoing: DispatchTensor,
        (direction, stage): (Direction, usize),
        label: &str,
    ) -> Pending<()> {
        Dispatch::send_start(outgoing, stage, &self.group(direction).labelled(label))
    }

    /// Starts to receive a tensor of a shape from a stage.
    pub(super) fn recv_start(
        &self,
        shape: Shape,
        dtype: DType,
        device: &Device,
        (direction, stage): (Direction, usize),
        label: &str,
    ) -> Incoming {
        let here = match &self.spread {
            None => shape.clone(),
            Some(group) => Shape::new([shape.num_elements().div_ceil(group.size())]),
        };
        let group = self.group(direction).labelled(label);
        Incoming {
            pending: Dispatch::recv_start(here, dtype, device.as_dispatch(), stage, &group),
            shape,
        }
    }

    /// Waits for a tensor and makes it whole.
    ///
    /// # Communication
    /// Where all tensor ranks hold the same, one all-gather of the tensor's size over the tensor group.
    pub(super) fn finish<const D: usize>(&self, incoming: Incoming) -> Result<Tensor<D>, CollectiveError> {
        match &self.spread {
            None => incoming.pending.tensor(),
            Some(group) => whole(incoming.pending.tensor()?, incoming.shape, group),
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
fn part<const D: usize>(tensor: Tensor<D>, group: &ProcessGroup) -> Result<Tensor<1>, CollectiveError> {
    let len = tensor.shape().num_elements();
    let padded = len.next_multiple_of(group.size());
    let (device, dtype) = (tensor.device(), tensor.dtype());
    let mut flat = tensor.flatten::<1>(0, D - 1);
    if padded > len {
        let zeros = Tensor::zeros([padded - len], (&device, dtype));
        flat = Tensor::cat(vec![flat, zeros], 0);
    }
    move_data(flat, Movement::Split { dimension: 0 }, group)
}

/// A tensor from the parts of all ranks.
fn whole<const D: usize>(part: Tensor<1>, shape: Shape, group: &ProcessGroup) -> Result<Tensor<D>, CollectiveError> {
    let padded = move_data(part, Movement::AllGather { dimension: 0 }, group)?;
    let len = shape.num_elements();
    let flat = if padded.shape().num_elements() == len {
        padded
    } else {
        padded.slice(0..len)
    };
    Ok(flat.reshape(shape))
}
