//! The engine of a group of one: every operation is the identity.

use super::call::CallDescriptor;
use super::engine::Engine;
use super::error::CollectiveError;

/// Moves nothing to nobody.
#[derive(Debug)]
pub(crate) struct SingleEngine;

impl Engine for SingleEngine {
    fn name(&self) -> &'static str {
        "single"
    }

    fn all_reduce(&self, _: &CallDescriptor, _: &mut [u8]) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn all_gather(&self, _: &CallDescriptor, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        output.copy_from_slice(shard);
        Ok(())
    }

    fn reduce_scatter(&self, _: &CallDescriptor, input: &[u8], shard: &mut [u8]) -> Result<(), CollectiveError> {
        shard.copy_from_slice(input);
        Ok(())
    }

    fn broadcast(&self, _: &CallDescriptor, _: &mut [u8]) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn send(&self, _: &CallDescriptor, _: &[u8]) -> Result<(), CollectiveError> {
        unreachable!("a group of one has no peer to send to: the group refuses it")
    }

    fn recv(&self, _: &CallDescriptor, _: &mut [u8]) -> Result<(), CollectiveError> {
        unreachable!("a group of one has no peer to receive from: the group refuses it")
    }

    fn barrier(&self, _: &CallDescriptor) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn farewell_of(&self, _: usize) -> Option<String> {
        None
    }

    fn bytes_communicated(&self) -> u64 {
        0
    }

    fn leave(&self, _: &str) {}
}
