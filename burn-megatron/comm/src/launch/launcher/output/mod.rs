//! [`Outputs`]: carries the ranks' stdout and stderr to the launcher's own, line by line, with the ranks before each.
//!
//! A thread per pipe reads, a thread per output writes. Lines of different ranks never mix: each is written whole.
//! Nothing is lost: a reader stops only at the end of its pipe, or when the rank has ended and its pipe is empty.
//!
//! - here: the readers.
//! - [`lines`]: bytes to lines.
//! - [`merge`]: equal lines of several ranks are written once.
//! - [`printer`]: the writers.
//! - [`last_words`]: what ranks wrote to stderr last.

mod last_words;
mod lines;
mod merge;
mod printer;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(super) use self::last_words::LastWords;
use self::lines::{LineSplitter, WholeLines};
use self::merge::Merger;
use self::printer::Chunk;
use crate::launch::store::deadline_after;
use crate::ranks::RankSet;

/// How long a rank's line waits for others to write the same.
const HOLD: Duration = Duration::from_millis(200);
/// How often a reader of a silent pipe looks whether it is to stop.
const POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Most that a reader takes from a pipe after its rank has ended, should something else still write there.
const MAX_DRAIN_BYTES: usize = 1 << 20;

/// Whose output gets `[rank N] ` before each line; lines that several ranks write within 0.2 s are written once, after
/// `[ranks N-M] `.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// Both outputs of every rank. A carriage return ends a line as a newline does, and becomes one.
    All,
    /// All but rank 0's stdout, which passes as it is, so that it can be read by another program. It passes in whole
    /// lines; a carriage return ends a line there, too, and stays what it is.
    AllButRankZero,
    /// As [`AllButRankZero`](Self::AllButRankZero), for a program with a prompt: rank 0's stdout passes as it comes,
    /// not in whole lines, and it reads what this process gets on stdin.
    Interactive,
}

/// What is done with the ranks' output.
#[derive(Clone, Debug)]
pub(super) struct OutputOptions {
    pub(super) prefix: Prefix,
    /// The ranks whose output is written; all unless given. What passes without a prefix is written in any case.
    pub(super) logged: Option<RankSet>,
}

impl OutputOptions {
    /// Whether a rank's lines are written.
    pub(super) fn logs(&self, rank: usize) -> bool {
        self.logged.as_ref().is_none_or(|logged| logged.contains(rank))
    }

    /// Whether a rank's stdout passes without a prefix.
    fn is_plain(&self, rank: usize) -> bool {
        self.prefix != Prefix::All && rank == 0
    }
}

/// The threads that carry output.
#[derive(Debug)]
pub(super) struct Outputs {
    options: OutputOptions,
    last_words: LastWords,
    stop: Arc<AtomicBool>,
    /// What writes to the launcher's stdout and stderr; gone when all is carried.
    printers: Option<[SyncSender<Chunk>; 2]>,
    /// Each printer holds a clone; when all are gone, all is carried.
    carried: Receiver<()>,
}

/// How a pipe's bytes are passed on.
enum Passing {
    /// As lines of this rank.
    Lines(usize, LineSplitter),
    /// As they are, in whole lines.
    WholeLines(WholeLines),
    /// As they come.
    Immediately,
    /// Not at all.
    Never,
}

impl Outputs {
    /// Starts the printers for the ranks of this node.
    ///
    /// # Errors
    /// There can be no more threads.
    pub(super) fn start(options: OutputOptions, ranks: Range<usize>) -> io::Result<Outputs> {
        let (carrying, carried) = mpsc::channel::<()>();
        let merger = |ranks: usize| Merger::new(ranks, if ranks > 1 { HOLD } else { Duration::ZERO });
        let logged = || ranks.clone().filter(|&rank| options.logs(rank));
        let prefixed = logged().filter(|&rank| !options.is_plain(rank)).count();
        let stdout = printer::start("stdout", merger(prefixed), carrying.clone(), io::stdout)?;
        let stderr = printer::start("stderr", merger(logged().count()), carrying, io::stderr)?;
        Ok(Outputs {
            options,
            last_words: LastWords::default(),
            stop: Arc::default(),
            printers: Some([stdout, stderr]),
            carried,
        })
    }

    /// Whether a rank reads what this process gets on stdin.
    pub(super) fn has_input(&self, rank: usize) -> bool {
        self.options.prefix == Prefix::Interactive && rank == 0
    }

    /// What the ranks have written to stderr last.
    pub(super) fn last_words(&self) -> &LastWords {
        &self.last_words
    }

    /// Writes a line of the launcher's own to stderr, after what ranks have written there.
    pub(super) fn say(&self, line: String) {
        if let Some([_, stderr]) = &self.printers {
            let _ = stderr.send(Chunk::Own(line));
        }
    }

