//! A process of a job: the store, or ranks, which take each step of their lives all at once when they are asked to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ExitCode, exit};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use burn_megatron::collectives::ReduceOp;
use burn_megatron::launch::{Environment, JobToken, JoinConfig, StoreServer, StoreServerConfig, World};
use burn_megatron::topology::ParallelConfig;
use burn_megatron_data::programs::with_causes;
use parking_lot::Mutex;

use crate::rendezvous::Arguments;
use crate::rendezvous::process::{Part, Report};
use crate::rendezvous::system::{now, usage};

/// Stack of a rank's thread: its calls are not deep.
const STACK_BYTES: usize = 1 << 20;
/// How much the ranks give way to the store. In a real job it has a processor when it needs one; here hundreds of ranks
/// that look every 200 µs whether others have come would keep it from running for seconds.
const RANKS_NICENESS: i32 = 10;
/// Stands in a host's identity for the id of its boot: the same length.
const BOOT: &str = "00000000-0000-0000-0000-000000000000";

/// Does its part in a job until stdin ends.
pub fn serve(arguments: &Arguments, part: Part) -> ExitCode {
    let served = if part.own.is_empty() {
        serve_store(&part)
    } else {
        Ranks::serve(arguments, part)
    };
    served.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
}

/// Serves the store of a job: burn-megatron's own, as a launcher starts it.
fn serve_store(part: &Part) -> anyhow::Result<()> {
    let server = StoreServer::start(StoreServerConfig {
        listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
        port_variable: "MASTER_PORT",
        world_size: part.ranks,
        // As long as a job's id is.
        job_id: part.token.chars().take(16).collect(),
        token: JobToken::from_text(&part.token),
        on_failure: None,
    })?;
    let tell = || {
        let traffic = server.traffic();
        let counts = [
            ("messages", traffic.requests + traffic.replies),
            ("bytes", traffic.request_bytes + traffic.reply_bytes),
            ("connections", traffic.connections),
        ];
        report(Report {
            port: Some(server.address().port()),
            counts: counts.map(|(name, count)| (name.to_owned(), count as f64)).into(),
            ..Report::default()
        })
    };
    tell()?;
    steps()?.into_iter().try_for_each(|_| tell())
}

/// The ranks of a process: a thread for each, with a world of its own.
struct Ranks {
    part: Part,
    ranks_per_node: usize,
    layout: ParallelConfig,
    timeout: Duration,
    /// Calls of the next step.
    calls: AtomicU32,
    /// Begins and ends each step.
    gate: Barrier,
    report: Mutex<Report>,
}

impl Ranks {
    fn serve(arguments: &Arguments, part: Part) -> anyhow::Result<()> {
        rustix::process::nice(RANKS_NICENESS)?;
        let ranks = Arc::new(Self {
            ranks_per_node: arguments.ranks_per_node,
            layout: arguments.layout(part.ranks)?,
            timeout: arguments.timeout_secs,
            calls: AtomicU32::new(0),
            gate: Barrier::new(part.own.len() + 1),
            report: Mutex::default(),
            part,
        });
        for rank in ranks.part.own.clone() {
            let ranks = Arc::clone(&ranks);
            let live = move || {
                if let Err(error) = ranks.live(rank) {
                    fail(&error.context(format!("rank {rank}")));
                }
            };
            let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(live);
            thread.with_context(|| format!("cannot start the thread of rank {rank}"))?;
        }
        report(Report::default())?;
        for calls in steps()? {
            ranks.calls.store(calls, Ordering::Relaxed);
            ranks.gate.wait();
            ranks.gate.wait();
            report(std::mem::take(&mut *ranks.report.lock()))?;
        }
        Ok(())
    }

