//! `BufferSync`: keeps what is not trained but changes, such as a batch norm's running mean, equal on all ranks.

use burn::module::Module;

use super::replica_check::hash_parameters;
use super::sync::broadcast_module;
use crate::collectives::{CollectiveError, ProcessGroup, ReduceOp};
use crate::parameters::{ParameterEntry, settle_running_states};

/// Which float parameters of a module are buffers.
#[derive(Debug)]
pub(in crate::data_parallel) enum BufferSync {
    /// Not known before a step has been made: the hash of each parameter at wrapping, none for a trained one.
    Unknown(Vec<Option<i64>>),
    /// By parameter of the module: not trained, and changed by the first step on some rank. The others are frozen, and
    /// a frozen base need not travel in every step.
    Known(Vec<bool>),
}

impl BufferSync {
    /// Looks at a module that has just been made equal on all ranks, and has these parameters.
    pub(in crate::data_parallel) fn new<M: Module>(module: &M, parameters: &[ParameterEntry]) -> Self {
        let untrained: Vec<bool> = parameters.iter().map(|p| !p.requires_grad).collect();
        if untrained.contains(&true) {
            BufferSync::Unknown(untrained_hashes(module, &untrained))
        } else {
            BufferSync::Known(vec![false; untrained.len()])
        }
    }

    /// Returns whether nothing is kept equal: all is trained or frozen.
    pub(in crate::data_parallel) fn is_idle(&self) -> bool {
        matches!(self, BufferSync::Known(live) if !live.contains(&true))
    }

    /// Returns the module with the buffers of the group's first rank.
    ///
    /// # Communication
    /// At the start of the second step, one all-reduce of 4 bytes per parameter; from then on one broadcast per buffer.
    pub(in crate::data_parallel) fn sync<M: Module>(
        &mut self,
        module: &M,
        group: &ProcessGroup,
    ) -> Result<M, CollectiveError> {
        if self.is_idle() {
            return Ok(module.clone());
        }
        settle_running_states(module);
        if let BufferSync::Unknown(before) = self {
            let untrained: Vec<bool> = before.iter().map(Option::is_some).collect();
            let now = untrained_hashes(module, &untrained);
            let mut changed: Vec<i32> = before.iter().zip(&now).map(|(a, b)| i32::from(a != b)).collect();
            group.all_reduce(&mut changed, ReduceOp::Max)?;
            if !changed.contains(&1) {
                // The first step is yet to come.
                return Ok(module.clone());
            }
            *self = BufferSync::Known(changed.iter().map(|&c| c == 1).collect());
        }
        match self {
            BufferSync::Known(live) => broadcast_module(module.clone(), |index| live[index], group),
            BufferSync::Unknown(_) => unreachable!("it has just become known"),
        }
    }
}

fn untrained_hashes<M: Module>(module: &M, untrained: &[bool]) -> Vec<Option<i64>> {
    let hashes = hash_parameters(module, |index| untrained[index]);
    let mut hashes = hashes.into_iter();
    untrained
        .iter()
        .map(|&is_untrained| is_untrained.then(|| hashes.next().unwrap_or_default()))
        .collect()
}
