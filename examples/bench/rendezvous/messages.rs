//! What this program and its child processes say to each other: a line of JSON each, over the child's stdin and stdout.

use serde::{Deserialize, Serialize};

use crate::rendezvous::layout::Layout;

/// What a child process is: the first line that it reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Child {
    /// The store of a job.
    Store { ranks: usize, token: String },
    /// Some of its ranks.
    Ranks(RanksConfig),
}

/// The ranks of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RanksConfig {
    /// Its first rank.
    pub first: usize,
    /// How many it has.
    pub count: usize,
    /// Those of the job.
    pub ranks: usize,
    /// Those of a node.
    pub ranks_per_node: usize,
    /// The axes.
    pub layout: Layout,
    /// Where the store is.
    pub port: u16,
    /// The job's secret.
    pub token: String,
    /// The longest wait for another rank.
    pub timeout_secs: f64,
}

/// What a child process is to do, all of its ranks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Ranks: join the job.
    Join,
    /// Ranks: make all groups of the layout.
    Connect,
    /// Ranks: make calls of the whole world.
    Call { operation: Operation, calls: u32 },
    /// Ranks: enter a barrier, and wait for the death of a rank.
    AwaitDeath,
    /// Say what the process uses.
    Describe,
}

/// A call of the whole world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    Barrier,
    /// Of 8 bytes.
    AllReduce,
}

/// What a child process answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// It has started; the store says where it listens.
    Started { port: Option<u16> },
    /// Its ranks have done what they were asked.
    Done(Span),
    /// Its ranks have learned of a death.
    Learned(Learned),
    /// What it uses.
    Usage(Usage),
    /// It cannot do it.
    Failed(String),
}

/// When ranks did something, in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// When the first one began.
    pub begin: f64,
    /// When the last one was done.
    pub end: f64,
    /// Of calls, how long each took on the slowest rank.
    pub slowest_secs: Vec<f64>,
}

impl Span {
    /// Returns the span of this and another process, or rank.
    pub fn and(self, other: Span) -> Span {
        let pairs = self.slowest_secs.iter().zip(&other.slowest_secs);
        Span {
            begin: self.begin.min(other.begin),
            end: self.end.max(other.end),
            slowest_secs: pairs.map(|(one, other)| one.max(*other)).collect(),
        }
    }
}

/// How ranks learned of a death.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// When the last one knew the first cause, in seconds since 1970.
    pub known: f64,
    /// When the last one's call had returned.
    pub returned: f64,
    /// The ranks that were named, each once.
    pub named: Vec<usize>,
}

impl Learned {
    /// Returns what this and another process, or rank, have learned.
    pub fn and(mut self, other: Learned) -> Learned {
        self.named.extend(other.named);
        self.named.sort_unstable();
        self.named.dedup();
        Learned {
            known: self.known.max(other.known),
            returned: self.returned.max(other.returned),
            named: self.named,
        }
    }
}

/// What a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Open sockets.
    pub sockets: usize,
    /// Threads.
    pub threads: usize,
    /// Resident bytes.
    pub resident: u64,
    /// Calls of `write` and `writev`, as Linux counts them; those of `send` are not among them.
    pub writes: u64,
    /// Messages of the store, both ways.
    pub store_messages: u64,
    /// Their bytes.
    pub store_bytes: u64,
    /// Connections that the store has accepted.
    pub store_connections: u64,
}
