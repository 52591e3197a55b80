//! The store's messages and their bytes on the wire.
//!
//! A frame is a length (4 bytes, little endian) and a body of that many bytes; a body is a [`Request`] or a [`Reply`]
//! as postcard writes it, within the limits of [`encoding`]. The frame's length is checked before anything is
//! allocated, and the body is read as its bytes arrive.
//!
//! Used by both ends: `client` and `monitor` with [`std::io`], `server` with tokio.

mod encoding;
mod node_table;
mod run;

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
#[cfg(feature = "tcp")]
use tokio::io::{AsyncRead, AsyncReadExt};

pub(crate) use self::node_table::NodeTable;
pub(crate) use self::run::Runs;
use crate::launch::peer_failure::PeerFailure;

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 4 << 10;
/// Longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 20;
/// Longest value of a gathering, in bytes.
pub(crate) const MAX_GATHERED_VALUE_BYTES: usize = 4 << 10;
/// Longest text (reasons, host names), in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Longest body of a frame: a `Set` of the longest key and value.
pub(in crate::launch) const MAX_FRAME_BYTES: usize = MAX_VALUE_BYTES + MAX_KEY_BYTES + 64;
/// Longest text that a heartbeat carries, in bytes.
const MAX_PROGRESS_BYTES: usize = 256;
/// First allocation for a body; more follows only as bytes arrive.
const FIRST_ALLOCATION_BYTES: usize = 64 << 10;

/// What a rank asks of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::launch) enum Request {
    /// Registers a rank; from now on this connection stands for the rank. Answered when all are there.
    Hello {
        rank: usize,
        world_size: usize,
        #[serde(serialize_with = "encoding::text")]
        host: String,
        #[serde(with = "encoding::millis")]
        timeout: Duration,
    },
    /// Ends what `Hello` or `Watch` began: the peer has left in good order.
    Goodbye,
    /// Sets a key, new or not.
    Set {
        #[serde(serialize_with = "encoding::key")]
        key: String,
        #[serde(with = "encoding::bytes")]
        value: Vec<u8>,
    },
    /// Asks for a key's value; answered when it exists.
    Wait {
        #[serde(serialize_with = "encoding::key")]
        key: String,
        #[serde(with = "encoding::millis")]
        timeout: Duration,
    },
    /// Adds to a counter, which begins at 0; answered with its new value.
    Add {
        #[serde(serialize_with = "encoding::key")]
        key: String,
        delta: i64,
    },
    /// Removes a key, if it exists.
    Delete {
        #[serde(serialize_with = "encoding::key")]
        key: String,
    },
    /// Reports the failure of a rank.
    Fail(#[serde(serialize_with = "encoding::failure")] PeerFailure),
    /// Registers the launcher of a further node; from now on this connection stands for it.
    Watch {
        node_rank: usize,
        world_size: usize,
        #[serde(serialize_with = "encoding::text")]
        host: String,
        /// Those that it starts.
        ranks: Range<usize>,
    },
    /// Says that a rank's process has ended, which only its launcher can see.
    Ended {
        rank: usize,
        #[serde(serialize_with = "encoding::text")]
        host: String,
        #[serde(serialize_with = "encoding::text")]
        what: String,
    },
    /// Says that the process at the other end runs and is reached; answered with `Heard`.
    Heartbeat {
        /// The silence after which it counts as lost.
        #[serde(with = "encoding::millis")]
        limit: Duration,
        /// How far it has come.
        #[serde(serialize_with = "encoding::progress")]
        progress: String,
    },
    /// Asks what is known of a rank.
    AskRank { rank: usize },
    /// A heartbeat of a peer for which another connection stands, which does not carry it for now.
    RelayedHeartbeat {
        peer: PeerId,
        #[serde(with = "encoding::millis")]
        limit: Duration,
        #[serde(serialize_with = "encoding::progress")]
        progress: String,
    },
    /// Says something to all members of some groups; answered with what each has said once all have, in all groups.
    Gather {
        #[serde(deserialize_with = "encoding::list")]
        sayings: Vec<Saying>,
        #[serde(with = "encoding::millis")]
        timeout: Duration,
    },
}

/// What a process says to all members of a group, of which it is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saying {
    /// Names the group, and what it gathers; for this once.
    #[serde(serialize_with = "encoding::key")]
    pub(crate) key: String,
    /// The member's, below `size`.
    pub(crate) index: usize,
    pub(crate) size: usize,
    #[serde(with = "encoding::bytes")]
    pub(crate) value: Vec<u8>,
}

/// The first group of several whose members have not all said something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Absent {
    /// Its place among the sayings of the request.
    pub(crate) saying: usize,
    /// The first members that have said nothing.
    #[serde(deserialize_with = "encoding::list")]
    pub(crate) members: Vec<usize>,
}

/// For whom a connection may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::launch) enum PeerId {
    Rank(usize),
    /// The launcher of a node.
    Launcher(usize),
}

