//! [`Suite`]: over which engine the tests go.

use super::*;
use crate::collectives::host::tcp;
use std::time::{SystemTime, UNIX_EPOCH};

/// The environment variable with the seed of the random programs, to repeat one that failed.
const SEED_VARIABLE: &str = "CONTRACT_SEED";

/// Runs the bodies of tests on every rank. The ranks are threads.
#[derive(Debug)]
pub(in crate::collectives) struct Suite {
    engine: EngineChoice,
    /// Children of a rank in the tree over which all groups meet; `None` if the engine chooses.
    arity: Option<usize>,
    /// Of the random programs, the same on all ranks.
    pub(super) seed: u64,
}

impl Suite {
    /// Returns a suite of this engine.
    pub(super) fn new(engine: EngineChoice) -> Self {
        Self {
            engine,
            arity: None,
            seed: seed(),
        }
    }

    /// Returns a suite of TCP with a tree of many levels.
    pub(in crate::collectives) fn over_tree() -> Self {
        Self {
            arity: Some(2),
            ..Self::new(EngineChoice::Tcp)
        }
    }

    /// Runs `body` on `n` ranks at the same time, in a job of their own.
    pub(super) fn run_ranks(&self, n: usize, timeout: Duration, body: impl Fn(World) + Sync) {
        run_worlds(worlds_for(self.engine, n, timeout), body);
    }

    /// Like [`run_ranks`](Self::run_ranks), with a group of all ranks.
    pub(super) fn with_groups(&self, n: usize, timeout: Duration, body: impl Fn(&World, ProcessGroup) + Sync) {
        self.run_ranks(n, timeout, |world| {
            let ranks: Vec<usize> = (0..n).collect();
            let group = self.connect(&world, "all", &ranks).unwrap();
            body(&world, group);
        });
    }

    /// Connects a group over the engine under test.
    pub(in crate::collectives) fn connect(
        &self,
        world: &World,
        name: &str,
        ranks: &[usize],
    ) -> Result<ProcessGroup, CollectiveError> {
        if self.arity.is_none() || ranks.len() == 1 {
            return ProcessGroup::connect(world, name, ranks, &self.engine);
        }
        let (health, rendezvous) = group_parts_of(world, name, ranks)?;
        let engine = tcp::connect_with(world, &health, &rendezvous, self.arity)?;
        Ok(ProcessGroup::new(health, Arc::new(engine)))
    }
}

/// Returns the seed that was asked for, or another one each time.
fn seed() -> u64 {
    match std::env::var(SEED_VARIABLE) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{SEED_VARIABLE}={text:?}: expected a number below 2^64")),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            scramble(now.as_nanos() as u64)
        }
    }
}
