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
#[allow(missing_docs, reason = "the messages say it")]
pub enum ScheduleError {
    #[error(
        "unknown schedule `{text}`: expected gpipe, 1f1b, interleaved, or interleaved:G with a group size G of at \
         least 1"
    )]
    UnknownKind { text: String },
    #[error("{name} must be at least 1, got 0")]
    Zero { name: &'static str },
    #[error(
        "a schedule has at most {limit} tasks, got {num_stages} stages * {num_chunks} chunks * {num_micro_batches} \
         micro-batches, forward and backward; at most {most} micro-batches fit"
    )]
    TooLarge {
        limit: usize,
        num_stages: usize,
        num_chunks: usize,
        num_micro_batches: usize,
        most: usize,
    },
    #[error("the {kind} schedule has 1 chunk per stage, got {num_chunks}; use interleaved for several")]
    SeveralChunks { kind: String, num_chunks: usize },
    #[error(
        "the interleaved schedule needs at least 2 stages and 2 chunks per stage, got {num_stages} and {num_chunks}; \
         use 1f1b, or raise both to 2 or more"
    )]
    NothingToInterleave { num_stages: usize, num_chunks: usize },
    #[error(
        "the interleaved schedule needs at least {num_stages} micro-batches, one per stage, got {num_micro_batches}; \
         the nearest valid number of micro-batches is {num_stages}"
    )]
    TooFewMicroBatches {
        num_stages: usize,
        num_micro_batches: usize,
    },
    #[error(
        "the group size of the interleaved schedule must be between the stages and the micro-batches, and the \
         micro-batches modulo the group size must be 0 or at least the stages; got group size {group_size}, \
         {num_stages} stages, {num_micro_batches} micro-batches; the nearest valid group sizes are {nearest}{others}"
    )]
    GroupSize {
        group_size: usize,
        num_stages: usize,
        num_micro_batches: usize,
        nearest: String,
        /// The nearest valid numbers of micro-batches with this group size, as the end of the sentence.
        others: String,
    },

    /// A number in an action that the schedule does not have.
    #[error("{place}: expected a {what} below {limit}, got {got}")]
    OutOfRange {
        place: Place,
        what: &'static str,
        limit: usize,
        got: usize,
    },
    #[error("{place}: expected no backward pass, the schedule is forward only")]
    UnexpectedBackward { place: Place },
    #[error("{place}: expected on stage {expected}, which {role} this message")]
    WrongStage {
        place: Place,
        expected: usize,
        role: &'static str,
    },
    #[error("{place}: expected stage {expected} at the other end, got stage {got}")]
    WrongPeer { place: Place, expected: usize, got: usize },
    /// A message of the end of the pipeline, or between the chunks of a single stage.
    #[error("{place}: expected no such message, {reason}")]
    NoSuchMessage { place: Place, reason: &'static str },
    /// An exchange without transfers, or with two through one channel.
    #[error("{place}: expected transfers through channels of their own, got {got}")]
    ExchangeChannels { place: Place, got: String },
    #[error("{place}: expected {what} once, but {first} did it before")]
    Twice { place: Place, what: String, first: Place },
    #[error("stage {stage} never runs the {pass} of {task}: expected it exactly once in its {length} actions")]
    Missing {
        stage: usize,
        pass: Pass,
        task: Task,
        length: usize,
    },
    #[error("{place}: expected stage {peer} to receive the {message}, which it never does")]
    NeverReceived { place: Place, peer: usize, message: String },
    #[error("{place}: expected stage {peer} to send the {message}, which it never does")]
    NeverSent { place: Place, peer: usize, message: String },
    #[error(
        "{place}: expected the {expected}, which {send} sends as number {number} through this channel, got the {got}"
    )]
    ChannelOrder {
        place: Place,
        expected: String,
        send: Box<Place>,
        /// Its number in the channel, from 0.
        number: usize,
        got: String,
    },
    #[error("{place}: expected its input before it: {input}")]
    NoInput { place: Place, input: String },
    #[error("{place}: expected after {forward}")]
    BackwardBeforeForward { place: Place, forward: Place },
    #[error("{place}: expected after {made}, which makes the {message}")]
    NotMade { place: Place, made: Place, message: String },
    #[error("deadlock at channel capacity {capacity}: {blocked}")]
    Deadlock { capacity: usize, blocked: String },
}