/// What the store says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::launch) enum Reply {
    /// The request is done.
    Done,
    /// The value that a `Wait` asked for.
    Value(#[serde(with = "encoding::bytes")] Arc<[u8]>),
    /// A counter's new value.
    Count(i64),
    /// A `Wait` has run out of time.
    TimedOut,
    /// The request breaks a rule.
    Rejected(#[serde(serialize_with = "encoding::text")] String),
    /// A rank has failed: sent once to every registered rank, and to those that wait for a key.
    Failed(#[serde(serialize_with = "encoding::failure")] PeerFailure),
    /// All ranks have registered: the job's id, the node of each rank, and the host of rank 0.
    Roster {
        #[serde(serialize_with = "encoding::text")]
        job_id: String,
        nodes: NodeTable,
        #[serde(serialize_with = "encoding::text")]
        first_host: String,
    },
    /// The rendezvous has run out of time: the ranks that have not registered.
    Missing(#[serde(deserialize_with = "encoding::list")] Vec<usize>),
    /// The store ends in good order.
    Closing,
    /// A launcher is registered: the job's id.
    Welcome {
        #[serde(serialize_with = "encoding::text")]
        job_id: String,
    },
    /// A heartbeat has arrived.
    Heard,
    /// What is known of a rank.
    Rank(RankStatus),
    /// The peer is not there: it has not come, or has left.
    NotPresent,
    /// What the members of each group have said.
    Gathered(#[serde(deserialize_with = "encoding::list")] Vec<Runs>),
    /// A `Gather` has run out of time.
    Absent(Absent),
}

/// What the store knows of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::launch) struct RankStatus {
    /// Identity of its host; empty before it has come.
    #[serde(serialize_with = "encoding::text")]
    pub(in crate::launch) host: String,
    /// None if it has sent no heartbeat yet, or has left.
    pub(in crate::launch) heartbeats: Option<HeartbeatStatus>,
}

/// What the store knows of a rank's heartbeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::launch) struct HeartbeatStatus {
    /// Time since the last one.
    #[serde(with = "encoding::millis")]
    pub(in crate::launch) silence: Duration,
    /// The silence after which the rank counts as lost.
    #[serde(with = "encoding::millis")]
    pub(in crate::launch) limit: Duration,
    /// How far the rank had come.
    #[serde(serialize_with = "encoding::progress")]
    pub(in crate::launch) progress: String,
}

/// A body that is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub(in crate::launch) struct Malformed(&'static str);

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, malformed)
    }
}

impl Request {
    /// Returns the frame of this request.
    pub(in crate::launch) fn to_frame(&self) -> Vec<u8> {
        frame(self)
    }

    /// Reads a request from a frame's body.
    pub(in crate::launch) fn from_body(body: &[u8]) -> Result<Request, Malformed> {
        encoding::decode(body)
    }
}

impl Reply {
    /// Returns the frame of this reply.
    pub(in crate::launch) fn to_frame(&self) -> Vec<u8> {
        frame(self)
    }

    /// Reads a reply from a frame's body.
    pub(in crate::launch) fn from_body(body: &[u8]) -> Result<Reply, Malformed> {
        encoding::decode(body)
    }
}

fn frame(message: &impl Serialize) -> Vec<u8> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).expect("keys and values were checked");
    set_length(&mut frame, 0);
    frame
}

/// Returns the beginning of the frame of [`Reply::Gathered`], after which the groups' [`Runs`] follow, as
/// [`Runs::to_bytes`] gives them: they are written once, however many members get them.
#[cfg(feature = "tcp")]
pub(in crate::launch) fn beginning_of_gathered(groups: &[Arc<[u8]>]) -> Vec<u8> {
    let mut beginning = Reply::Gathered(vec![]).to_frame();
    // The number of groups is the last field.
    beginning.pop();
    let mut beginning = postcard::to_extend(&groups.len(), beginning).expect("there is room");
    set_length(&mut beginning, groups.iter().map(|runs| runs.len()).sum());
    beginning
}

/// Fills in the length of a frame of which `following` bytes are elsewhere.
fn set_length(frame: &mut [u8], following: usize) {
    let length = (frame.len() - 4 + following) as u32;
    frame[..4].copy_from_slice(&length.to_le_bytes());
}

/// Reads one frame's body; `UnexpectedEof` if the other end has closed.
pub(in crate::launch) fn read_body(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    reader.read_exact(&mut length)?;
    let length = checked_length(length)?;
    let mut body = Vec::with_capacity(length.min(FIRST_ALLOCATION_BYTES));
    reader.take(length as u64).read_to_end(&mut body)?;
    whole(body, length)
}

/// Like [`read_body`], on tokio. Not cancel-safe.
#[cfg(feature = "tcp")]
pub(in crate::launch) async fn read_body_async(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    reader.read_exact(&mut length).await?;
    let length = checked_length(length)?;
    let mut body = Vec::with_capacity(length.min(FIRST_ALLOCATION_BYTES));
    reader.take(length as u64).read_to_end(&mut body).await?;
    whole(body, length)
}

fn checked_length(bytes: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(bytes) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(Malformed("a frame is longer than its limit").into());
    }
    Ok(length)
}

fn whole(body: Vec<u8>, length: usize) -> io::Result<Vec<u8>> {
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(body)
}

#[cfg(test)]
mod tests;
