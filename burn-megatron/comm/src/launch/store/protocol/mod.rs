//! The store's messages and their bytes on the wire.
//!
//! A frame is a length (4 bytes, little endian) and a body of that many bytes; a body is one byte of kind, then its
//! fields. Numbers are little endian; texts, values and lists carry their length first. Every length is checked against
//! its limit, and against the bytes at hand, before anything is allocated.
//!
//! Used by both ends: `client` and `monitor` with [`std::io`], `server` with tokio.

use std::io::{self, Read};
use std::ops::Range;
use std::time::Duration;

#[cfg(feature = "tcp")]
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::launch::peer_failure::PeerFailure;

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 4 << 10;
/// Longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 20;
/// Longest text (reasons, host names), in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Longest body of a frame: a `Set` of the longest key and value.
pub(in crate::launch) const MAX_FRAME_BYTES: usize = MAX_VALUE_BYTES + MAX_KEY_BYTES + 64;
/// Longest text that a heartbeat carries, in bytes.
const MAX_PROGRESS_BYTES: usize = 256;
/// First allocation for a body; more follows only as bytes arrive.
const FIRST_ALLOCATION_BYTES: usize = 64 << 10;

/// What a rank asks of the store.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::launch) enum Request {
    /// Registers a rank; from now on this connection stands for the rank's life. Answered when all are there.
    Hello {
        rank: usize,
        world_size: usize,
        host: String,
        timeout: Duration,
    },
    /// Ends the life that `Hello` began: the rank has left in good order.
    Goodbye,
    /// Sets a key, new or not.
    Set { key: String, value: Vec<u8> },
    /// Asks for a key's value; answered when it exists.
    Wait { key: String, timeout: Duration },
    /// Adds to a counter, which begins at 0; answered with its new value.
    Add { key: String, delta: i64 },
    /// Removes a key, if it exists.
    Delete { key: String },
    /// Reports the failure of a rank.
    Fail(PeerFailure),
    /// Registers the launcher of a further node; from now on this connection stands for its life.
    Watch {
        node_rank: usize,
        world_size: usize,
        host: String,
        /// Those that it starts.
        ranks: Range<usize>,
    },
    /// Says that a rank's process has ended, which only its launcher can see.
    Ended { rank: usize, host: String, what: String },
    /// Says that the process at the other end of a life runs and is reached; answered with `Heard`.
    Heartbeat {
        /// The silence after which it counts as lost.
        limit: Duration,
        /// How far it has come.
        progress: String,
    },
    /// Asks when a rank was last heard.
    AskPulse { rank: usize },
    /// A heartbeat of a life that another connection stands for, and does not carry it for now.
    HeartbeatBeside {
        life: PeerId,
        limit: Duration,
        progress: String,
    },
}

/// Whose life a connection may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::launch) enum PeerId {
    Rank(usize),
    /// The launcher of a node.
    Launcher(usize),
}

/// What the store says.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::launch) enum Reply {
    /// The request is done.
    Done,
    /// The value that a `Wait` asked for.
    Value(Vec<u8>),
    /// A counter's new value.
    Count(i64),
    /// A `Wait` has run out of time.
    TimedOut,
    /// The request breaks a rule.
    Rejected(String),
    /// A rank has failed: sent once to every registered rank, and to those that wait for a key.
    Failed(PeerFailure),
    /// All ranks have registered: the job's id, and the host of each rank.
    Roster { job_id: String, hosts: Vec<String> },
    /// The rendezvous has run out of time: the ranks that have not registered.
    Missing(Vec<usize>),
    /// The store ends in good order.
    Closing,
    /// A launcher is registered: the job's id.
    Welcome { job_id: String },
    /// A heartbeat has arrived.
    Heard,
    /// When a rank was last heard.
    HeartbeatStatus(HeartbeatStatus),
    /// The rank has sent no heartbeat yet, or has left.
    NoPulse,
}

