//! What of a placed model is not trained, such as a batch norm's running statistics, to a checkpoint and back.

use burn::module::{ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

use super::local_parameters::{Known, LocalParameter};
use crate::sharded::mesh::Mesh;
use crate::sharded::slot::{Placing, SlotTensor, closed, opened, or_panic};

/// Finds what is not trained, in the model's order.
pub(super) struct BufferTensors<'a> {
    pub(super) known: &'a Known,
    pub(super) tensors: Vec<SlotTensor>,
}

impl ModuleVisitor for BufferTensors<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.known.numbers.contains_key(&param.id) {
            self.tensors.push(or_panic(opened(param.val())).0);
        }
    }
}

/// Gives the model what is not trained.
pub(super) struct BufferWriter<'a> {
    pub(super) known: &'a Known,
    pub(super) mesh: &'a Mesh,
    pub(super) placing: &'a dyn Placing,
    pub(super) buffers: &'a [LocalParameter],
    pub(super) number: usize,
}

impl ModuleMapper for BufferWriter<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.known.numbers.contains_key(&param.id) {
            return param;
        }
        let (part, places) = (self.buffers[self.number].value(), self.known.buffer_places[self.number]);
        self.number += 1;
        param.map(|tensor| {
            let placed = self.placing.of_part(part, tensor.shape(), self.mesh, places);
            closed(placed, &tensor)
        })
    }
}
