//! One job from its first process to the death of its last rank.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use burn_megatron::launch::JobToken;
use clap::ValueEnum;

use crate::rendezvous::figures::{Figure, Figures};
use crate::rendezvous::layout::Layout;
use crate::rendezvous::messages::{Child, Command, Learned, Operation, RanksConfig, Report, Span, Usage};
use crate::rendezvous::process::Processes;
use crate::rendezvous::proofs::PROOFS;
use crate::rendezvous::system::now;

/// Calls before those that are timed, and those that tell how many these may be.
const WARM_UP_CALLS: u32 = 3;
/// The fewest calls that are timed, however long they take.
const LEAST_CALLS: u32 = 5;
/// Until all ranks wait in the barrier that a death ends.
const SETTLED: Duration = Duration::from_millis(500);
/// How much later than a rank a process gives up, and this program later than a process.
const SLACK: Duration = Duration::from_secs(20);
/// From the moment when all calls have returned until the store's messages are counted.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What dies while all ranks wait in a barrier, or seems to.
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

/// A size, and how it is measured.
#[derive(Clone, Copy, Debug)]
pub struct JobConfig {
    /// Ranks.
    pub ranks: usize,
    /// Their axes.
    pub layout: Layout,
    /// Ranks of a node.
    pub ranks_per_node: usize,
    /// Ranks of a process.
    pub ranks_per_process: usize,
    /// Timed calls of each kind at most.
    pub calls: u32,
    /// How long these may take.
    pub call_secs: f64,
    /// What dies in the end.
    pub death: Death,
    /// How long each step may take.
    pub timeout_secs: f64,
}

/// Runs a job; returns what was measured before it failed, if it did, and why. All of its processes have ended then.
/// `proof_secs` is the time of one HMAC.
pub fn run(config: &JobConfig, proof_secs: f64) -> (Figures, Option<anyhow::Error>) {
    let mut figures = Figures::default();
    let measured = Job::start(config).and_then(|mut job| job.measure(&mut figures, proof_secs));
    (figures, measured.err())
}

/// The processes of a job.
struct Job<'a> {
    config: &'a JobConfig,
    processes: Processes,
    store: usize,
    /// Those of all ranks but the last, in the order of their ranks.
    living: Vec<usize>,
    /// That of the last rank.
    victim: usize,
    /// What all processes of ranks used before they joined: threads that wait.
    idle: Usage,
}

impl<'a> Job<'a> {
    fn start(config: &'a JobConfig) -> anyhow::Result<Self> {
        let limit = Duration::from_secs_f64(config.timeout_secs) + 2 * SLACK;
        let mut processes = Processes::new(limit);
        let token = JobToken::random()?;
        let token = String::from_utf8_lossy(token.as_bytes()).into_owned();
        let what = Child::Store {
            ranks: config.ranks,
            token: token.clone(),
        };
        let store = processes.start("the store".into(), &what)?;
        let [Report::Started { port: Some(port) }] = processes.answers(&[store])?[..] else {
            bail!("the store does not say where it listens");
        };
        let mut start = |first: usize, count: usize| {
            let name = match count {
                1 => format!("rank {first}"),
                _ => format!("ranks {first} to {}", first + count - 1),
            };
            let ranks = RanksConfig {
                first,
                count,
                ranks: config.ranks,
                ranks_per_node: config.ranks_per_node,
                layout: config.layout,
                port,
                token: token.clone(),
                timeout_secs: config.timeout_secs,
            };
            processes.start(name, &Child::Ranks(ranks))
        };
        let last = config.ranks - 1;
        let starts = (0..last).step_by(config.ranks_per_process);
        let living = starts.map(|first| start(first, config.ranks_per_process.min(last - first)));
        let living = living.collect::<anyhow::Result<Vec<usize>>>()?;
        let victim = start(last, 1)?;
        let mut job = Self {
            config,
            processes,
            store,
            living,
            victim,
            idle: Usage::default(),
        };
        job.processes.answers(&job.all())?;
        job.idle = job.usage_of_ranks()?;
        Ok(job)
    }

