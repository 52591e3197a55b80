//! The health of a group as the engine of a device needs it: for calls that no thread waits for, and of which only the
//! device knows whom they wait for.

use std::time::{Duration, Instant};

use super::{AHEAD_OF_TIME, GroupHealth, NotedWait, WaitDeadline};
use crate::collectives::call::{CallDescriptor, Operation};
use crate::collectives::error::CollectiveError;
use crate::collectives::lanes::pending::Awaited;
use crate::launch::blame;

/// The longest that a call on the device lasts before it is noted. Its note names all ranks that it may wait for,
/// including those that wait too. The sooner those say so, the fewer are taken for the rank that does not come.
const NOTED_AFTER: Duration = Duration::from_secs(5);

/// The call that this thread performs, if it was started ahead of its time.
pub fn ahead_of_time() -> Option<Awaited> {
    AHEAD_OF_TIME.with_borrow(Clone::clone)
}

impl GroupHealth {
    /// Returns whom a call may wait for, by group index: the next rank first, and so on round the group. A note names
    /// only a few ranks, and in this order those of a large group lead from each rank to every other.
    pub fn awaited_by(&self, call: &CallDescriptor) -> Vec<usize> {
        let (rank, size) = (self.label.rank, self.label.size());
        match (call.operation, call.peer) {
            (Operation::Send | Operation::Recv, Some(peer)) => vec![peer],
            _ => (1..size).map(|step| (rank + step) % size).collect(),
        }
    }

    /// Returns the error of a call that has not ended in time.
    pub fn late(&self, call: &CallDescriptor) -> CollectiveError {
        let mut missing = self.awaited_by(call);
        missing.sort_unstable();
        self.timed_out(Some(call), &missing)
    }

    /// Returns the error of a call that the device, or its library, refuses.
    pub fn device_error(&self, call: &CallDescriptor, what: String) -> CollectiveError {
        CollectiveError::Device {
            group: self.label.to_string(),
            call: self.label.describe(call),
            what,
        }
    }

    /// Returns the job's failure, if it is known within the time limit.
    pub fn failure_within(&self, call: Option<&CallDescriptor>, limit: Duration) -> Option<CollectiveError> {
        self.failure.as_ref()?.wait_raised(limit)?;
        self.check(call).err()
    }

    /// Returns the deadline of a wait in a call of the device's library, as [`deadline`](Self::deadline).
    pub fn wait_deadline_on_device<'a>(&'a self, call: &'a CallDescriptor) -> WaitDeadline<'a> {
        let mut deadline = self.deadline(Some(call));
        deadline.noted_after = self.noted_on_device_after();
        deadline
    }

    /// Returns how long a call on the device lasts before it is noted.
    pub fn noted_on_device_after(&self) -> Duration {
        self.noted_after().min(NOTED_AFTER)
    }

    /// Lets the others read that a call has waited since `since`, until what is returned is dropped.
    pub fn note_wait(&self, since: Instant, call: &CallDescriptor) -> Option<NotedWait> {
        let notes = self.notes.as_ref()?;
        let awaited = notes.awaited(&self.label, Some(call), &self.awaited_by(call));
        Some(NotedWait::enter(notes, since, awaited))
    }

    /// Raises the job's failure signal, unless another rank has failed first: with the rank to which the notes lead,
    /// where this one only waits, and else with this rank. The error has been noted.
    pub fn raise(&self, error: &CollectiveError) {
        let (Some(failure), Some(notes)) = (&self.failure, &self.notes) else {
            return;
        };
        let other = match error {
            // In what its own device refuses no other rank takes part.
            CollectiveError::Device { .. } => None,
            _ => blame(failure, &notes.suspicions),
        };
        failure.raise(other.unwrap_or_else(|| notes.own_failure(error.to_string())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::call::GroupLabel;
    use crate::collectives::process_group::describe;

    fn awaited(ranks: usize, rank: usize, operation: Operation, peer: Option<usize>) -> Vec<usize> {
        let label = GroupLabel {
            name: "test".into(),
            ranks: (0..ranks).collect(),
            rank,
        };
        GroupHealth::alone(label).awaited_by(&CallDescriptor {
            peer,
            ..describe::<f32>(operation, 1)
        })
    }

    #[test]
    fn a_collective_waits_for_all_others_and_a_transfer_for_one() {
        assert_eq!(awaited(4, 2, Operation::AllReduce, None), [3, 0, 1]);
        // Also the root, for the others.
        assert_eq!(awaited(3, 1, Operation::Broadcast, Some(1)), [2, 0]);
        assert_eq!(awaited(3, 1, Operation::Recv, Some(0)), [0]);
        assert!(awaited(1, 0, Operation::AllReduce, None).is_empty());
    }
}
