//! What can go wrong in a collective. Ranks in messages are global ranks.

use crate::launch::{LaunchError, PeerFailure};
use std::io;

/// Why a collective, or the making of a group, failed. `group` is the name and the ranks of the group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CollectiveError {
    /// The arguments make no sense on this rank alone. Nothing was communicated and the group
    /// stays usable.
    #[error("group {group}: {operation} refused: {what}")]
    InvalidArgument {
        group: String,
        /// The operation, or `connect`.
        operation: String,
        what: String,
    },
    /// Two ranks made different calls at the same place in the order of calls.
    #[error("rank {rank} of group {group} called {call} while rank {other_rank} called {other_call}{progress}")]
    Mismatch {
        group: String,
        rank: usize,
        call: String,
        other_rank: usize,
        other_call: String,
        /// How far the two ranks have come, `; rank 1 has made 2 steps`, or nothing if they have not said so.
        progress: Box<str>,
    },
    /// A thread made a call that belongs to another thread of this rank; see the threads of a
    /// [`ProcessGroup`](super::ProcessGroup#threads). The group fails: the calls of two threads may come in another
    /// order on another rank.
    #[error(
        "group {group}: thread {thread} called {call}, but the group's {calls} belong to thread {owner}: connect a \
         group for each thread, or let the other thread call ProcessGroup::hand_over first"
    )]
    OtherThread {
        group: String,
        /// The thread that was refused, and the rank of both.
        thread: Box<str>,
        /// Its call, and where it was made.
        call: String,
        /// Which calls of the group belong to the other thread.
        calls: Box<str>,
        /// That thread, its last call, and where it was made.
        owner: Box<str>,
    },
    #[error(
        "group {group}: {call} timed out after {timeout_secs} s without progress, still missing: \
         ranks {missing:?}"
    )]
    Timeout {
        group: String,
        /// The call that waited, or `connect`.
        call: String,
        timeout_secs: f64,
        missing: Vec<usize>,
    },
    #[error("group {group}: {call} stopped because {failure}")]
    PeerFailed {
        group: String,
        call: String,
        failure: PeerFailure,
    },
    /// A rank gave the group up, on purpose or after an error of its own.
    #[error("group {group}: {call} stopped because rank {rank} gave the group up: {cause}")]
    PeerLeft {
        group: String,
        call: String,
        rank: usize,
        cause: String,
    },
    /// A rank has nothing to give to a call, and so does not make it.
    #[error("group {group}: this rank cannot take part in {call}: {why}")]
    NoInput { group: String, call: String, why: String },
    #[error("group {group}: {call} lost the connection to rank {rank}: {what}")]
    ConnectionLost {
        group: String,
        call: String,
        rank: usize,
        what: String,
    },
    /// The device, or the library that communicates for it, refuses a call.
    #[error("group {group}: {call} failed on the device: {what}")]
    Device { group: String, call: String, what: String },
    #[error("group {group}: {call} refused (secondary error), the group failed first: {first}")]
    Poisoned { group: String, call: String, first: String },
    /// The group could not be made for want of something local: memory, a socket, a thread.
    #[error("group {group}: cannot {what}: {source}")]
    Setup {
        group: String,
        what: String,
        source: io::Error,
    },
    /// The ranks could not agree on how to connect, or were given different things to compute on.
    #[error("group {group}: {what}")]
    NoAgreement { group: String, what: String },
    #[error("group {group}: the store failed during connect: {source}")]
    Store { group: String, source: LaunchError },
}

impl CollectiveError {
    /// Returns the error of a part of a group as one of the whole `group`, in its `call`. A mismatch keeps its calls.
    #[doc(hidden)]
    pub fn of_whole_group(mut self, whole_group: String, whole_call: String) -> Self {
        match &mut self {
            CollectiveError::Timeout { group, call, .. }
            | CollectiveError::PeerFailed { group, call, .. }
            | CollectiveError::PeerLeft { group, call, .. }
            | CollectiveError::NoInput { group, call, .. }
            | CollectiveError::ConnectionLost { group, call, .. }
            | CollectiveError::Device { group, call, .. }
            | CollectiveError::Poisoned { group, call, .. } => (*group, *call) = (whole_group, whole_call),
            CollectiveError::InvalidArgument { group, .. }
            | CollectiveError::Mismatch { group, .. }
            | CollectiveError::OtherThread { group, .. }
            | CollectiveError::Setup { group, .. }
            | CollectiveError::NoAgreement { group, .. }
            | CollectiveError::Store { group, .. } => *group = whole_group,
        }
        self
    }

    /// Returns the error with what the caller calls the call that it is about.
    pub(super) fn noted(mut self, note: &str) -> Self {
        if let Self::Timeout { call, .. }
        | Self::PeerFailed { call, .. }
        | Self::NoInput { call, .. }
        | Self::PeerLeft { call, .. }
        | Self::ConnectionLost { call, .. }
        | Self::Device { call, .. }
        | Self::OtherThread { call, .. }
        | Self::Poisoned { call, .. } = &mut self
        {
            call.push_str(&format!(" [{note}]"));
        }
        self
    }
}
