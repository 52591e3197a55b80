//! [`Suite`]: over which engine the tests go, and where the ranks are.

use super::*;
use crate::collectives::GroupOptions;
use crate::collectives::external::ConnectEngine;
#[cfg(test)]
use crate::collectives::host::tcp;
#[cfg(test)]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The environment variable with the seed of the random programs, to repeat one that failed.
const SEED_VARIABLE: &str = "CONTRACT_SEED";

/// A test of the contract.
#[derive(Debug)]
pub struct Case {
    /// Its name, a claim.
    pub name: &'static str,
    /// Panics when the claim is wrong.
    pub run: fn(&Suite),
}

/// Runs the bodies of tests on every rank.
#[derive(Debug)]
pub struct Suite {
    options: SuiteOptions,
    processes: Option<Processes>,
    /// Of the random programs, the same on all ranks.
    pub(super) seed: u64,
}

/// The options of the groups under test.
#[derive(Clone, Copy, Debug)]
pub(super) struct SuiteOptions {
    engine: EngineChoice,
    mpi: Option<ConnectEngine>,
}

impl GroupOptions for SuiteOptions {
    fn engine(&self) -> EngineChoice {
        self.engine
    }

    fn mpi_engine(&self) -> Option<ConnectEngine> {
        self.mpi
    }
}

/// This process's part in a suite whose ranks are processes.
#[derive(Debug)]
struct Processes {
    /// All of them, for the whole run; each body also has a job of its own, since some end with a failed one.
    world: World,
    bodies: AtomicUsize,
    has_run: AtomicBool,
}

impl Suite {
    /// Returns a suite whose ranks are threads of this process.
    pub fn in_threads(engine: EngineChoice) -> Self {
        Self::in_threads_with(SuiteOptions { engine, mpi: None })
    }

    /// As [`in_threads`](Self::in_threads), over TCP with a tree of many levels.
    #[cfg(test)]
    pub(in crate::collectives) fn over_tree() -> Self {
        Self::in_threads_with(SuiteOptions {
            engine: EngineChoice::Mpi,
            mpi: Some(|world, health, rendezvous| {
                let engine = tcp::connect_with(world, health, rendezvous, Some(2))?;
                Ok(Arc::new(engine))
            }),
        })
    }

    fn in_threads_with(options: SuiteOptions) -> Self {
        Self {
            options,
            processes: None,
            seed: seed(),
        }
    }

    /// Returns this rank's part of a suite whose ranks are the processes of `world`, over the engine of `options`;
    /// bodies for another number of ranks are left out.
    pub fn in_processes(options: &impl GroupOptions, world: World) -> Self {
        const KEY: &str = "suite/seed";
        let seed = match world.rank() {
            0 => {
                let seed = seed();
                world.store().set(KEY, &seed.to_le_bytes()).unwrap();
                seed
            }
            _ => u64::from_le_bytes(world.store().wait(KEY, TIMEOUT).unwrap().try_into().unwrap()),
        };
        let processes = Processes {
            world,
            bodies: AtomicUsize::new(0),
            has_run: AtomicBool::new(false),
        };
        Self {
            options: SuiteOptions {
                engine: options.engine(),
                mpi: options.mpi_engine(),
            },
            processes: Some(processes),
            seed,
        }
    }

    /// Returns whether any body has run since the last question, or been left out.
    pub fn has_run(&self) -> bool {
        let has_run = |processes: &Processes| processes.has_run.swap(false, Ordering::Relaxed);
        self.processes.as_ref().is_none_or(has_run)
    }

    /// Runs `body` on `n` ranks at the same time, in a job of their own; panics on every rank when it does on one.
    pub(super) fn run_ranks(&self, n: usize, timeout: Duration, body: impl Fn(World) + Sync) {
        match &self.processes {
            None => drop(run_worlds(worlds_for(self.options.engine, n, timeout), body)),
            Some(processes) if processes.world.world_size() == n => processes.run(timeout, body),
            Some(_) => {}
        }
    }

    /// Like [`run_ranks`](Self::run_ranks), with a group of all ranks.
    pub(super) fn with_groups(&self, n: usize, timeout: Duration, body: impl Fn(&World, ProcessGroup) + Sync) {
        self.run_ranks(n, timeout, |world| {
            let ranks: Vec<usize> = (0..n).collect();
            let group = self.connect(&world, "all", &ranks);
            body(&world, group);
        });
    }

    /// Connects a group over the engine under test.
    pub(in crate::collectives) fn connect(&self, world: &World, name: &str, ranks: &[usize]) -> ProcessGroup {
        ProcessGroup::connect(world, name, ranks, &self.options()).unwrap()
    }

    pub(super) fn options(&self) -> SuiteOptions {
        self.options
    }
}

impl Processes {
    fn run(&self, timeout: Duration, body: impl Fn(World)) {
        self.has_run.store(true, Ordering::Relaxed);
        let (rank, n) = (self.world.rank(), self.world.world_size());
        let index = self.bodies.fetch_add(1, Ordering::Relaxed);
        let store = self.world.store();
        let port_key = format!("suite/{index}/port");
        let port = match rank {
            0 => {
                let port = free_port();
                store.set(&port_key, &port.to_le_bytes()).unwrap();
                port
            }
            _ => u16::from_le_bytes(store.wait(&port_key, TIMEOUT).unwrap().try_into().unwrap()),
        };
        let world = join_world(rank, n, port, timeout, None);
        let result = catch_unwind(AssertUnwindSafe(|| body(world.clone())));
        let verdict = match &result {
            Ok(()) => "",
            Err(_) => {
                world.fail("panicked");
                "panicked"
            }
        };
        drop(world);
        let verdict_key = |rank: usize| format!("suite/{index}/verdict/{rank}");
        store.set(&verdict_key(rank), verdict.as_bytes()).unwrap();
        if let Err(panic) = result {
            resume_unwind(panic);
        }
        for peer in 0..n {
            let verdict = store.wait(&verdict_key(peer), 2 * TIMEOUT).unwrap();
            assert!(verdict.is_empty(), "rank {peer} {}", String::from_utf8_lossy(&verdict));
        }
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
