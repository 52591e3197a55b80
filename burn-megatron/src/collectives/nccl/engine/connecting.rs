//! How the ranks of a group's communicators come together: at the first call of each, or those of several groups at
//! once.

use std::sync::Arc;

use super::super::communicator::{Communicator, Refusal};
use super::super::ctas::Ctas;
use super::super::library::{Status, UniqueId};
use super::super::order::{Context, StreamHandle, driver_message};
use super::super::place::context_of;
use super::{Ends, Nccl, of};
use crate::collectives::{CallDescriptor, CollectiveError, ElementType, Engine, Operation, ProcessGroup};

/// The exchange of a communicator's id, where no call of the group's is the reason for it.
const EXCHANGE: CallDescriptor = CallDescriptor {
    sequence: 0,
    operation: Operation::Broadcast,
    element_type: ElementType::U8,
    length: UniqueId::BYTES,
    peer: Some(0),
    reduce_op: None,
    buffer: None,
};

/// Connects the groups that have NCCL, for collectives, all at once: it takes as long as the slowest of them. A group
/// that is left out is connected by its first collective.
///
/// # Communication
/// A broadcast of 128 bytes over each group, and NCCL's own. Collective over each group, which come in the same order
/// on all ranks.
///
/// # Errors
/// When the ranks do not come together, or NCCL or the driver refuses.
pub(crate) fn connect_all(groups: &[&ProcessGroup]) -> Result<(), CollectiveError> {
    let engines = groups.iter().filter_map(|group| Some((*group, of(group)?)));
    let mut exchanged = Vec::new();
    for (group, nccl) in
        engines.filter(|(group, nccl)| group.size() > 1 && !nccl.communicators.lock().contains_key(&Ends::All))
    {
        let mut id = nccl.new_id(group.rank(), &EXCHANGE)?;
        group.broadcast(&mut id.0, 0)?;
        exchanged.push((nccl, id));
    }
    let mut connecting = Vec::new();
    for (nccl, id) in exchanged {
        let failed = |what| nccl.cannot_connect(&EXCHANGE, Refusal::Reported(what));
        let context = context_of(&nccl.device, &nccl.check_wait()).map_err(failed)?;
        context.make_current().map_err(failed)?;
        connecting.push((nccl, nccl.begin(Ends::All, id, &EXCHANGE, context)?));
    }
    for (nccl, communicator) in connecting {
        nccl.settle(&communicator, &EXCHANGE)?;
        nccl.communicators.lock().insert(Ends::All, Arc::new(communicator));
    }
    Ok(())
}

impl Nccl {
    /// Returns the communicator of a call, connecting it if the call is its first.
    pub(super) fn communicator(
        &self,
        call: &CallDescriptor,
        host: &dyn Engine,
        context: Context,
    ) -> Result<Arc<Communicator>, CollectiveError> {
        let me = self.health.label.rank;
        let ends = match (call.operation, call.peer) {
            (Operation::Send, Some(peer)) => Ends::Pair { from: me, to: peer },
            (Operation::Recv, Some(peer)) => Ends::Pair { from: peer, to: me },
            _ => Ends::All,
        };
        // Not locked while the ranks come together: another lane may be at the same.
        let known = self.communicators.lock().get(&ends).cloned();
        if let Some(communicator) = known {
            return Ok(communicator);
        }
        let communicator = Arc::new(self.connect(ends, call, host, context)?);
        self.communicators.lock().insert(ends, communicator.clone());
        Ok(communicator)
    }

    /// Connects a communicator: its first rank makes an id, which goes over the engine for host memory.
    fn connect(
        &self,
        ends: Ends,
        call: &CallDescriptor,
        host: &dyn Engine,
        context: Context,
    ) -> Result<Communicator, CollectiveError> {
        let rank = self.size_and_rank(ends).1;
        let mut id = self.new_id(rank, call)?;
        // In the place of the call among those of its lane.
        let exchange = CallDescriptor {
            element_type: ElementType::U8,
            length: UniqueId::BYTES,
            reduce_op: None,
            ..*call
        };
        let exchanged = match ends {
            Ends::All => {
                let exchange = CallDescriptor {
                    operation: Operation::Broadcast,
                    peer: Some(0),
                    ..exchange
                };
                host.broadcast(&exchange, &mut id.0)
            }
            Ends::Pair { .. } if rank == 0 => host.send(&exchange, &id.0),
            Ends::Pair { .. } => host.recv(&exchange, &mut id.0),
        };
        let label = &self.health.label;
        // The caller knows of no such message.
        exchanged.map_err(|error| error.of_whole_group(label.to_string(), label.describe(call)))?;
        let communicator = self.begin(ends, id, call, context)?;
        self.settle(&communicator, call)?;
        Ok(communicator)
    }

    /// Returns how many ranks a communicator has, and which of them this is.
    fn size_and_rank(&self, ends: Ends) -> (usize, usize) {
        let me = self.health.label.rank;
        match ends {
            Ends::All => (self.health.label.size(), me),
            Ends::Pair { to, .. } => (2, usize::from(me == to)),
        }
    }

    /// Returns an id that the first rank makes; the others have nothing yet.
    fn new_id(&self, rank: usize, call: &CallDescriptor) -> Result<UniqueId, CollectiveError> {
        let mut id = UniqueId([0; UniqueId::BYTES]);
        if rank == 0 {
            // SAFETY: writes the id.
            let status = unsafe { (self.library.get_unique_id)(&raw mut id) };
            if status != Status::SUCCESS {
                let what = self.library.describe(status, std::ptr::null_mut());
                return Err(self.cannot_connect(call, Refusal::Reported(what)));
            }
        }
        Ok(id)
    }

    /// Begins to connect a communicator.
    fn begin(
        &self,
        ends: Ends,
        id: UniqueId,
        call: &CallDescriptor,
        context: Context,
    ) -> Result<Communicator, CollectiveError> {
        let failed = |refusal| self.cannot_connect(call, refusal);
        let stream = StreamHandle::create_high_priority();
        let stream = stream.map_err(|error| failed(Refusal::Reported(driver_message(error))))?;
        let (size, rank) = self.size_and_rank(ends);
        let label = &self.health.label;
        let ctas = match ends {
            Ends::All => Ctas::of_group(&label.name, self.device.index),
            Ends::Pair { .. } => Ctas::of_transfers(self.device.index),
        };
        let communicator =
            Communicator::begin(self.library, id, size, rank, (context, stream), ctas).map_err(failed)?;
        let ranks = match ends {
            Ends::All => label.ranks.to_vec(),
            Ends::Pair { from, to } => vec![label.ranks[from], label.ranks[to]],
        };
        tracing::info!(
            version = self.library.version_text(),
            group = %label.name,
            ?ranks,
            rank = label.ranks[label.rank],
            device = self.device.index,
            "NCCL connects ranks"
        );
        Ok(communicator)
    }

    /// Waits until all ranks of a communicator have connected.
    fn settle(&self, communicator: &Communicator, call: &CallDescriptor) -> Result<(), CollectiveError> {
        let settled = communicator.settle(self.deadline(call));
        settled.map_err(|refusal| self.cannot_connect(call, refusal))
    }

    fn cannot_connect(&self, call: &CallDescriptor, refusal: Refusal) -> CollectiveError {
        match refusal {
            Refusal::Reported(what) => self.failed(call, Refusal::Reported(format!("NCCL cannot connect: {what}"))),
            waited => self.failed(call, waited),
        }
    }
}
