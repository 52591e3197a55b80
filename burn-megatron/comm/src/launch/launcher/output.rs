//! [`Outputs`]: carries the ranks' stdout and stderr to the launcher's own, line by line, with the rank before each.
//!
//! Lines of different ranks never mix: each is written whole, under a lock. Nothing is lost: a reader stops only at the
//! end of its pipe, or when the rank has ended and its pipe is empty.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::launch::lock;
use crate::launch::store::deadline_after;

/// A longer line is cut into pieces of this size, each with its prefix.
const MAX_LINE_BYTES: usize = 1 << 20;
/// How often a reader of a silent pipe looks whether it is to stop.
const POLL_MILLIS: i32 = 100;
/// Most that a reader takes from a pipe after its rank has ended, should something else still write there.
const MAX_DRAIN_BYTES: usize = 1 << 20;

/// Whose output gets `[rank N] ` before each line.
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

/// Bytes of a rank's stderr that are remembered.
const REMEMBERED_BYTES: usize = 64 << 10;

/// The end of what each rank has written to stderr, so that its last words are not said again. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWords {
    by_rank: Arc<Mutex<HashMap<usize, Vec<u8>>>>,
}

impl LastWords {
    fn append(&self, rank: usize, bytes: &[u8]) {
        let mut by_rank = lock(&self.by_rank);
        let words = by_rank.entry(rank).or_default();
        words.extend(bytes);
        // Cut rarely: what is cut off has to be moved over.
        if words.len() > 2 * REMEMBERED_BYTES {
            words.drain(..words.len() - REMEMBERED_BYTES);
        }
    }

    /// Whether the rank has written the first line of `text`.
    pub(super) fn contain(&self, rank: usize, text: &str) -> bool {
        let text = text.lines().next().unwrap_or_default();
        let by_rank = lock(&self.by_rank);
        let words = by_rank.get(&rank).map_or(&[][..], Vec::as_slice);
        !text.is_empty() && String::from_utf8_lossy(words).contains(text)
    }
}

/// The threads that carry output.
#[derive(Debug)]
pub(super) struct Outputs {
    prefix: Prefix,
    last_words: LastWords,
    stop: Arc<AtomicBool>,
    /// Each reader holds a clone; when all are gone, all is carried.
    carrying: Option<Sender<()>>,
    carried: Receiver<()>,
}

impl Outputs {
    pub(super) fn new(prefix: Prefix) -> Outputs {
        let (carrying, carried) = mpsc::channel();
        Outputs {
            prefix,
            last_words: LastWords::default(),
            stop: Arc::default(),
            carrying: Some(carrying),
            carried,
        }
    }

    /// Whether a rank reads what this process gets on stdin.
    pub(super) fn has_input(&self, rank: usize) -> bool {
        self.prefix == Prefix::Interactive && rank == 0
    }

    /// What the ranks have written to stderr last.
    pub(super) fn last_words(&self) -> &LastWords {
        &self.last_words
    }

    /// Carries a rank's stdout from now on.
    pub(super) fn forward_stdout(&self, rank: usize, pipe: OwnedFd) -> io::Result<()> {
        let splitter = match (self.prefix, rank) {
            (Prefix::AllButRankZero, 0) => LineSplitter::plain(),
            (Prefix::Interactive, 0) => LineSplitter::immediate(),
            _ => LineSplitter::prefixed(rank),
        };
        self.forward(format!("stdout-{rank}"), pipe, splitter, |_| {}, io::stdout)
    }

    /// Carries a rank's stderr from now on.
    pub(super) fn forward_stderr(&self, rank: usize, pipe: OwnedFd) -> io::Result<()> {
        let last_words = self.last_words.clone();
        let remember = move |bytes: &[u8]| last_words.append(rank, bytes);
        let splitter = LineSplitter::prefixed(rank);
        self.forward(format!("stderr-{rank}"), pipe, splitter, remember, io::stderr)
    }