    fn measure(&mut self, figures: &mut Figures, proof_secs: f64) -> anyhow::Result<()> {
        let ranks = self.config.ranks as f64;
        let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
        // Of the time of all processors: the other ranks prove, too, at the same time.
        let proofs = |connections: f64, seconds: f64| 100.0 * connections * PROOFS * proof_secs / (seconds * cores);

        let join = seconds(&self.span(Command::Join)?);
        let [joined, store] = self.usages()?;
        figures.set(Figure::Join, join);
        figures.set(Figure::JoinProofs, proofs(store.store_connections as f64, join));
        figures.set(Figure::JoinMessages, store.store_messages as f64);
        figures.set(Figure::JoinBytes, store.store_bytes as f64);

        let connect = seconds(&self.span(Command::Connect)?);
        let [connected, store_after] = self.usages()?;
        figures.set(Figure::Connect, connect);
        let between_ranks = connected.sockets.saturating_sub(joined.sockets) as f64 / 2.0;
        let with_store = (store_after.store_connections - store.store_connections) as f64;
        figures.set(Figure::ConnectProofs, proofs(between_ranks + with_store, connect));
        figures.set(
            Figure::ConnectMessages,
            (store_after.store_messages - store.store_messages) as f64,
        );
        figures.set(
            Figure::ConnectBytes,
            (store_after.store_bytes - store.store_bytes) as f64,
        );
        figures.set(Figure::RankSockets, connected.sockets as f64 / ranks);
        figures.set(Figure::RankThreads, connected.threads as f64 / ranks);
        figures.set(
            Figure::RankMemory,
            connected.resident.saturating_sub(self.idle.resident) as f64 / ranks,
        );
        figures.set(Figure::StoreSockets, store_after.sockets as f64);
        figures.set(Figure::StoreMemory, store_after.resident as f64);

        for (operation, median, last) in [
            (Operation::Barrier, Figure::BarrierMedian, Figure::BarrierLast),
            (Operation::AllReduce, Figure::AllReduceMedian, Figure::AllReduceLast),
        ] {
            let (times, writes, resident) = self.call(operation)?;
            figures.set(median, percentile(&times, 0.5));
            figures.set(last, percentile(&times, 0.99));
            let memory = resident.saturating_sub(self.idle.resident) as f64;
            match operation {
                Operation::Barrier => figures.set(Figure::RankWrites, writes / ranks),
                Operation::AllReduce => figures.set(Figure::RankMemoryAfter, memory / ranks),
            }
        }
        self.lose(figures)
    }

    /// Makes calls of the whole world; returns the times of those that count, the writes of all ranks for one, and the
    /// memory of all ranks afterwards.
    fn call(&mut self, operation: Operation) -> anyhow::Result<(Vec<f64>, f64, u64)> {
        let calls = WARM_UP_CALLS;
        let warm_up = self.span(Command::Call { operation, calls })?.slowest_secs;
        let usual = percentile(&warm_up, 0.5);
        let fit = (self.config.call_secs / usual.max(1e-9)) as u32;
        let calls = fit.min(self.config.calls).max(LEAST_CALLS.min(self.config.calls));
        let before = self.usage_of_ranks()?;
        let times = self.span(Command::Call { operation, calls })?.slowest_secs;
        let after = self.usage_of_ranks()?;
        ensure!(
            times.len() == calls as usize,
            "{} of {calls} calls were timed",
            times.len()
        );
        let writes = (after.writes - before.writes) as f64 / f64::from(calls);
        Ok((times, writes, after.resident))
    }

    /// Kills what is to die while all ranks wait in a barrier: those that are left must all name the same rank, one of
    /// those that died, or of the node whose launcher hosted the store.
    fn lose(&mut self, figures: &mut Figures) -> anyhow::Result<()> {
        // All but the last rank, whose process is not asked: without it the barrier does not end.
        self.processes.ask(&self.living, Command::AwaitDeath)?;
        let dying = self.take_dying();
        thread::sleep(SETTLED);
        let before = self.usage_of_store()?;
        let killed = now();
        for (process, _) in &dying {
            match self.config.death {
                Death::Silent => self.processes.stop(*process)?,
                _ => self.processes.kill(*process)?,
            }
        }
        let reports = self.processes.answers(&self.living)?;
        let learned = reports.into_iter().map(|report| match report {
            Report::Learned(learned) => Ok(learned),
            other => bail!("expected what ranks have learned, got {other:?}"),
        });
        let learned = learned.collect::<anyhow::Result<Vec<Learned>>>()?;
        let learned = learned.into_iter().reduce(Learned::and).context("no rank lives")?;
        let has_died = |rank: &usize| dying.iter().any(|(_, ranks)| ranks.contains(rank));
        // Each rank of node 0 says that its own launcher is gone.
        let is_one = self.config.death == Death::Store || learned.named.len() == 1;
        ensure!(
            is_one && learned.named.iter().all(has_died),
            "ranks {:?} died, and ranks {:?} are named",
            dying.iter().map(|(_, ranks)| ranks).collect::<Vec<_>>(),
            learned.named
        );
        figures.set(Figure::Cause, learned.known - killed);
        figures.set(Figure::Returned, learned.returned - killed);
        if self.config.death != Death::Store {
            // Ranks whose calls have returned may still leave words in the store.
            thread::sleep(LAST_WORDS);
            let after = self.usage_of_store()?;
            figures.set(
                Figure::CauseMessages,
                (after.store_messages - before.store_messages) as f64,
            );
        }
        Ok(())
    }