/// What the store knows of a rank's heartbeats.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::launch) struct HeartbeatStatus {
    /// Time since the last one.
    pub(in crate::launch) silence: Duration,
    /// The silence after which the rank counts as lost.
    pub(in crate::launch) limit: Duration,
    /// How far the rank had come.
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
        match self {
            Request::Hello {
                rank,
                world_size,
                host,
                timeout,
            } => Encoder::new(1)
                .number(*rank as u64)
                .number(*world_size as u64)
                .text(host)
                .duration(*timeout)
                .frame(),
            Request::Goodbye => Encoder::new(2).frame(),
            Request::Set { key, value } => Encoder::new(3).text(key).bytes(value).frame(),
            Request::Wait { key, timeout } => Encoder::new(4).text(key).duration(*timeout).frame(),
            Request::Add { key, delta } => Encoder::new(5).text(key).number(*delta as u64).frame(),
            Request::Delete { key } => Encoder::new(6).text(key).frame(),
            Request::Fail(failure) => Encoder::new(7).failure(failure).frame(),
            Request::Watch {
                node_rank,
                world_size,
                host,
                ranks,
            } => Encoder::new(8)
                .number(*node_rank as u64)
                .number(*world_size as u64)
                .text(host)
                .number(ranks.start as u64)
                .number(ranks.end as u64)
                .frame(),
            Request::Ended { rank, host, what } => Encoder::new(9).number(*rank as u64).text(host).text(what).frame(),
            Request::Heartbeat { limit, progress } => Encoder::new(10).duration(*limit).progress(progress).frame(),
            Request::AskPulse { rank } => Encoder::new(11).number(*rank as u64).frame(),
            Request::HeartbeatBeside { life, limit, progress } => {
                let (kind, number) = match *life {
                    PeerId::Rank(rank) => (0, rank),
                    PeerId::Launcher(node_rank) => (1, node_rank),
                };
                let encoder = Encoder::new(12).number(kind).number(number as u64);
                encoder.duration(*limit).progress(progress).frame()
            }
        }
    }

    /// Reads a request from a frame's body.
    pub(in crate::launch) fn from_body(body: &[u8]) -> Result<Request, Malformed> {
        let mut fields = Decoder { rest: body };
        let request = match fields.kind()? {
            1 => Request::Hello {
                rank: fields.index()?,
                world_size: fields.index()?,
                host: fields.text(MAX_TEXT_BYTES)?,
                timeout: fields.duration()?,
            },
            2 => Request::Goodbye,
            3 => Request::Set {
                key: fields.text(MAX_KEY_BYTES)?,
                value: fields.bytes(MAX_VALUE_BYTES)?.to_vec(),
            },
            4 => Request::Wait {
                key: fields.text(MAX_KEY_BYTES)?,
                timeout: fields.duration()?,
            },
            5 => Request::Add {
                key: fields.text(MAX_KEY_BYTES)?,
                delta: fields.number()? as i64,
            },
            6 => Request::Delete {
                key: fields.text(MAX_KEY_BYTES)?,
            },
            7 => Request::Fail(fields.failure()?),
            8 => Request::Watch {
                node_rank: fields.index()?,
                world_size: fields.index()?,
                host: fields.text(MAX_TEXT_BYTES)?,
                ranks: fields.index()?..fields.index()?,
            },
            9 => Request::Ended {
                rank: fields.index()?,
                host: fields.text(MAX_TEXT_BYTES)?,
                what: fields.text(MAX_TEXT_BYTES)?,
            },
            10 => Request::Heartbeat {
                limit: fields.duration()?,
                progress: fields.text(MAX_PROGRESS_BYTES)?,
            },
            11 => Request::AskPulse { rank: fields.index()? },
            12 => Request::HeartbeatBeside {
                life: match (fields.number()?, fields.index()?) {
                    (0, rank) => PeerId::Rank(rank),
                    (1, node_rank) => PeerId::Launcher(node_rank),
                    _ => return Err(Malformed("unknown kind of life")),
                },
                limit: fields.duration()?,
                progress: fields.text(MAX_PROGRESS_BYTES)?,
            },
            _ => return Err(Malformed("unknown kind of request")),
        };
        fields.end()?;
        Ok(request)
    }
}

impl Reply {
    /// Returns the frame of this reply.
    pub(in crate::launch) fn to_frame(&self) -> Vec<u8> {
        match self {
            Reply::Done => Encoder::new(1).frame(),
            Reply::Value(value) => Reply::value_frame(value),
            Reply::Count(count) => Encoder::new(3).number(*count as u64).frame(),
            Reply::TimedOut => Encoder::new(4).frame(),
            Reply::Rejected(reason) => Encoder::new(5).text(reason).frame(),
            Reply::Failed(failure) => Encoder::new(6).failure(failure).frame(),
            Reply::Roster { job_id, hosts } => {
                let encoder = Encoder::new(7).text(job_id).number(hosts.len() as u64);
                hosts.iter().fold(encoder, |encoder, host| encoder.text(host)).frame()
            }
            Reply::Missing(ranks) => {
                let encoder = Encoder::new(8).number(ranks.len() as u64);
                ranks
                    .iter()
                    .fold(encoder, |encoder, rank| encoder.number(*rank as u64))
                    .frame()
            }
            Reply::Closing => Encoder::new(9).frame(),
            Reply::Welcome { job_id } => Encoder::new(10).text(job_id).frame(),
            Reply::Heard => Encoder::new(11).frame(),
            Reply::HeartbeatStatus(pulse) => Encoder::new(12)
                .duration(pulse.silence)
                .duration(pulse.limit)
                .progress(&pulse.progress)
                .frame(),
            Reply::NoPulse => Encoder::new(13).frame(),
        }
    }

    /// Returns the frame of [`Reply::Value`] without owning the value.
    pub(in crate::launch) fn value_frame(value: &[u8]) -> Vec<u8> {
        Encoder::new(2).bytes(value).frame()
    }

