//! [`OnRing`]: transfers of a file by the kernel's io_uring. No thread of this process waits for them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::buffer::{ALIGNMENT, Buffer};
use super::transfers::{Direction, Ticket, Transfer, Transfers, ended_early};

/// The most parts that a transfer is made of, so that a disk has several to do at once.
const MAX_PARTS: usize = 32;
/// Bytes of a part, unless it would be one of more than [`MAX_PARTS`].
const PART_BYTES: usize = 4 << 20;
/// More parts than are ever under way: those of a bucket that is read, and of two that are written.
const ENTRIES: u32 = 4 * MAX_PARTS as u32;
/// The largest part that one entry may ask for.
const MAX_ENTRY_BYTES: usize = 1 << 30;

/// Transfers by io_uring.
pub(super) struct OnRing {
    ring: IoUring,
    file: Arc<File>,
    /// Those that have been started and not waited for, by number.
    transfers: HashMap<u64, UnderWay>,
    /// Parts that the kernel has, by the number that it gives back.
    parts: HashMap<u64, Part>,
    next: u64,
}

struct UnderWay {
    transfer: Transfer,
    parts_left: usize,
    error: Option<io::Error>,
}

/// Bytes of a transfer's buffer that are still to be moved.
#[derive(Clone, Copy)]
struct Part {
    transfer: u64,
    start: usize,
    end: usize,
}

impl OnRing {
    /// Returns a ring for a file.
    ///
    /// # Errors
    /// Why there is none: the kernel is older than io_uring's reads and writes, or a sandbox forbids it.
    pub fn new(file: &Arc<File>) -> io::Result<Self> {
        let ring = IoUring::new(ENTRIES)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Ok(Self {
            ring,
            file: file.clone(),
            transfers: HashMap::new(),
            parts: HashMap::new(),
            next: 0,
        })
    }

    /// Gives the kernel a part.
    fn push(&mut self, part: Part) {
        let number = self.next;
        self.next += 1;
        let under_way = self.transfers.get_mut(&part.transfer).expect("it has parts left");
        let transfer = &mut under_way.transfer;
        let offset = transfer.offset + part.start as u64;
        let bytes = &mut transfer.buffer.bytes_mut()[part.start..part.end];
        let length = bytes.len().min(MAX_ENTRY_BYTES) as u32;
        let file = types::Fd(self.file.as_raw_fd());
        let entry = match transfer.direction {
            Direction::Read => opcode::Read::new(file, bytes.as_mut_ptr(), length)
                .offset(offset)
                .build(),
            Direction::Write => opcode::Write::new(file, bytes.as_ptr(), length).offset(offset).build(),
        };
        self.parts.insert(number, part);
        self.submit(&entry.user_data(number));
    }

    fn submit(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the entry's buffer belongs to a transfer of `self.transfers`. Its memory is neither moved nor
            // freed, and neither read nor written, until all its parts are done (`wait` and `drop` see to that), and
            // `self.file` keeps the descriptor open until then.
            let is_pushed = unsafe { self.ring.submission().push(entry) }.is_ok();
            // An error shows again when it is waited for.
            let _ = self.ring.submit();
            if is_pushed {
                return;
            }
            self.reap();
        }
    }

    /// Takes what the kernel has done.
    fn reap(&mut self) {
        let done: Vec<(u64, i32)> = self
            .ring
            .completion()
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        for (number, result) in done {
            // None of a transfer that was given up.
            let Some(mut part) = self.parts.remove(&number) else {
                continue;
            };
            let under_way = self.transfers.get_mut(&part.transfer).expect("it has parts left");
            let direction = under_way.transfer.direction;
            let error = match result {
                0 => Some(ended_early(direction)),
                1.. => None,
                _ => Some(io::Error::from_raw_os_error(-result)).filter(|error| !is_passing(error)),
            };
            part.start += usize::try_from(result).unwrap_or(0);
            if error.is_none() && part.start < part.end {
                self.push(part);
                continue;
            }
            under_way.parts_left -= 1;
            under_way.error = under_way.error.take().or(error);
        }
    }

    /// Waits until something is done.
    fn wait_for_any(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if !is_passing(&error) => return Err(error),
            _ => self.reap(),
        }
        Ok(())
    }
}

impl Transfers for OnRing {
    fn start(&mut self, transfer: Transfer) -> Ticket {
        let ticket = Ticket::new(transfer.direction, self.next);
        self.next += 1;
        let length = transfer.buffer.bytes().len();
        let each = length.div_ceil(MAX_PARTS).next_multiple_of(ALIGNMENT).max(PART_BYTES);
        let under_way = UnderWay {
            transfer,
            parts_left: length.div_ceil(each),
            error: None,
        };
        self.transfers.insert(ticket.number(), under_way);
        for start in (0..length).step_by(each) {
            let end = (start + each).min(length);
            let transfer = ticket.number();
            self.push(Part { transfer, start, end });
        }
        ticket
    }

    fn wait(&mut self, ticket: Ticket) -> (Transfer, io::Result<()>) {
        let number = ticket.number();
        while self.transfers[&number].parts_left > 0 {
            if let Err(error) = self.wait_for_any() {
                // The kernel has the buffer: it is left to it.
                let lost = self.transfers.remove(&number).expect("it is waited for once");
                let (direction, offset) = (lost.transfer.direction, lost.transfer.offset);
                std::mem::forget(lost);
                self.parts.retain(|_, part| part.transfer != number);
                let buffer = Buffer::new(0);
                return (
                    Transfer {
                        direction,
                        offset,
                        buffer,
                    },
                    Err(error),
                );
            }
        }
        let UnderWay { transfer, error, .. } = self.transfers.remove(&number).expect("it is waited for once");
        (transfer, error.map_or(Ok(()), Err))
    }
}

impl Drop for OnRing {
    fn drop(&mut self) {
        while !self.parts.is_empty() {
            if self.wait_for_any().is_err() {
                // The kernel has the buffers: they are left to it.
                std::mem::forget(std::mem::take(&mut self.transfers));
                return;
            }
        }
    }
}

/// Whether the same call may succeed at once.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}