    /// Takes the processes that are to die from those that live; returns each with its ranks: of the store, those of
    /// node 0.
    fn take_dying(&mut self) -> Vec<(usize, Range<usize>)> {
        let (ranks, each) = (self.config.ranks, self.config.ranks_per_process);
        let last = (self.victim, ranks - 1..ranks);
        let count = match self.config.death {
            Death::Rank | Death::Silent => return vec![last],
            Death::Store => return vec![(self.store, 0..self.config.ranks_per_node)],
            Death::Process => 1,
            Death::Ranks => ranks.div_ceil(100 * each),
        };
        // Not the first, so that somebody is left; evenly over the others.
        let apart = (self.living.len() / (count + 1)).max(1);
        let places: Vec<usize> = (1..=count)
            .map(|number| number * apart)
            .filter(|place| *place < self.living.len())
            .collect();
        let ranks_of = |place: usize| place * each..((place + 1) * each).min(ranks - 1);
        let processes = self.living.drain(..).enumerate();
        let (dying, living): (Vec<_>, Vec<_>) = processes.partition(|(place, _)| places.contains(place));
        self.living = living.into_iter().map(|(_, process)| process).collect();
        dying
            .into_iter()
            .map(|(place, process)| (process, ranks_of(place)))
            .collect()
    }

    /// Lets all ranks do something, and returns when.
    fn span(&mut self, command: Command) -> anyhow::Result<Span> {
        let spans = self
            .processes
            .ask(&self.all(), command)?
            .into_iter()
            .map(|report| match report {
                Report::Done(span) => Ok(span),
                other => bail!("expected {command:?} to be done, got {other:?}"),
            });
        let spans = spans.collect::<anyhow::Result<Vec<Span>>>()?;
        spans.into_iter().reduce(Span::and).context("no rank lives")
    }

    /// What all ranks use together, and what the store does.
    fn usages(&mut self) -> anyhow::Result<[Usage; 2]> {
        Ok([self.usage_of_ranks()?, self.usage_of_store()?])
    }

    fn usage_of_ranks(&mut self) -> anyhow::Result<Usage> {
        let all = self.all();
        let usages = self.usage(&all)?;
        Ok(usages.into_iter().fold(Usage::default(), |sum, one| Usage {
            sockets: sum.sockets + one.sockets,
            threads: sum.threads + one.threads,
            resident: sum.resident + one.resident,
            writes: sum.writes + one.writes,
            ..sum
        }))
    }

    fn usage_of_store(&mut self) -> anyhow::Result<Usage> {
        let usage = self.usage(&[self.store])?;
        usage.first().copied().context("the store says nothing")
    }

    fn usage(&mut self, numbers: &[usize]) -> anyhow::Result<Vec<Usage>> {
        let reports = self.processes.ask(numbers, Command::Describe)?;
        let usages = reports.into_iter().map(|report| match report {
            Report::Usage(usage) => Ok(usage),
            other => bail!("expected what a process uses, got {other:?}"),
        });
        usages.collect()
    }

    /// The processes of all ranks.
    fn all(&self) -> Vec<usize> {
        self.living.iter().copied().chain([self.victim]).collect()
    }
}

fn seconds(span: &Span) -> f64 {
    span.end - span.begin
}

/// The value that this part of all values does not exceed.
fn percentile(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let place = (part * values.len() as f64).ceil() as usize;
    values.get(place.max(1) - 1).copied().unwrap_or(f64::NAN)
}
