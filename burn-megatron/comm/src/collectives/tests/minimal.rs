//! An engine that overrides nothing: every operation in the form that is made of the others.

use super::*;
use crate::collectives::call::CallDescriptor;
use crate::collectives::engines::engine::Engine;
use crate::collectives::error::CollectiveError;
use crate::collectives::host::tcp::{self, TcpEngine};
use half::bf16;
use std::sync::Arc;

/// What an engine must have, over TCP.
#[derive(Debug)]
struct MinimalEngine(TcpEngine);

impl Engine for MinimalEngine {
    fn name(&self) -> &'static str {
        "minimal"
    }

    fn place(&self) -> (usize, usize) {
        self.0.place()
    }

    fn all_gather(&self, call: &CallDescriptor, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        self.0.all_gather(call, shard, output)
    }

    fn send(&self, call: &CallDescriptor, buffer: &[u8]) -> Result<(), CollectiveError> {
        self.0.send(call, buffer)
    }

    fn recv(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        self.0.recv(call, buffer)
    }

    fn disconnect_reason(&self, peer: usize) -> Option<String> {
        self.0.disconnect_reason(peer)
    }

    fn bytes_communicated(&self) -> u64 {
        self.0.bytes_communicated()
    }

    fn leave(&self, cause: &str) {
        self.0.leave(cause);
    }
}

#[test]
fn an_engine_that_overrides_nothing_matches_the_model() {
    for n in [2, 3] {
        run_ranks(n, TIMEOUT, |world| {
            let (health, rendezvous) = group_parts(&world, "minimal");
            let tcp = tcp::connect_with(&world, &health, &rendezvous, None).unwrap();
            let group = ProcessGroup::new(health, Arc::new(MinimalEngine(tcp)));
            contract::every_length::<f32>(&group);
            contract::every_length::<bf16>(&group);
            contract::every_length::<u8>(&group);
            shared_buffers::every_length::<bf16>(&group);
        });
    }
}