    /// Carries a rank's stdout from now on.
    pub(super) fn forward_stdout(&self, rank: usize, pipe: OwnedFd) -> io::Result<()> {
        let passing = match self.options.prefix {
            Prefix::AllButRankZero if rank == 0 => Passing::WholeLines(WholeLines::default()),
            Prefix::Interactive if rank == 0 => Passing::Immediately,
            _ => self.lines_of(rank),
        };
        self.forward(0, format!("stdout-{rank}"), pipe, passing, |_| {})
    }

    /// Carries a rank's stderr from now on.
    pub(super) fn forward_stderr(&self, rank: usize, pipe: OwnedFd) -> io::Result<()> {
        let last_words = self.last_words.clone();
        let remember = move |bytes: &[u8]| last_words.append(rank, bytes);
        self.forward(1, format!("stderr-{rank}"), pipe, self.lines_of(rank), remember)
    }

    fn lines_of(&self, rank: usize) -> Passing {
        if self.options.logs(rank) {
            Passing::Lines(rank, LineSplitter::default())
        } else {
            Passing::Never
        }
    }

    fn forward(
        &self,
        printer: usize,
        name: String,
        pipe: OwnedFd,
        passing: Passing,
        remember: impl Fn(&[u8]) + Send + 'static,
    ) -> io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let Some(printers) = &self.printers else { return Ok(()) };
        let printer = printers[printer].clone();
        let carry = move || carry(File::from(pipe), passing, &stop, remember, &printer);
        thread::Builder::new().name(name).spawn(carry)?;
        Ok(())
    }

    /// Waits until everything that ended ranks have written is carried, at most for `limit`; call it once.
    ///
    /// Without a limit it waits as long as the launcher's own output is blocked, say by a pager.
    pub(super) fn drain(&mut self, limit: Option<Duration>) {
        self.stop.store(true, Ordering::Relaxed);
        self.printers = None;
        let deadline = deadline_after(limit.unwrap_or(Duration::MAX));
        // Nothing is ever sent: the wait ends when the last printer drops its sender.
        let waited = self
            .carried
            .recv_timeout(deadline.saturating_duration_since(Instant::now()));
        if waited == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the ranks' last output is lost: the launcher's output is not read");
        }
    }
}

/// Returns a rank's lines as they are written.
pub(super) fn prefixed(rank: usize, lines: Vec<String>) -> Vec<String> {
    let mut merger = Merger::new(1, Duration::ZERO);
    for line in lines {
        merger.push(rank, line.into_bytes(), Instant::now());
    }
    let text = merger.take_all();
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

impl Passing {
    /// What is to be written of these bytes now.
    fn push(&mut self, bytes: &[u8]) -> Option<Chunk> {
        match self {
            Passing::Lines(rank, splitter) => Some(Chunk::Lines {
                rank: *rank,
                lines: splitter.push(bytes),
            }),
            Passing::WholeLines(lines) => Some(Chunk::Bytes(lines.push(bytes))),
            Passing::Immediately => Some(Chunk::Bytes(bytes.to_vec())),
            Passing::Never => None,
        }
    }

    /// What is left at the end.
    fn finish(&mut self) -> Option<Chunk> {
        match self {
            Passing::Lines(rank, splitter) => Some(Chunk::Lines {
                rank: *rank,
                lines: splitter.finish().into_iter().collect(),
            }),
            Passing::WholeLines(lines) => Some(Chunk::Bytes(lines.finish())),
            Passing::Immediately | Passing::Never => None,
        }
    }
}

/// Carries one pipe to its end.
fn carry(
    mut pipe: File,
    mut passing: Passing,
    stop: &AtomicBool,
    remember: impl Fn(&[u8]),
    printer: &SyncSender<Chunk>,
) {
    // A printer writes, or fails to, until all senders are gone.
    let print = |chunk: Option<Chunk>| drop(chunk.map(|chunk| printer.send(chunk)));
    let mut input = vec![0; 64 << 10];
    let mut drained = 0;
    loop {
        // In this order: what a rank wrote before it ended is in the pipe before `stop` is set.
        let stopping = stop.load(Ordering::Relaxed);
        if !wait_readable(&pipe, if stopping { Timespec::default() } else { POLL }) {
            if stopping { break } else { continue }
        }
        match pipe.read(&mut input) {
            Ok(0) => break,
            Ok(count) => {
                remember(&input[..count]);
                print(passing.push(&input[..count]));
                drained += if stopping { count } else { 0 };
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        if drained > MAX_DRAIN_BYTES {
            break;
        }
    }
    print(passing.finish());
}

/// Waits until a read would not block; false if that takes longer than `limit`.
fn wait_readable(pipe: &File, limit: Timespec) -> bool {
    poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}
