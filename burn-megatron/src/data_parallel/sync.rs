//! Makes the replicas of a module equal, or checks that they are.
//!
//! Called by [`DistributedDataParallel`](super::DistributedDataParallel) when a module is wrapped, and for its buffers
//! in every step.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Tensor, TensorPrimitive};

use crate::collectives::{CollectiveBackend, CollectiveError, ProcessGroup};

/// What happens to a module's weights and buffers when it is wrapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum WeightSync {
    /// Every rank takes those of the first rank of its data-parallel group.
    #[default]
    Broadcast,
    /// Ranks compare theirs bit by bit; a difference is an error that names the parameter.
    Verify,
}

/// Which parameters of a module to send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Selection {
    All,
    /// Those that are not trained, such as a batch norm's running mean.
    Buffers,
}

/// Returns the module with the selected parameters of the group's first rank.
///
/// # Communication
/// One broadcast per selected parameter.
pub(super) fn broadcast_module<B: CollectiveBackend, M: Module<B>>(
    module: M,
    selection: Selection,
    group: &ProcessGroup,
) -> Result<M, CollectiveError> {
    if group.size() == 1 {
        return Ok(module);
    }
    let mut broadcaster = Broadcaster {
        selection,
        group,
        error: None,
    };
    let module = module.map(&mut broadcaster);
    match broadcaster.error {
        Some(error) => Err(error),
        None => Ok(module),
    }
}

struct Broadcaster<'a> {
    selection: Selection,
    group: &'a ProcessGroup,
    error: Option<CollectiveError>,
}

impl<B: CollectiveBackend> ModuleMapper<B> for Broadcaster<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let trained = tensor.is_require_grad();
        if self.error.is_some() || (trained && self.selection == Selection::Buffers) {
            return Param::from_mapped_value(id, tensor, mapper);
        }
        let primitive = tensor.clone().into_primitive().tensor();
        let tensor = match B::broadcast(primitive, 0, self.group) {
            Ok(received) => Tensor::from_primitive(TensorPrimitive::Float(received)).set_require_grad(trained),
            Err(error) => {
                self.error = Some(error);
                tensor
            }
        };
        Param::from_mapped_value(id, tensor, mapper)
    }
}