    fn forward<W: Write>(
        &self,
        name: String,
        pipe: OwnedFd,
        splitter: LineSplitter,
        remember: impl Fn(&[u8]) + Send + 'static,
        sink: impl Fn() -> W + Send + 'static,
    ) -> io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let carrying = self.carrying.clone();
        thread::Builder::new().name(name).spawn(move || {
            carry(File::from(pipe), splitter, &stop, remember, sink);
            drop(carrying);
        })?;
        Ok(())
    }

    /// Waits until everything that ended ranks have written is carried, at most for `limit`; call it once.
    ///
    /// Without a limit it waits as long as the launcher's own output is blocked, say by a pager.
    pub(super) fn drain(&mut self, limit: Option<Duration>) {
        self.stop.store(true, Ordering::Relaxed);
        self.carrying = None;
        let deadline = deadline_after(limit.unwrap_or(Duration::MAX));
        // Nothing is ever sent: the wait ends when the last reader drops its sender.
        let waited = self
            .carried
            .recv_timeout(deadline.saturating_duration_since(Instant::now()));
        if waited == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the ranks' last output is lost: the launcher's output is not read");
        }
    }
}

/// Carries one pipe to its end.
fn carry<W: Write>(
    mut pipe: File,
    mut splitter: LineSplitter,
    stop: &AtomicBool,
    remember: impl Fn(&[u8]),
    sink: impl Fn() -> W,
) {
    let mut input = vec![0; 64 << 10];
    let mut lines = Vec::new();
    let mut drained = 0;
    loop {
        // In this order: what a rank wrote before it ended is in the pipe before `stop` is set.
        let stopping = stop.load(Ordering::Relaxed);
        if !wait_readable(&pipe, if stopping { 0 } else { POLL_MILLIS }) {
            if stopping { break } else { continue }
        }
        match pipe.read(&mut input) {
            Ok(0) => break,
            Ok(count) => {
                remember(&input[..count]);
                splitter.push(&input[..count], &mut lines);
                drained += if stopping { count } else { 0 };
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        write(&mut lines, &sink);
        if drained > MAX_DRAIN_BYTES {
            break;
        }
    }
    splitter.finish(&mut lines);
    write(&mut lines, &sink);
}

/// Writes whole lines in one go. If no reader takes them any more, the pipe is still emptied, so that no rank blocks.
fn write<W: Write>(lines: &mut Vec<u8>, sink: impl Fn() -> W) {
    if !lines.is_empty() {
        let mut sink = sink();
        let _ = sink.write_all(lines).and_then(|()| sink.flush());
        lines.clear();
    }
}

/// Waits until a read would not block; false if that takes longer than `millis`.
fn wait_readable(pipe: &File, millis: i32) -> bool {
    let mut poll = libc::pollfd {
        fd: pipe.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` is one valid pollfd for the length of the call, and its descriptor is open.
    let ready = unsafe { libc::poll(&mut poll, 1, millis) };
    ready > 0
}

/// Cuts a stream of bytes into lines and prefixes them.
struct LineSplitter {
    /// Before each line; without one, line ends stay what they are.
    prefix: Option<Vec<u8>>,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    /// Whether the last byte was a carriage return, whose newline may follow.
    after_return: bool,
    /// Whether nothing waits for the end of its line.
    is_immediate: bool,
}

impl LineSplitter {
    fn prefixed(rank: usize) -> LineSplitter {
        LineSplitter {
            prefix: Some(format!("[rank {rank}] ").into_bytes()),
            partial: Vec::new(),
            after_return: false,
            is_immediate: false,
        }
    }

    fn plain() -> LineSplitter {
        LineSplitter {
            prefix: None,
            partial: Vec::new(),
            after_return: false,
            is_immediate: false,
        }
    }

    fn immediate() -> LineSplitter {
        LineSplitter {
            is_immediate: true,
            ..LineSplitter::plain()
        }
    }

    /// Takes bytes, and appends the lines that are whole now to `lines`.
    fn push(&mut self, mut bytes: &[u8], lines: &mut Vec<u8>) {
        if self.is_immediate {
            lines.extend(bytes);
            return;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, rest) = bytes.split_at(end);
            self.partial.extend(line);
            self.end_line(rest[0], lines);
            bytes = &rest[1..];
        }
        self.after_return &= bytes.is_empty();
        self.partial.extend(bytes);
        while self.partial.len() > MAX_LINE_BYTES {
            let rest = self.partial.split_off(MAX_LINE_BYTES);
            self.emit(b"\n", lines);
            self.partial = rest;
        }
    }

    /// Ends the last line, if it has no end.
    fn finish(&mut self, lines: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.emit(if self.prefix.is_some() { b"\n" } else { b"" }, lines);
        }
    }

    fn end_line(&mut self, end: u8, lines: &mut Vec<u8>) {
        let completes_return = self.after_return && self.partial.is_empty() && end == b'\n';
        self.after_return = end == b'\r';
        if self.prefix.is_none() {
            return self.emit(&[end], lines);
        }
        // `\r\n` is one line end; and a progress line that begins with `\r` is not preceded by an empty one.
        let empty_progress = end == b'\r' && self.partial.is_empty();
        if !completes_return && !empty_progress {
            self.emit(b"\n", lines);
        }
    }

    fn emit(&mut self, end: &[u8], lines: &mut Vec<u8>) {
        lines.extend(self.prefix.iter().flatten());
        lines.append(&mut self.partial);
        lines.extend(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out when `text` arrives in pieces of `piece` bytes.
    fn split(mut splitter: LineSplitter, text: &str, piece: usize) -> String {
        let mut lines = Vec::new();
        for bytes in text.as_bytes().chunks(piece) {
            splitter.push(bytes, &mut lines);
        }
        splitter.finish(&mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn lines_are_prefixed_however_they_arrive() {
        let cases = [
            ("one\ntwo\n", "[rank 3] one\n[rank 3] two\n"),
            ("no end", "[rank 3] no end\n"),
            (
                "\n\nempty lines stay\n",
                "[rank 3] \n[rank 3] \n[rank 3] empty lines stay\n",
            ),
            ("dos\r\nlines\r\n", "[rank 3] dos\n[rank 3] lines\n"),
            (
                "1%\r2%\r3%\ndone\n",
                "[rank 3] 1%\n[rank 3] 2%\n[rank 3] 3%\n[rank 3] done\n",
            ),
            ("\r1%\r2%", "[rank 3] 1%\n[rank 3] 2%\n"),
            ("a\r\n\nb\n", "[rank 3] a\n[rank 3] \n[rank 3] b\n"),
            ("", ""),
        ];
        for (text, expected) in cases {
            for piece in 1..=text.len().max(1) {
                assert_eq!(
                    split(LineSplitter::prefixed(3), text, piece),
                    expected,
                    "{text:?} by {piece}"
                );
            }
        }
    }

    #[test]
    fn last_words_are_those_of_the_rank() {
        let words = LastWords::default();
        words.append(1, b"step 1\n[rank 1 on host a] failed: loss is not ");
        words.append(1, b"finite\n");
        assert!(words.contain(1, "loss is not finite\nin step 3"));
        assert!(!words.contain(0, "loss is not finite"));
        words.append(1, &vec![b'x'; 3 * REMEMBERED_BYTES]);
        assert!(!words.contain(1, "loss is not finite"));
    }

    #[test]
    fn plain_output_passes_unchanged() {
        let text = "1%\r2%\r\n\ndone\r\nno end";
        for piece in 1..=text.len() {
            assert_eq!(split(LineSplitter::plain(), text, piece), text);
        }
    }

    #[test]
    fn immediate_output_waits_for_no_line_end() {
        let mut splitter = LineSplitter::immediate();
        let mut output = Vec::new();
        splitter.push(b"Once upon", &mut output);
        assert_eq!(output, b"Once upon");
        splitter.finish(&mut output);
        assert_eq!(output, b"Once upon");
    }

    #[test]
    fn endless_line_is_cut_and_nothing_lost() {
        let text = "x".repeat(2 * MAX_LINE_BYTES + 5);
        let lines = split(LineSplitter::prefixed(0), &text, 64 << 10);
        assert_eq!(lines.lines().count(), 3);
        assert_eq!(lines.replace("[rank 0] ", "").replace('\n', ""), text);
    }
}