    /// Lives as a rank, step by step: joins the job, makes all groups of the layout, makes barriers and then
    /// all-reduces of the whole world, each once to warm up, and enters a barrier in which it waits for the death of a
    /// rank. Stands still when its process is looked at.
    fn live(&self, rank: usize) -> anyhow::Result<()> {
        let stand_still = || self.step(|_| Ok(()));
        stand_still()?;
        let environment = self.environment(rank);
        let options = JoinConfig::new().with_all_timeouts(self.timeout);
        let world = self.step(|_| Ok(World::join(&environment, &options)?))?;
        stand_still()?;
        let context = self.step(|_| Ok(self.layout.init(&world)?))?;
        stand_still()?;
        let group = context.world_group();
        let barrier = || Ok(group.barrier()?);
        let all_reduce = || {
            let mut sum = [1.0_f64];
            group.all_reduce(&mut sum, ReduceOp::Sum)?;
            ensure!(
                sum[0] == group.size() as f64,
                "the sum is {}, not {}",
                sum[0],
                group.size()
            );
            Ok(())
        };
        let operations: [&dyn Fn() -> anyhow::Result<()>; 2] = [&barrier, &all_reduce];
        for operation in operations {
            for _ in ["to warm up", "to be timed"] {
                self.step(|calls| self.time(calls, operation))?;
            }
        }
        let known = Arc::new(OnceLock::new());
        let noted = Arc::clone(&known);
        self.step(|_| {
            world.failure().on_raise(Box::new(move || {
                noted.get_or_init(now);
            }));
            Ok(())
        })?;
        self.step(|_| {
            ensure!(group.barrier().is_err(), "the barrier of a dead rank has returned");
            if world.failure().cause().is_some() {
                // The callback runs a moment after the cause is there.
                known.get_or_init(now);
            }
            Ok(())
        })?;
        self.step(|_| {
            let cause = world
                .failure()
                .wait_raised(self.timeout)
                .context("no first cause has come")?;
            self.add(Report {
                known: *known.get_or_init(now),
                named: [cause.rank].into(),
                ..Report::default()
            });
            Ok(())
        })?;
        // To leave in good order is not measured.
        loop {
            thread::park();
        }
    }

    fn environment(&self, rank: usize) -> Environment {
        let (ranks, ranks_per_node) = (self.part.ranks, self.ranks_per_node);
        let node = rank / ranks_per_node;
        Environment {
            rank,
            world_size: ranks,
            local_rank: rank % ranks_per_node,
            local_world_size: ranks_per_node.min(ranks - node * ranks_per_node),
            master_addr: "127.0.0.1".into(),
            master_port: self.part.port,
            job_id: None,
            job_token: Some(JobToken::from_text(&self.part.token)),
            store_hosted_elsewhere: true,
            chosen_store_port: None,
            host: Some(format!("node{node:04}/{BOOT}")),
            run_id: None,
            restart_count: None,
        }
    }

    /// Takes a step, with its number of calls, when all ranks of the process are to.
    fn step<T>(&self, act: impl FnOnce(u32) -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.gate.wait();
        let done = act(self.calls.load(Ordering::Relaxed))?;
        self.add(Report {
            end: now(),
            ..Report::default()
        });
        self.gate.wait();
        Ok(done)
    }

    fn time(&self, calls: u32, operation: &dyn Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut call_secs = Vec::new();
        for _ in 0..calls {
            let begun = Instant::now();
            operation()?;
            call_secs.push(begun.elapsed().as_secs_f64());
        }
        self.add(Report {
            call_secs,
            ..Report::default()
        });
        Ok(())
    }

    fn add(&self, of_rank: Report) {
        let mut report = self.report.lock();
        *report = std::mem::take(&mut *report).and(of_rank);
    }
}

/// Returns the steps that are asked for, by their numbers of calls. When stdin ends, so does this process, whatever its
/// threads do: its parent has ended, or needs it no more.
fn steps() -> anyhow::Result<Receiver<u32>> {
    let (sender, steps) = mpsc::channel();
    let listen = move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            let calls = line.parse().with_context(|| format!("not a number of calls: {line:?}"));
            let _ = sender.send(calls.unwrap_or_else(|error| fail(&error)));
        }
        exit(0);
    };
    thread::Builder::new().spawn(listen)?;
    Ok(steps)
}

/// Adds the numbers of this process to a report, and sends it.
fn report(mut report: Report) -> anyhow::Result<()> {
    let usage = usage().context("cannot read the state of a process")?;
    report
        .counts
        .extend(usage.map(|(name, count)| (name.to_owned(), count)));
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// Reports why this process cannot do its part, and ends it.
fn fail(error: &anyhow::Error) -> ! {
    let report = Report {
        error: Some(with_causes(error)),
        ..Report::default()
    };
    println!("{}", serde_json::to_string(&report).expect("reports are plain"));
    exit(1)
}
