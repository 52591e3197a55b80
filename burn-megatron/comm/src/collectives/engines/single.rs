//! The engine of a group of one: every operation is the identity.

use super::engine::Engine;
use crate::collectives::call::CallDescriptor;
use crate::collectives::error::CollectiveError;

/// The engine of a group of one rank, which moves nothing.
#[derive(Debug)]
pub(crate) struct SingleEngine;

impl Engine for SingleEngine {
    fn name(&self) -> &'static str {
        "single"
    }

    fn place(&self) -> (usize, usize) {
        (0, 1)
    }

    fn all_gather(&self, _: &CallDescriptor, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        output.copy_from_slice(shard);
        Ok(())
    }

    // Also the bits of a NaN stay.
    fn all_reduce(&self, _: &CallDescriptor, _: &mut [u8]) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn reduce_scatter(&self, call: &CallDescriptor, input: &[u8], shard: &mut [u8]) -> Result<(), CollectiveError> {
        self.all_gather(call, input, shard)
    }

    fn broadcast(&self, _: &CallDescriptor, _: &mut [u8]) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn send(&self, call: &CallDescriptor, _: &[u8]) -> Result<(), CollectiveError> {
        unreachable!("a group of one has no peer, and refuses {call:?}")
    }

    fn recv(&self, call: &CallDescriptor, _: &mut [u8]) -> Result<(), CollectiveError> {
        unreachable!("a group of one has no peer, and refuses {call:?}")
    }

    fn disconnect_reason(&self, _: usize) -> Option<String> {
        None
    }

    fn bytes_communicated(&self) -> u64 {
        0
    }

    fn leave(&self, _: &str) {}
}
