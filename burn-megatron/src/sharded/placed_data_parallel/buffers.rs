//! What of a placed model is not trained, such as a batch norm's running statistics, to a checkpoint and back.

use burn::module::{ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorPrimitive};

use super::local_parameters::{Known, LocalParameter};
use super::training_backend::PlacedTrainingBackend;
use crate::sharded::ShardedTensor;
use crate::sharded::kind::Float;
use crate::sharded::mesh::Mesh;

/// Finds what is not trained, in the model's order.
pub(super) struct BufferTensors<'a, A: PlacedTrainingBackend> {
    pub(super) known: &'a Known,
    pub(super) tensors: Vec<ShardedTensor<A::Local, Float>>,
}

impl<A: PlacedTrainingBackend> ModuleVisitor<A> for BufferTensors<'_, A> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<A, D>>) {
        if !self.known.numbers.contains_key(&param.id) {
            self.tensors.push(A::float(param.val().into_primitive().tensor()));
        }
    }
}

/// Gives the model what is not trained.
pub(super) struct BufferWriter<'a, A: PlacedTrainingBackend> {
    pub(super) known: &'a Known,
    pub(super) mesh: &'a Mesh,
    pub(super) buffers: &'a [LocalParameter<A::LocalTraining>],
    pub(super) number: usize,
}

impl<A: PlacedTrainingBackend> ModuleMapper<A> for BufferWriter<'_, A> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<A, D>>) -> Param<Tensor<A, D>> {
        if self.known.numbers.contains_key(&param.id) {
            return param;
        }
        let (local, places) = (self.buffers[self.number].value(), self.known.buffer_places[self.number]);
        self.number += 1;
        param.map(|tensor| {
            let local = A::LocalTraining::inner(local);
            let placed = ShardedTensor::placed(local, tensor.shape(), Some(self.mesh.clone()), places);
            Tensor::from_primitive(TensorPrimitive::Float(A::from_float(placed)))
        })
    }
}
