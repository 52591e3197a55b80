//! A process of ranks: a thread for each, with a world of its own.
//!
//! A thread makes all calls of its rank, so it owns the rank's groups. It lives until the process ends, and the groups
//! with it.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use burn_megatron::collectives::ReduceOp;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::{Environment, JobToken, JoinConfig, World};
use parking_lot::Mutex;

use crate::rendezvous::child::{commands, describe, report};
use crate::rendezvous::messages::{Command, Learned, Operation, RanksConfig, Report, Span};
use crate::rendezvous::system::{now, out_of_descriptors};

/// Of a rank's thread: its calls are not deep.
const STACK_BYTES: usize = 1 << 20;
/// How often a process that waits for its ranks looks at its descriptors, and how often it must be out of them.
const LOOK: Duration = Duration::from_secs(1);
const VAIN_LOOKS: u32 = 3;
/// How much later than its ranks a process gives up.
const SLACK: Duration = Duration::from_secs(15);
/// What stands in a host's identity for the id of its boot: the same length.
const BOOT: &str = "00000000-0000-0000-0000-000000000000";

/// What a rank answers.
enum Answer {
    Done(Span),
    /// It is about to enter the barrier in which it waits for a death.
    Waits,
    Learned(Learned),
}

/// A rank's answers, or why it cannot do what it was asked.
type Answers = Receiver<anyhow::Result<Answer>>;

/// Is these ranks until this process ends.
///
/// # Errors
/// When a rank cannot do what it is asked, or does not answer.
pub fn serve(config: RanksConfig) -> anyhow::Result<()> {
    let commands = commands()?;
    let config = Arc::new(config);
    let (answer, answers) = mpsc::channel();
    let ranks = (config.first..config.first + config.count)
        .map(|rank| {
            let (sender, orders) = mpsc::channel();
            let (config, answer) = (Arc::clone(&config), answer.clone());
            thread::Builder::new()
                .name(format!("rank {rank}"))
                .stack_size(STACK_BYTES)
                .spawn(move || Rank::new(rank, config).obey(&orders, &answer))
                .with_context(|| format!("cannot start the thread of rank {rank}"))?;
            Ok(sender)
        })
        .collect::<anyhow::Result<Vec<Sender<Command>>>>()?;
    drop(answer);
    report(&Report::Started { port: None });
    for command in commands {
        if command == Command::Describe {
            describe(|_| {});
            continue;
        }
        for rank in &ranks {
            // A rank that has ended does not answer, which is noticed.
            let _ = rank.send(command);
        }
        if command == Command::AwaitDeath {
            collect(&config, &answers)?;
            report(&Report::Done(Span::default()));
        }
        report(&match collect(&config, &answers)? {
            Answer::Done(span) => Report::Done(span),
            Answer::Learned(learned) => Report::Learned(learned),
            Answer::Waits => return Err(anyhow!("a rank waits again")),
        });
    }
    Ok(())
}

/// Waits for an answer of each rank and returns what they say together.
fn collect(config: &RanksConfig, answers: &Answers) -> anyhow::Result<Answer> {
    let deadline = Instant::now() + Duration::from_secs_f64(config.timeout_secs) + SLACK;
    let (mut together, mut vain_looks) = (None, 0);
    for _ in 0..config.count {
        let answer = loop {
            match answers.recv_timeout(LOOK) {
                Ok(answer) => break answer?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("a rank's thread has ended")),
            }
            // Connecting tries again when there are no descriptors, until its time is over.
            let out = out_of_descriptors();
            vain_looks = if out.is_some() { vain_looks + 1 } else { 0 };
            match out {
                Some(out) if vain_looks == VAIN_LOOKS => return Err(anyhow!(out)),
                _ => ensure!(Instant::now() < deadline, "a rank does not answer"),
            }
        };
        together = Some(match (together, answer) {
            (Some(Answer::Done(one)), Answer::Done(other)) => Answer::Done(one.and(other)),
            (Some(Answer::Learned(one)), Answer::Learned(other)) => Answer::Learned(one.and(other)),
            (_, answer) => answer,
        });
    }
    together.context("a process has no ranks")
}

/// One rank, as far as it has come.
struct Rank {
    rank: usize,
    config: Arc<RanksConfig>,
    world: Option<World>,
    context: Option<ParallelContext>,
}

impl Rank {
    fn new(rank: usize, config: Arc<RanksConfig>) -> Self {
        Self {
            rank,
            config,
            world: None,
            context: None,
        }
    }

