//! [`Launcher`]: starts this executable once per rank on this host, watches over the ranks, and says which failed
//! first. A job on several nodes has one launcher on each; that of node 0 hosts the store.
//!
//! - here: what to launch.
//! - [`job`]: one start of the ranks, from the store to the last end; a job that is restarted has several.
//! - [`meeting`]: the store of a start.
//! - [`joining`]: how the launchers of other nodes find node 0's store.
//! - [`interrupts`]: SIGINT and SIGTERM.
//! - [`children`]: starting, signalling and reaping processes.
//! - [`job_store`]: the job's store, here or on node 0.
//! - [`output`]: the ranks' lines, prefixed, and equal ones merged.
//! - [`watch`]: the loop, from the first start to the last end.
//! - [`summary`]: which rank failed first, and how.

mod children;
mod event;
mod interrupts;
mod job;
mod job_store;
mod joining;
mod meeting;
mod output;
mod summary;
mod watch;

pub use self::output::Prefix;
pub use self::summary::{LaunchSummary, RankEnd, RankOutcome};

use std::env;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use self::event::Event;
use self::interrupts::Interrupts;
use self::job::Job;
use self::meeting::Meeting;
use self::output::OutputOptions;
use super::environment::port;
use super::error::LaunchError;
use super::identity::JobToken;
use super::log_stderr;
use super::network::{chosen_address, store_address};
use super::server::{StoreServer, StoreServerConfig};
use super::variables;
use crate::limits::MAX_WORLD_SIZE;
use crate::ranks::RankSet;

/// Time between the end of all ranks and their next start.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// A launcher's place among those of a job on several nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Number of nodes, at least 1; the ranks are divided evenly among them.
    pub count: usize,
    /// This node's number, below `count`. Node k has the ranks from `k * world_size / count` on.
    pub rank: usize,
    /// Name or address of node 0, by which every node reaches it.
    pub master_addr: String,
    /// The store's port on node 0.
    pub master_port: u16,
}

impl Nodes {
    /// The ranks of this node; the world size is a multiple of the number of nodes.
    fn ranks(&self, world_size: usize) -> Range<usize> {
        let local = world_size / self.count;
        self.rank * local..(self.rank + 1) * local
    }
}

/// Starts this executable once per rank and watches over the ranks.
#[derive(Clone, Debug)]
pub struct Launcher {
    world_size: usize,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    output: OutputOptions,
    master_port: Option<u16>,
    nodes: Option<Nodes>,
    is_on_each_node: bool,
    interface: Option<String>,
    rendezvous_timeout: Duration,
    max_restarts: usize,
    failure_grace: Duration,
    interrupt_grace: Duration,
    heartbeat_limit: Option<Duration>,
    timeout: Duration,
}

