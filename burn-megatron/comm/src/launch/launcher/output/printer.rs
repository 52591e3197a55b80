//! The thread that writes to one of the launcher's own outputs: what ranks write there meets in it.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::Instant;

use super::merge::Merger;

/// Pieces of output that wait to be written. Readers of ranks that write more wait, and so do these ranks.
const QUEUED_CHUNKS: usize = 16;

/// A piece of output.
pub(super) enum Chunk {
    /// Written at once, as it is.
    Bytes(Vec<u8>),
    /// Whole lines of a rank.
    Lines { rank: usize, lines: Vec<Vec<u8>> },
    /// A line of the launcher: it follows what ranks have written before.
    Own(String),
}

/// Starts the thread; it ends when all senders are gone and everything is written, and drops `carrying` then.
pub(super) fn start<W: Write>(
    name: &str,
    merger: Merger,
    carrying: Sender<()>,
    sink: impl Fn() -> W + Send + 'static,
) -> io::Result<SyncSender<Chunk>> {
    let (sender, chunks) = mpsc::sync_channel(QUEUED_CHUNKS);
    thread::Builder::new().name(format!("print-{name}")).spawn(move || {
        print(&chunks, merger, sink);
        drop(carrying);
    })?;
    Ok(sender)
}

fn print<W: Write>(chunks: &Receiver<Chunk>, mut merger: Merger, sink: impl Fn() -> W) {
    let write = |bytes: &[u8]| {
        if !bytes.is_empty() {
            let mut sink = sink();
            // If no process reads it any more, the ranks' pipes are still emptied, so that none blocks.
            let _ = sink.write_all(bytes).and_then(|()| sink.flush());
        }
    };
    loop {
        let chunk = match merger.next_due() {
            Some(due) => chunks.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => chunks.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let now = Instant::now();
        match chunk {
            Ok(Chunk::Bytes(bytes)) => write(&bytes),
            Ok(Chunk::Lines { rank, lines }) => lines.into_iter().for_each(|line| merger.push(rank, line, now)),
            Ok(Chunk::Own(line)) => {
                write(&merger.take_all());
                write(format!("{line}\n").as_bytes());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return write(&merger.take_all()),
        }
        write(&merger.take_due(now));
    }
}
