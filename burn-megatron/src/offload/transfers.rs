//! [`Transfers`]: reads and writes of a file while something else is computed; and the form of them that needs threads
//! only. The form of the kernel's ring is in [`ring`](super::ring).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use super::buffer::Buffer;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

/// A buffer that is filled from a file, or written to it, from a place on.
#[derive(Debug)]
pub(super) struct Transfer {
    pub direction: Direction,
    pub offset: u64,
    pub buffer: Buffer,
}

/// Names a transfer that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    direction: Direction,
    number: u64,
}

/// Reads and writes of one file that are under way. No two of them may be of the same bytes.
pub(super) trait Transfers: Send {
    /// Starts a transfer, whose buffer comes back when it is [waited](Self::wait) for.
    fn start(&mut self, transfer: Transfer) -> Ticket;

    /// Waits until all bytes of a transfer are there or it has failed; once for each ticket.
    fn wait(&mut self, ticket: Ticket) -> (Transfer, io::Result<()>);
}

impl Ticket {
    pub fn new(direction: Direction, number: u64) -> Self {
        Self { direction, number }
    }

    pub fn number(self) -> u64 {
        self.number
    }
}

/// Why a transfer ended before its last byte, where the system gives no reason: it has moved none.
pub(super) fn ended_early(direction: Direction) -> io::Error {
    match direction {
        Direction::Read => io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before that"),
        Direction::Write => io::Error::new(io::ErrorKind::WriteZero, "the system writes nothing more"),
    }
}

/// Positional reads on one thread, and writes on another.
pub(super) struct OnThreads {
    reads: Lane,
    writes: Lane,
    next: u64,
}

type Done = (Transfer, io::Result<()>);

/// A thread that makes transfers in the order in which they are started.
struct Lane {
    /// `None` when the thread is to end.
    orders: Option<Sender<(u64, Transfer)>>,
    results: Receiver<(u64, Done)>,
    /// Those that are done and have not been waited for.
    done: HashMap<u64, Done>,
    thread: Option<JoinHandle<()>>,
}

impl OnThreads {
    /// Returns the threads of a file, which wait for transfers.
    ///
    /// # Errors
    /// The system makes no thread.
    pub fn new(file: &Arc<File>) -> io::Result<Self> {
        Ok(Self {
            reads: Lane::new(file.clone(), "offload-reads")?,
            writes: Lane::new(file.clone(), "offload-writes")?,
            next: 0,
        })
    }

    fn lane(&mut self, direction: Direction) -> &mut Lane {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }
}

impl Transfers for OnThreads {
    fn start(&mut self, transfer: Transfer) -> Ticket {
        let ticket = Ticket::new(transfer.direction, self.next);
        self.next += 1;
        let orders = &self.lane(ticket.direction).orders;
        let orders = orders.as_ref().expect("it is there until the lane is dropped");
        let order = (ticket.number, transfer);
        orders
            .send(order)
            .expect("the thread waits for orders until there can be none");
        ticket
    }

    fn wait(&mut self, ticket: Ticket) -> Done {
        let lane = self.lane(ticket.direction);
        loop {
            if let Some(done) = lane.done.remove(&ticket.number) {
                return done;
            }
            let (number, done) = lane.results.recv().expect("the thread answers each order");
            lane.done.insert(number, done);
        }
    }
}

impl Lane {
    fn new(file: Arc<File>, name: &str) -> io::Result<Self> {
        let (orders, receiver) = channel::<(u64, Transfer)>();
        let (sender, results) = channel();
        let work = move || {
            for (number, mut transfer) in receiver {
                let result = transfer_now(&file, &mut transfer);
                if sender.send((number, (transfer, result))).is_err() {
                    return;
                }
            }
        };
        Ok(Self {
            orders: Some(orders),
            results,
            done: HashMap::new(),
            thread: Some(Builder::new().name(name.to_owned()).spawn(work)?),
        })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // It panics nowhere; if it did, what it has not done is reported by who waits for it.
            let _ = thread.join();
        }
    }
}

fn transfer_now(file: &File, transfer: &mut Transfer) -> io::Result<()> {
    match transfer.direction {
        Direction::Read => file.read_exact_at(transfer.buffer.bytes_mut(), transfer.offset),
        Direction::Write => file.write_all_at(transfer.buffer.bytes(), transfer.offset),
    }
}