impl Launcher {
    /// Returns a launcher of `world_size` ranks with this process's own arguments.
    pub fn new(world_size: usize) -> Launcher {
        Launcher {
            world_size,
            arguments: env::args_os().skip(1).collect(),
            environment: Vec::new(),
            output: OutputOptions {
                prefix: Prefix::All,
                logged: None,
            },
            master_port: None,
            nodes: None,
            is_on_each_node: false,
            interface: None,
            rendezvous_timeout: Duration::from_secs(600),
            max_restarts: 0,
            failure_grace: Duration::from_secs(3),
            interrupt_grace: Duration::from_secs(10),
            heartbeat_limit: None,
            timeout: Duration::from_secs(600),
        }
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// Sets the ranks' arguments, without the program's name.
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Launcher {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an environment variable for the ranks; the launcher's own variables win.
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Launcher {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets whose output is prefixed: all of it unless set.
    pub fn prefix(mut self, prefix: Prefix) -> Launcher {
        self.output.prefix = prefix;
        self
    }

    /// Sets whose output is printed: that of all ranks unless set. What passes without a [`Prefix`] is printed in any
    /// case, and the last lines of a rank that failed first.
    pub fn log_ranks(mut self, ranks: RankSet) -> Launcher {
        self.output.logged = Some(ranks);
        self
    }

    /// Sets the store's port: MASTER_PORT, or any free port if that is not set either.
    pub fn master_port(mut self, port: u16) -> Launcher {
        self.master_port = Some(port);
        self
    }

    /// Makes this the launcher of one of several nodes; each starts its share of the ranks. `BURN_MEGATRON_JOB_TOKEN`
    /// must hold the same secret on all. One node is the same as none.
    pub fn nodes(mut self, nodes: Nodes) -> Launcher {
        self.nodes = (nodes.count != 1 || nodes.rank != 0).then_some(nodes);
        self.is_on_each_node |= self.nodes.is_some();
        self
    }

    /// Makes this one of several launchers, one on each node, even if no other node takes part: where `srun` or
    /// `mpirun` has started it, it is no rank itself.
    pub fn on_each_node(mut self) -> Launcher {
        self.is_on_each_node = true;
        self
    }

    /// Sets the interface that the store and the ranks listen on, by name, address or network (`eth0`, `10.0.0.5`,
    /// `10.0.0.0/8`): BURN_MEGATRON_INTERFACE unless set, and without that loopback for a job on one node, else the
    /// interface of [`Nodes::master_addr`].
    pub fn interface(mut self, interface: impl Into<String>) -> Launcher {
        self.interface = Some(interface.into());
        self
    }

    /// Returns whether there is a launcher on each of several nodes.
    pub fn is_on_each_node(&self) -> bool {
        self.is_on_each_node
    }

    /// Sets how long to wait for node 0's store: 10 minutes unless set.
    pub fn rendezvous_timeout(mut self, timeout: Duration) -> Launcher {
        self.rendezvous_timeout = timeout;
        self
    }

    /// Sets how many times all ranks are started again when one has failed: never unless set.
    ///
    /// The ranks of a restarted job are new processes with the same arguments;
    /// [`Environment::restarts`](super::Environment::restarts) says which start they are of. A job that is interrupted
    /// or asked to stop is not restarted. On several nodes each launcher must have the same number; node 0 counts.
    pub fn max_restarts(mut self, count: usize) -> Launcher {
        self.max_restarts = count;
        self
    }

    /// Returns whether the ranks would be started again.
    pub fn restarts(&self) -> bool {
        self.max_restarts > 0
    }

    /// Returns whether it matters that a signal has come to another launcher: only of a job that is started again.
    fn asks_for_interrupts(&self) -> bool {
        self.nodes.is_some() && self.restarts()
    }

    /// Sets how long the ranks may take to end on their own when one has failed: 3 s unless set. Then they get
    /// SIGTERM, and SIGKILL 2 s later.
    pub fn failure_grace(mut self, grace: Duration) -> Launcher {
        self.failure_grace = grace;
        self
    }

    /// Sets how long the ranks may take to end after Ctrl-C or SIGTERM: 10 s unless set. Then they get SIGKILL.
    pub fn interrupt_grace(mut self, grace: Duration) -> Launcher {
        self.interrupt_grace = grace;
        self
    }

    /// Sets the longest silence of node 0, and the ranks' own timeout, which bounds it: as the ranks'
    /// [`JoinConfig`](super::JoinConfig) say.
    pub fn heartbeat_limit(mut self, limit: Option<Duration>, timeout: Duration) -> Launcher {
        (self.heartbeat_limit, self.timeout) = (limit, timeout);
        self
    }

    /// Runs the ranks until all have ended for good, and returns how. Prints to stderr which rank failed first, if one
    /// did, and each restart.
    ///
    /// Call it from the main thread, or one that lives until it returns: the kernel kills the ranks when the thread
    /// that started them ends. SIGINT and SIGTERM stay caught afterwards; the caller is expected to exit.
    ///
    /// # Errors
    /// There is no such interface; the nodes' numbers do not fit, they have no common secret, node 0's store cannot be
    /// reached or refuses this node; the store's port is taken, a rank cannot be started (those that were are killed),
    /// or a rank survives SIGKILL.
    pub fn run(self) -> Result<LaunchSummary, LaunchError> {
        if self.world_size == 0 {
            return Err(LaunchError::EmptyWorld);
        }
        if self.world_size > MAX_WORLD_SIZE {
            return Err(LaunchError::InvalidNodes {
                what: "world size",
                value: self.world_size,
                rule: format!("must be at most {MAX_WORLD_SIZE}; valid: 1 to {MAX_WORLD_SIZE}"),
            });
        }
        if let Some(rank) = self.output.logged.as_ref().and_then(RankSet::last)
            && rank >= self.world_size
        {
            return Err(LaunchError::InvalidNodes {
                what: "rank to log",
                value: rank,
                rule: format!("must be below the world size; valid: 0 to {}", self.world_size - 1),
            });
        }
        let job = Job::new(&self)?;
        let mut restarts = 0;
        let mut run = None;
        // Until node 0 is there, signals end this process as any other: nothing has been started.
        let mut interrupts: Option<Interrupts> = None;
        let mut last: Option<LaunchSummary> = None;
        loop {
            let (events, inbox) = mpsc::channel();
            let Some(meeting) = job.meet(restarts, &events, interrupts.as_ref())? else {
                let last = last.expect("signals are caught once the ranks have been started");
                let interrupted = last.interrupted(interrupts.as_ref().and_then(Interrupts::signal));
                log_stderr(format_args!("[launcher] {interrupted}"));
                return Ok(interrupted);
            };
            match &interrupts {
                Some(interrupts) => interrupts.tell(events.clone()),
                None => interrupts = Some(Interrupts::watch(events.clone())?),
            }
            let run = run.get_or_insert_with(|| meeting.job_id.clone());
            let summary = job.play(&meeting, run, events, &inbox)?;
            let is_last = meeting.restarts >= self.max_restarts || meeting.store.has_lost_a_launcher();
            if is_last || !summary.asks_for_restart() {
                if is_last || !summary.is_end_of_interrupted_node() {
                    return Ok(summary);
                }
                let signal = interrupts.as_ref().and_then(Interrupts::signal);
                match signal {
                    Some(signal) => log_stderr(format_args!(
                        "[launcher] no restart: {} came",
                        summary::signal_text(signal)
                    )),
                    None => log_stderr(format_args!("[launcher] no restart: a signal has ended another node")),
                }
                return Ok(summary.interrupted(signal));
            }
            restarts = meeting.restarts + 1;
            log_stderr(format_args!(
                "[launcher] restart {restarts} of at most {}: all ranks start again",
                self.max_restarts
            ));
            last = Some(summary);
            // Also the store ends, so that the next one can have its port.
            drop(meeting);
            thread::sleep(RESTART_PAUSE);
        }
    }

    /// The ranks of this node.
    fn local_ranks(&self) -> Result<Range<usize>, LaunchError> {
        let Some(nodes) = &self.nodes else {
            return Ok(0..self.world_size);
        };
        let Nodes { count, rank, .. } = *nodes;
        let invalid = |what, value, rule| Err(LaunchError::InvalidNodes { what, value, rule });
        if count == 0 {
            return invalid("number of nodes", count, "must be at least 1; valid: 1 or more".into());
        }
        if rank >= count {
            let rule = format!("must be below the number of nodes, {count}; valid: 0 to {}", count - 1);
            return invalid("node rank", rank, rule);
        }
        if !self.world_size.is_multiple_of(count) {
            let below = self.world_size / count * count;
            let rule = match below {
                0 => format!("must be a multiple of the number of nodes, {count}; valid: {count}"),
                _ => format!(
                    "must be a multiple of the number of nodes, {count}; nearest valid: {below} and {}",
                    below + count
                ),
            };
            return invalid("world size", self.world_size, rule);
        }
        Ok(nodes.ranks(self.world_size))
    }

    fn start_store(
        &self,
        job_id: &str,
        token: &JobToken,
        events: mpsc::Sender<Event>,
    ) -> Result<StoreServer, LaunchError> {
        let chosen_by_hand = env::var(variables::MASTER_PORT).ok();
        let interface = chosen_address(self.interface.as_deref())?;
        let loopback = |port| SocketAddr::new(interface.unwrap_or(Ipv4Addr::LOCALHOST.into()), port);
        let listen = match (&self.nodes, self.master_port, chosen_by_hand) {
            (Some(nodes), _, _) => store_address(&nodes.master_addr, nodes.master_port, false, interface)?,
            (None, Some(port), _) => loopback(port),
            (None, None, Some(value)) => loopback(port(variables::MASTER_PORT, value)?),
            (None, None, None) => loopback(0),
        };
        StoreServer::start(StoreServerConfig {
            listen,
            port_variable: variables::MASTER_PORT,
            world_size: self.world_size,
            job_id: job_id.to_string(),
            token: token.clone(),
            // The receiver may be gone already: then all ranks have ended.
            on_failure: Some(Box::new(move |_| drop(events.send(Event::FailureReported)))),
        })
    }

    /// The variables of every rank; [`Children`] adds those that differ from rank to rank.
    fn rank_environment(&self, meeting: &Meeting, run: &str, local_world_size: usize) -> Vec<(OsString, OsString)> {
        let (master_addr, master_port) = &meeting.master;
        let mut environment = self.environment.clone();
        let sets_threads = env::var_os("RAYON_NUM_THREADS").is_some()
            || environment.iter().any(|(name, _)| name == "RAYON_NUM_THREADS");
        let mut set = |name: &str, value: String| environment.push((name.into(), value.into()));
        if !sets_threads {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            set("RAYON_NUM_THREADS", (cores / local_world_size).max(1).to_string());
        }
        set(variables::WORLD_SIZE, self.world_size.to_string());
        set(variables::LOCAL_WORLD_SIZE, local_world_size.to_string());
        set(variables::MASTER_ADDR, master_addr.clone());
        set(variables::MASTER_PORT, master_port.to_string());
        set(variables::JOB_ID, meeting.job_id.clone());
        set(variables::JOB_TOKEN, meeting.token.to_text());
        if self.restarts() {
            set(variables::RUN, run.to_owned());
        }
        set(variables::RESTARTS, meeting.restarts.to_string());
        set(variables::STORE_HOSTED, "1".into());
        if let Some(interface) = &self.interface {
            set(variables::INTERFACE, interface.clone());
        }
        environment
    }
}
