//! [`Job`]: one job from its first process to the death of its last rank.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use burn_megatron::launch::JobToken;
use clap::ValueEnum;
use examples::figures::percentile;
use rustix::process::Signal;

use crate::rendezvous::Arguments;
use crate::rendezvous::process::{Part, Processes, Report};
use crate::rendezvous::system::{PROOFS, now};
use crate::table::Row;

/// Calls before those that are timed, and those that tell how many these may be.
const WARM_UP_CALLS: u32 = 3;
/// The fewest calls that are timed, however long they take.
const LEAST_CALLS: u32 = 5;
/// Until all ranks wait in the barrier that a death ends.
const SETTLED: Duration = Duration::from_millis(500);
/// How much later than a rank this program gives up.
const SLACK: Duration = Duration::from_secs(40);
/// From the moment when all calls have returned until the store's messages are counted.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Number of the store's process, which is the first.
const STORE: usize = 0;

/// Victim of a death, real or apparent, while all ranks wait in a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Death {
    /// The process of the last rank, alone
    Rank,
    /// A hundredth of the ranks, with the processes that they are in
    Ranks,
    /// A process with all of its ranks: a node, with --ranks-per-process 8
    Process,
    /// The store, and with it node 0
    Store,
    /// None: the process of the last rank is stopped, and so silent
    Silent,
}

/// Runs a job of `ranks` ranks; returns what was measured before it failed, if it did, and why. All of its processes
/// have ended then. `proof_secs` is the time of one HMAC.
pub fn run(arguments: &Arguments, ranks: usize, proof_secs: f64) -> (Row, Option<anyhow::Error>) {
    let mut figures = Row::default();
    let mut measure = || -> anyhow::Result<()> {
        let mut job = Job::start(arguments, ranks, proof_secs)?;
        for step in [
            Job::join,
            Job::connect,
            Job::make_barriers,
            Job::make_all_reduces,
            Job::lose,
        ] {
            let more = step(&mut job)?;
            figures = std::mem::take(&mut figures).and(more);
        }
        Ok(())
    };
    let error = measure().err();
    (figures, error)
}

struct Job<'a> {
    arguments: &'a Arguments,
    num_ranks: usize,
    proof_secs: f64,
    processes: Processes,
    /// Processes of ranks, in the order of their ranks; the last has only the last rank.
    ranks: Vec<usize>,
    /// Resident bytes of these before they joined, with threads that wait.
    idle_bytes: f64,
    /// Last look at all ranks, and at the store.
    seen: [Report; 2],
}

impl<'a> Job<'a> {
    fn start(arguments: &'a Arguments, num_ranks: usize, proof_secs: f64) -> anyhow::Result<Self> {
        let mut processes = Processes::new(arguments.timeout_secs + SLACK);
        let mut part = Part {
            own: 0..0,
            ranks: num_ranks,
            port: 0,
            token: String::from_utf8_lossy(JobToken::random()?.as_bytes()).into_owned(),
        };
        let store = processes.start(&part)?;
        let started = processes.reports(&[store])?;
        part.port = started.port.context("the store does not say where it listens")?;
        let (last, each) = (num_ranks - 1, arguments.ranks_per_process);
        let mut ranks = Vec::new();
        for first in (0..last).step_by(each) {
            part.own = first..last.min(first + each);
            ranks.push(processes.start(&part)?);
        }
        part.own = last..num_ranks;
        ranks.push(processes.start(&part)?);
        processes.reports(&ranks)?;
        processes.step(&ranks, 0)?;
        let idle = processes.reports(&ranks)?;
        Ok(Self {
            arguments,
            num_ranks,
            proof_secs,
            processes,
            ranks,
            idle_bytes: idle.count("resident"),
            seen: [idle, started],
        })
    }

    fn join(&mut self) -> anyhow::Result<Row> {
        // The new sockets of ranks are with the store.
        self.come_together("join", 0.0)
    }

    fn connect(&mut self) -> anyhow::Result<Row> {
        // A connection between ranks is a socket of both.
        let figures = self.come_together("all groups", 0.5)?;
        let [ranks, store] = &self.seen;
        Ok(figures
            .number("sockets of a rank", self.per_rank(ranks.count("sockets")))
            .number("threads of a rank", self.per_rank(ranks.count("threads")))
            .bytes("resident memory of a rank", self.rank_bytes(ranks))
            .number("sockets of the store", store.count("sockets"))
            .bytes("resident memory of the store", store.count("resident")))
    }

    /// Lets all ranks connect, and returns the time, and what it took of the store and of the processors. A new socket
    /// of a rank counts as this part of a connection.
    fn come_together(&mut self, name: &str, part: f64) -> anyhow::Result<Row> {
        let begun = now();
        let seconds = self.step(0)?.end - begun;
        let [ranks_before, before] = self.seen.clone();
        self.seen = [self.step(0)?, self.look_at_store()?];
        let [ranks, store] = &self.seen;
        let new = |name| store.count(name) - before.count(name);
        let sockets = ranks.count("sockets") - ranks_before.count("sockets");
        let proof_secs = (part * sockets + new("connections")) * PROOFS * self.proof_secs;
        // Of the time of all processors: the other ranks prove, too, at the same time.
        let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
        let of = |part: &str| format!("{name}: {part}");
        Ok(Row::default()
            .seconds(name, seconds)
            .percent(
                &of("HMAC's share of the processors"),
                100.0 * proof_secs / (seconds * cores),
            )
            .number(&of("messages of the store"), new("messages"))
            .bytes(&of("bytes of the store"), new("bytes")))
    }

