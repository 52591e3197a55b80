//! Makes the replicas of a module equal, or checks that they are.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;

use crate::collectives::{self, CollectiveError, ProcessGroup, TensorCall};

/// What happens to a module's weights and buffers when it is wrapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum WeightSync {
    /// Every rank takes those of the first rank of its data-parallel group.
    #[default]
    Broadcast,
    /// Ranks compare theirs bit by bit; a difference is an error that names the parameter.
    Verify,
}

/// Returns the module with those parameters of the group's first rank whose number in the module's order is selected.
///
/// # Communication
/// One broadcast per selected parameter.
pub(in crate::data_parallel) fn broadcast_module<M: Module>(
    module: M,
    is_selected: impl Fn(usize) -> bool,
    group: &ProcessGroup,
) -> Result<M, CollectiveError> {
    if group.size() == 1 {
        return Ok(module);
    }
    let mut broadcaster = Broadcaster {
        is_selected: &is_selected,
        next: 0,
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
    is_selected: &'a dyn Fn(usize) -> bool,
    next: usize,
    group: &'a ProcessGroup,
    error: Option<CollectiveError>,
}

impl ModuleMapper for Broadcaster<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let number = self.next;
        self.next += 1;
        if self.error.is_some() || !(self.is_selected)(number) {
            return param;
        }
        let (id, tensor, mapper) = param.consume();
        let trained = tensor.is_require_grad();
        let tensor = match collectives::run(tensor.clone(), TensorCall::Broadcast { root: 0 }, self.group) {
            Ok(received) => received.set_require_grad(trained),
            Err(error) => {
                self.error = Some(error);
                tensor
            }
        };
        Param::from_mapped_value(id, tensor, mapper)
    }
}
