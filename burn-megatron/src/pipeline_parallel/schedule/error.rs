//! `ScheduleError`: a combination of sizes that has no schedule, or a schedule that is wrong.

use std::fmt;

use super::{Pass, Task};

/// One action of one stage's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The stage.
    pub stage: usize,
    /// The index in its list, from 0.
    pub index: usize,
    /// The action, as text.
    pub action: String,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, index, action } = self;
        write!(formatter, "stage {stage}, action {index} ({action})")
    }
}

/// Why there is no such schedule, or what is wrong in one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A name that is not a schedule's.
    #[error(
        "unknown schedule `{text}`: expected gpipe, 1f1b, interleaved, or interleaved:G with a group size G of at \
         least 1"
    )]
    UnknownKind {
        /// The text.
        text: String,
    },
    /// A size of zero.
    #[error("{name} must be at least 1, got 0")]
    Zero {
        /// The size that is zero.
        name: &'static str,
    },
    /// More tasks than a schedule is made for.
    #[error(
        "a schedule has at most {limit} tasks, got {num_stages} stages * {num_chunks} chunks * {num_micro_batches} \
         micro-batches, forward and backward; at most {most} micro-batches fit"
    )]
    TooLarge {
        /// The most tasks.
        limit: usize,
        /// Stages: p.
        num_stages: usize,
        /// Chunks per stage: v.
        num_chunks: usize,
        /// Micro-batches: m.
        num_micro_batches: usize,
        /// The most micro-batches that fit.
        most: usize,
    },
    /// Several chunks in a schedule that has one.
    #[error("the {kind} schedule has 1 chunk per stage, got {num_chunks}; use interleaved for several")]
    SeveralChunks {
        /// The schedule.
        kind: String,
        /// Chunks per stage: v.
        num_chunks: usize,
    },
    /// Nothing to interleave.
    #[error(
        "the interleaved schedule needs at least 2 stages and 2 chunks per stage, got {num_stages} and {num_chunks}; \
         use 1f1b, or raise both to 2 or more"
    )]
    NothingToInterleave {
        /// Stages: p.
        num_stages: usize,
        /// Chunks per stage: v.
        num_chunks: usize,
    },
    /// Fewer micro-batches than an interleaved schedule has stages.
    #[error(
        "the interleaved schedule needs at least {num_stages} micro-batches, one per stage, got {num_micro_batches}; \
         the nearest valid number of micro-batches is {num_stages}"
    )]
    TooFewMicroBatches {
        /// Stages: p.
        num_stages: usize,
        /// Micro-batches: m.
        num_micro_batches: usize,
    },
    /// A group size that does not fit.
    #[error(
        "the group size of the interleaved schedule must be between the stages and the micro-batches, and the \
         micro-batches modulo the group size must be 0 or at least the stages; got group size {group_size}, \
         {num_stages} stages, {num_micro_batches} micro-batches; the nearest valid group sizes are {nearest}{others}"
    )]
    GroupSize {
        /// Micro-batches per group: g.
        group_size: usize,
        /// Stages: p.
        num_stages: usize,
        /// Micro-batches: m.
        num_micro_batches: usize,
        /// The nearest valid group sizes, as text.
        nearest: String,
        /// The nearest valid numbers of micro-batches with this group size, as the end of the sentence.
        others: String,
    },

    /// A number in an action that the schedule does not have.
    #[error("{place}: expected a {what} below {limit}, got {got}")]
    OutOfRange {
        /// The action.
        place: Place,
        /// What is numbered.
        what: &'static str,
        /// How many there are.
        limit: usize,
        /// The number.
        got: usize,
    },
    /// A backward pass in a schedule that has none.
    #[error("{place}: expected no backward pass, the schedule is forward only")]
    UnexpectedBackward {
        /// The action.
        place: Place,
    },
    /// A transfer in the list of a stage that has no part in it.
    #[error("{place}: expected on stage {expected}, which {role} this message")]
    WrongStage {
        /// The action.
        place: Place,
        /// The stage it belongs to.
        expected: usize,
        /// What that stage does with the message.
        role: &'static str,
    },
    /// A transfer with another stage than the one at the other end.
    #[error("{place}: expected stage {expected} at the other end, got stage {got}")]
    WrongPeer {
        /// The action.
        place: Place,
        /// The stage at the other end.
        expected: usize,
        /// The stage that the action names.
        got: usize,
    },
    /// A message of the end of the pipeline, or between the chunks of a single stage.
    #[error("{place}: expected no such message, {reason}")]
    NoSuchMessage {
        /// The action.
        place: Place,
        /// Why there is none.
        reason: &'static str,
    },
    /// An exchange without transfers, or with two through one channel.
    #[error("{place}: expected transfers through channels of their own, got {got}")]
    ExchangeChannels {
        /// The action.
        place: Place,
        /// What is wrong with it.
        got: String,
    },
    /// An action that was done before.
    #[error("{place}: expected {what} once, but {first} did it before")]
    Twice {
        /// The action.
        place: Place,
        /// What is done twice.
        what: String,
        /// Where it was done first.
        first: Place,
    },
    /// A computation that no action does.
    #[error("stage {stage} never runs the {pass} of {task}: expected it exactly once in its {length} actions")]
    Missing {
        /// The stage.
        stage: usize,
        /// Which way.
        pass: Pass,
        /// What.
        task: Task,
        /// The length of the stage's list.
        length: usize,
    },
    /// A send without its receive.
    #[error("{place}: expected stage {peer} to receive the {message}, which it never does")]
    NeverReceived {
        /// The send.
        place: Place,
        /// The stage that should receive.
        peer: usize,
        /// What.
        message: String,
    },
    /// A receive without its send.
    #[error("{place}: expected stage {peer} to send the {message}, which it never does")]
    NeverSent {
        /// The receive.
        place: Place,
        /// The stage that should send.
        peer: usize,
        /// What.
        message: String,
    },
    /// Messages received in another order than they are sent in.
    #[error(
        "{place}: expected the {expected}, which {send} sends as number {number} through this channel, got the {got}"
    )]
    ChannelOrder {
        /// The receive.
        place: Place,
        /// The message that comes.
        expected: String,
        /// Where it is sent.
        send: Box<Place>,
        /// Its number in the channel, from 0.
        number: usize,
        /// The message that the receive names.
        got: String,
    },
    /// A computation before its input.
    #[error("{place}: expected its input before it: {input}")]
    NoInput {
        /// The computation.
        place: Place,
        /// What it needs.
        input: String,
    },
    /// A backward pass before the forward pass.
    #[error("{place}: expected after {forward}")]
    BackwardBeforeForward {
        /// The backward pass.
        place: Place,
        /// Its forward pass.
        forward: Place,
    },
    /// A message sent before it was made.
    #[error("{place}: expected after {made}, which makes the {message}")]
    NotMade {
        /// The send.
        place: Place,
        /// The computation.
        made: Place,
        /// The message.
        message: String,
    },
    /// Stages that wait for each other.
    #[error("deadlock at channel capacity {capacity}: {blocked}")]
    Deadlock {
        /// Messages that a channel takes before their receiver comes.
        capacity: usize,
        /// What every blocked stage waits for.
        blocked: String,
    },
}
