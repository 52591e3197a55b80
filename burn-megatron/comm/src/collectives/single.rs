//! The engine of a group of one: every operation is the identity.

use super::call::CallDescriptor;
use super::engine::{Engine, HostBuffers, wrong_buffers};
use super::error::CollectiveError;

/// The engine of a group of one rank, which moves nothing.
#[derive(Debug)]
pub(crate) struct SingleEngine;

impl Engine for SingleEngine {
    fn name(&self) -> &'static str {
        "single"
    }

    fn execute(&self, call: &CallDescriptor, buffers: HostBuffers<'_>) -> Result<(), CollectiveError> {
        match buffers {
            HostBuffers::None | HostBuffers::InPlace(_) => {}
            HostBuffers::Separate { input, output } => output.copy_from_slice(input),
            // A group of one has no peer: the group refuses transfers.
            HostBuffers::Sent(_) => wrong_buffers(call, &buffers),
        }
        Ok(())
    }

    fn disconnect_reason(&self, _: usize) -> Option<String> {
        None
    }

    fn bytes_communicated(&self) -> u64 {
        0
    }

    fn leave(&self, _: &str) {}
}