    fn make_barriers(&mut self) -> anyhow::Result<Row> {
        let (figures, [before, after]) = self.call("barrier of the world")?;
        let writes = (after.count("writes") - before.count("writes")) / after.call_secs.len() as f64;
        Ok(figures.number("writes of a rank per barrier", self.per_rank(writes)))
    }

    fn make_all_reduces(&mut self) -> anyhow::Result<Row> {
        let (figures, [_, after]) = self.call("all-reduce of 8 bytes")?;
        Ok(figures.bytes("resident memory of a rank after all-reduces", self.rank_bytes(&after)))
    }

    /// Makes calls of the whole world; returns the times of those that count, and the reports before and after these.
    fn call(&mut self, name: &str) -> anyhow::Result<(Row, [Report; 2])> {
        let before = self.step(WARM_UP_CALLS)?;
        let usual = percentile(&before.call_secs, 0.5);
        let most = self.arguments.calls;
        let fit = (self.arguments.call_secs.as_secs_f64() / usual.max(1e-9)) as u32;
        let after = self.step(fit.min(most).max(LEAST_CALLS.min(most)))?;
        let times = Row::default()
            .seconds(&format!("{name}, p50"), percentile(&after.call_secs, 0.5))
            .seconds(&format!("{name}, p99"), percentile(&after.call_secs, 0.99));
        Ok((times, [before, after]))
    }

    /// Kills what is to die while all ranks wait in a barrier: those that are left must all name the same rank, one of
    /// those that died, or of the node whose launcher hosted the store.
    fn lose(&mut self) -> anyhow::Result<Row> {
        let death = self.arguments.death;
        self.step(0)?;
        let dying = self.dying();
        let died: Vec<usize> = match death {
            Death::Store => (0..self.arguments.ranks_per_node).collect(),
            _ => dying
                .iter()
                .flat_map(|process| self.processes.ranks_of(*process))
                .collect(),
        };
        // All but the last rank: without it the barrier does not end.
        self.ranks.pop();
        self.processes.step(&self.ranks, 0)?;
        self.ranks.retain(|process| !dying.contains(process));
        thread::sleep(SETTLED);
        let before = self.look_at_store()?;
        let killed = now();
        for process in dying {
            let signal = match death {
                Death::Silent => Signal::STOP,
                _ => Signal::KILL,
            };
            self.processes.strike(process, signal)?;
        }
        let returned = self.processes.reports(&self.ranks)?;
        let learned = self.step(0)?;
        // Each rank of node 0 says that its own launcher is gone.
        let is_one = death == Death::Store || learned.named.len() == 1;
        ensure!(
            is_one && learned.named.iter().all(|rank| died.contains(rank)),
            "ranks {died:?} died, and ranks {:?} are named",
            learned.named
        );
        let figures = Row::default()
            .seconds("a death: all know the first cause", learned.known - killed)
            .seconds("a death: all calls have returned", returned.end - killed);
        if death == Death::Store {
            return Ok(figures);
        }
        // Ranks whose calls have returned may still leave words in the store.
        thread::sleep(LAST_WORDS);
        let messages = self.look_at_store()?.count("messages") - before.count("messages");
        Ok(figures.number("a death: messages of the store", messages))
    }

    /// Returns the processes that are to die.
    fn dying(&self) -> Vec<usize> {
        let Arguments {
            death,
            ranks_per_process,
            ..
        } = *self.arguments;
        let (others, last) = self.ranks.split_at(self.ranks.len() - 1);
        let count = match death {
            Death::Rank | Death::Silent => return last.to_vec(),
            Death::Store => return vec![STORE],
            Death::Process => 1,
            Death::Ranks => self.num_ranks.div_ceil(100 * ranks_per_process),
        };
        // Not the first, so that one is left; evenly over the others.
        let apart = (others.len() / (count + 1)).max(1);
        let places = (1..=count).map(|number| number * apart);
        places.filter_map(|place| others.get(place).copied()).collect()
    }

    /// Lets all ranks take their next step.
    fn step(&mut self, calls: u32) -> anyhow::Result<Report> {
        self.processes.step(&self.ranks, calls)?;
        self.processes.reports(&self.ranks)
    }

    fn look_at_store(&mut self) -> anyhow::Result<Report> {
        self.processes.step(&[STORE], 0)?;
        self.processes.reports(&[STORE])
    }

    fn per_rank(&self, of_all: f64) -> f64 {
        of_all / self.num_ranks as f64
    }

    fn rank_bytes(&self, all: &Report) -> f64 {
        self.per_rank((all.count("resident") - self.idle_bytes).max(0.0))
    }
}