    /// Reads a reply from a frame's body.
    pub(in crate::launch) fn from_body(body: &[u8]) -> Result<Reply, Malformed> {
        let mut fields = Decoder { rest: body };
        let reply = match fields.kind()? {
            1 => Reply::Done,
            2 => Reply::Value(fields.bytes(MAX_VALUE_BYTES)?.to_vec()),
            3 => Reply::Count(fields.number()? as i64),
            4 => Reply::TimedOut,
            5 => Reply::Rejected(fields.text(MAX_TEXT_BYTES)?),
            6 => Reply::Failed(fields.failure()?),
            7 => Reply::Roster {
                job_id: fields.text(MAX_TEXT_BYTES)?,
                hosts: fields.texts()?,
            },
            8 => Reply::Missing(fields.indices()?),
            9 => Reply::Closing,
            10 => Reply::Welcome {
                job_id: fields.text(MAX_TEXT_BYTES)?,
            },
            11 => Reply::Heard,
            12 => Reply::HeartbeatStatus(HeartbeatStatus {
                silence: fields.duration()?,
                limit: fields.duration()?,
                progress: fields.text(MAX_PROGRESS_BYTES)?,
            }),
            13 => Reply::NoPulse,
            _ => return Err(Malformed("unknown kind of reply")),
        };
        fields.end()?;
        Ok(reply)
    }
}

/// Builds a frame, field by field.
struct Encoder {
    frame: Vec<u8>,
}

impl Encoder {
    fn new(kind: u8) -> Encoder {
        Encoder {
            frame: vec![0, 0, 0, 0, kind],
        } // the length comes last
    }

    fn number(mut self, number: u64) -> Encoder {
        self.frame.extend(number.to_le_bytes());
        self
    }

    /// Milliseconds: whole, rounded up, so that a short timeout never becomes none.
    fn duration(self, duration: Duration) -> Encoder {
        let millis = duration.as_micros().div_ceil(1000);
        self.number(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    fn bytes(mut self, bytes: &[u8]) -> Encoder {
        assert!(
            bytes.len() <= MAX_VALUE_BYTES,
            "{} bytes in a field of at most {MAX_VALUE_BYTES}",
            bytes.len()
        );
        self.frame.extend((bytes.len() as u32).to_le_bytes());
        self.frame.extend(bytes);
        self
    }

    /// A text, cut at the limit: keys are checked before, reasons may lose their end.
    fn text(self, text: &str) -> Encoder {
        self.bytes(&text.as_bytes()[..text.floor_char_boundary(MAX_TEXT_BYTES)])
    }

    /// A text, cut at the limit of a heartbeat's.
    fn progress(self, progress: &str) -> Encoder {
        self.bytes(&progress.as_bytes()[..progress.floor_char_boundary(MAX_PROGRESS_BYTES)])
    }

    fn failure(self, failure: &PeerFailure) -> Encoder {
        self.number(failure.rank as u64).text(&failure.host).text(&failure.what)
    }

    fn frame(mut self) -> Vec<u8> {
        let length = (self.frame.len() - 4) as u32;
        self.frame[..4].copy_from_slice(&length.to_le_bytes());
        self.frame
    }
}

/// Takes a body apart, field by field.
struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(Malformed("a field is cut short"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn kind(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?.try_into().expect("8 bytes were taken");
        Ok(u64::from_le_bytes(bytes))
    }

    fn index(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).map_err(|_| Malformed("a number is too large"))
    }

    fn duration(&mut self) -> Result<Duration, Malformed> {
        Ok(Duration::from_millis(self.number()?))
    }

    fn bytes(&mut self, limit: usize) -> Result<&'a [u8], Malformed> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().expect("4 bytes were taken")) as usize;
        if length > limit {
            return Err(Malformed("a field is longer than its limit"));
        }
        self.take(length)
    }

    fn text(&mut self, limit: usize) -> Result<String, Malformed> {
        let text = str::from_utf8(self.bytes(limit)?).map_err(|_| Malformed("a text is not UTF-8"))?;
        Ok(text.to_string())
    }

    fn failure(&mut self) -> Result<PeerFailure, Malformed> {
        Ok(PeerFailure {
            rank: self.index()?,
            host: self.text(MAX_TEXT_BYTES)?,
            what: self.text(MAX_TEXT_BYTES)?,
        })
    }

    /// The number of elements of a list, each of at least `element_bytes`.
    fn count(&mut self, element_bytes: usize) -> Result<usize, Malformed> {
        let count = self.index()?;
        if count > self.rest.len() / element_bytes {
            return Err(Malformed("a list is cut short"));
        }
        Ok(count)
    }

    fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        let count = self.count(4)?;
        (0..count).map(|_| self.text(MAX_TEXT_BYTES)).collect()
    }

    fn indices(&mut self) -> Result<Vec<usize>, Malformed> {
        let count = self.count(8)?;
        (0..count).map(|_| self.index()).collect()
    }

    fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed("bytes follow the last field"))
        }
    }
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
