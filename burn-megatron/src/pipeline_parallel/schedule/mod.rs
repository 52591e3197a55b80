//! Schedules as data: what each stage of a pipeline does in one step, as a list of [`Action`]s per stage.
//!
//! Pure integers, no tensors. A schedule is made by [`ScheduleConfig::init`], proven by [`Schedule::check`], timed by
//! [`Schedule::simulate`], drawn by programs, and run by the executor.
//!
//! # Words
//!
//! A pipeline has `p` stages, one per rank of the pipeline group. Each holds `v` chunks of the model. Chunk `c` of
//! stage `s` is virtual stage `c * p + s`: a micro-batch passes the virtual stages in ascending order, and its gradient
//! comes back in descending order.
//!
//! # What the lists mean
//!
//! A stage carries its list out from the first action to the last. A message goes through a channel, one per (sending
//! stage, receiving stage, [`Direction`]), which hands messages over in the order in which they were sent. A channel
//! has a *capacity*: how many messages it takes before their receiver has come to the matching receive. A send into a
//! full channel blocks; at capacity zero sender and receiver meet. An [`Action::Exchange`] does all its transfers at
//! the same time, and ends when all have. A list that is free of deadlock under these rules is so under gentler ones.
//! The executor keeps to capacity zero in its first run on a device; later its sends do not block and its receives are
//! posted early.
//!
//! A pipeline of a single stage has no messages, whatever its number of chunks: what a chunk makes stays where it is
//! needed.

use std::{fmt, slice};

use serde::{Deserialize, Serialize};

mod check;
mod config;
mod error;
mod generate;
mod geometry;
mod simulate;
#[cfg(test)]
mod tests;

pub use check::{ScheduleReport, StageReport};
pub use config::{ScheduleConfig, ScheduleKind};
pub use error::{Place, ScheduleError};
pub use simulate::{Costs, Simulation, Span};

/// Which way a chunk is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// From the inputs to the outputs.
    Forward,
    /// From the gradient of the outputs to the gradient of the inputs.
    Backward,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// An activation, to the next virtual stage.
    Forward,
    /// The gradient of an activation, to the virtual stage before.
    Backward,
}

/// One micro-batch in one chunk of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// The micro-batch, counted from 0 in each step.
    pub micro_batch: usize,
    /// The chunk of the stage.
    pub chunk: usize,
}

/// A message between two stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    /// Which way it goes.
    pub direction: Direction,
    /// The micro-batch.
    pub micro_batch: usize,
    /// The virtual stage that made what is sent.
    pub from: usize,
    /// The other stage: the receiver of what is sent here, the sender of what is received here.
    pub peer: usize,
}

/// What a stage does next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Runs a chunk forward.
    Forward(Task),
    /// Runs a chunk backward.
    Backward(Task),
    /// Sends what a chunk has made.
    Send(Message),
    /// Receives what a chunk needs.
    Recv(Message),
    /// Sends and receives at the same time: one after the other, two stages that both begin with a send would wait for
    /// each other where sends block.
    Exchange {
        /// What is sent, each into a channel of its own.
        sends: Vec<Message>,
        /// What is received, each from a channel of its own.
        recvs: Vec<Message>,
    },
}

/// The lists of all stages for one step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// Chunks per stage: v.
    pub num_chunks: usize,
    /// Micro-batches of the step: m.
    pub num_micro_batches: usize,
    /// Whether there are forward passes only, as in validation.
    pub is_forward_only: bool,
    /// The actions of each stage, in order; one list per stage.
    pub stages: Vec<Vec<Action>>,
}

impl Schedule {
    /// The number of stages: p.
    pub fn num_stages(&self) -> usize {
        self.stages.len()
    }

    /// The virtual stage that is chunk `chunk` of stage `stage`: `chunk * p + stage`.
    pub fn virtual_stage(&self, stage: usize, chunk: usize) -> usize {
        chunk * self.num_stages() + stage
    }
}

impl Action {
    /// What it computes; none where it only moves messages.
    pub fn compute(&self) -> Option<(Pass, Task)> {
        match self {
            Action::Forward(task) => Some((Pass::Forward, *task)),
            Action::Backward(task) => Some((Pass::Backward, *task)),
            _ => None,
        }
    }

    /// What it sends.
    pub fn sends(&self) -> &[Message] {
        match self {
            Action::Send(message) => slice::from_ref(message),
            Action::Exchange { sends, .. } => sends,
            _ => &[],
        }
    }

    /// What it receives.
    pub fn recvs(&self) -> &[Message] {
        match self {
            Action::Recv(message) => slice::from_ref(message),
            Action::Exchange { recvs, .. } => recvs,
            _ => &[],
        }
    }
}

impl Message {
    /// The virtual stage that consumes it; none where a gradient leaves the first one.
    pub fn to(&self) -> Option<usize> {
        match self.direction {
            Direction::Forward => self.from.checked_add(1),
            Direction::Backward => self.from.checked_sub(1),
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Direction::Forward => "activation",
            Direction::Backward => "gradient",
        })
    }
}

impl fmt::Display for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "micro-batch {}, chunk {}", self.micro_batch, self.chunk)
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Pass::Forward => "forward",
            Pass::Backward => "backward",
        })
    }
}

impl fmt::Display for Message {
    /// The message without the other stage, which [`Action`] names.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            direction,
            micro_batch,
            from,
            ..
        } = self;
        write!(
            formatter,
            "{direction} of micro-batch {micro_batch} from virtual stage {from}"
        )
    }
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((pass, task)) = self.compute() {
            return write!(formatter, "{pass} of {task}");
        }
        let sends = self
            .sends()
            .iter()
            .map(|message| format!("send to stage {}: {message}", message.peer));
        let recvs = self
            .recvs()
            .iter()
            .map(|message| format!("receive from stage {}: {message}", message.peer));
        let transfers = sends.chain(recvs).collect::<Vec<_>>().join("; ");
        match self {
            Action::Exchange { .. } => write!(formatter, "exchange [{transfers}]"),
            _ => formatter.write_str(&transfers),
        }
    }
}