    /// Does what it is asked until it cannot.
    fn obey(mut self, orders: &Receiver<Command>, answers: &Sender<anyhow::Result<Answer>>) {
        for order in orders {
            let answer = self.carry_out(order, answers);
            let answer = answer.with_context(|| format!("rank {}", self.rank));
            let has_failed = answer.is_err();
            if answers.send(answer).is_err() || has_failed {
                break;
            }
        }
        // To leave in good order is not measured, and a rank that has failed would wait for others.
        loop {
            thread::park();
        }
    }

    fn carry_out(&mut self, order: Command, answers: &Sender<anyhow::Result<Answer>>) -> anyhow::Result<Answer> {
        let done = match order {
            Command::Join => self.timed(Self::join),
            Command::Connect => self.timed(Self::connect),
            Command::Call { operation, calls } => self.timed(|rank| rank.call(operation, calls)),
            Command::AwaitDeath => return self.await_death(answers).map(Answer::Learned),
            Command::Describe => Err(anyhow!("a rank does not describe itself")),
        };
        done.map(Answer::Done)
    }

    /// Returns when a step began and ended, with the times that it returns.
    fn timed(&mut self, step: impl FnOnce(&mut Self) -> anyhow::Result<Vec<f64>>) -> anyhow::Result<Span> {
        let begin = now();
        let slowest_secs = step(self)?;
        Ok(Span {
            begin,
            end: now(),
            slowest_secs,
        })
    }

    fn join(&mut self) -> anyhow::Result<Vec<f64>> {
        let RanksConfig {
            ranks, ranks_per_node, ..
        } = *self.config;
        let node = self.rank / ranks_per_node;
        let environment = Environment {
            rank: self.rank,
            world_size: ranks,
            local_rank: self.rank % ranks_per_node,
            local_world_size: ranks_per_node.min(ranks - node * ranks_per_node),
            master_addr: "127.0.0.1".into(),
            master_port: self.config.port,
            job_id: None,
            job_token: Some(JobToken::from_text(&self.config.token)),
            store_hosted_elsewhere: true,
            chosen_store_port: None,
            host: Some(format!("node{node:04}/{BOOT}")),
            run_id: None,
            restart_count: None,
        };
        let timeout = Duration::from_secs_f64(self.config.timeout_secs);
        let options = JoinConfig::new().with_all_timeouts(timeout);
        self.world = Some(World::join(&environment, &options)?);
        Ok(Vec::new())
    }

    fn connect(&mut self) -> anyhow::Result<Vec<f64>> {
        let context = self.config.layout.config().init(self.world()?)?;
        self.context = Some(context);
        Ok(Vec::new())
    }

    fn call(&mut self, operation: Operation, calls: u32) -> anyhow::Result<Vec<f64>> {
        let group = self.context()?.world_group();
        let mut seconds = Vec::new();
        for _ in 0..calls {
            let mut sum = [1.0_f64];
            let begun = Instant::now();
            match operation {
                Operation::Barrier => group.barrier()?,
                Operation::AllReduce => group.all_reduce(&mut sum, ReduceOp::Sum)?,
            }
            seconds.push(begun.elapsed().as_secs_f64());
            let expected = match operation {
                Operation::Barrier => 1.0,
                Operation::AllReduce => group.size() as f64,
            };
            ensure!(sum[0] == expected, "the sum is {}, not {expected}", sum[0]);
        }
        Ok(seconds)
    }

    fn await_death(&self, answers: &Sender<anyhow::Result<Answer>>) -> anyhow::Result<Learned> {
        let signal = self.world()?.failure().clone();
        let group = self.context()?.world_group();
        let known = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&known);
        signal.on_raise(Box::new(move || {
            *noted.lock() = Some(now());
        }));
        answers.send(Ok(Answer::Waits))?;
        ensure!(group.barrier().is_err(), "the barrier of a dead rank has returned");
        let returned = now();
        let timeout = Duration::from_secs_f64(self.config.timeout_secs);
        let cause = signal.wait_raised(timeout).context("no first cause has come")?;
        // The callback may run a moment after the cause is there.
        let known = *known.lock();
        Ok(Learned {
            known: known.unwrap_or_else(now),
            returned,
            named: vec![cause.rank],
        })
    }

    fn world(&self) -> anyhow::Result<&World> {
        self.world.as_ref().context("it has not joined")
    }

    fn context(&self) -> anyhow::Result<&ParallelContext> {
        self.context.as_ref().context("it has no groups")
    }
}
