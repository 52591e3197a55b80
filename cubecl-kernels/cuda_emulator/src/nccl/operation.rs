//! Operations: what each reads and writes on a rank, and how those of a group progress until all are done.
//!
//! Every rank sends its part of a collective operation to all others, an empty one to those that need none, so that no
//! rank is done before all have arrived. A send waits until its receiver has arrived.

use super::communicator::Communicator;
use super::error::{Error, INVALID_ARGUMENT, Outcome, remember};
use super::reduce::{AVERAGE, reduce, size_of_type};
use super::wire::{Description, Frame, Purpose};
use crate::driver::device::stream::Fault;
use crate::driver::error::tell;
use crate::driver::memory::{check_device, check_running};
use crate::recording;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    AllReduce = 1,
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    Send,
    Receive,
}

/// An operation as it was called.
#[derive(Clone, Debug)]
pub struct Task {
    pub kind: Kind,
    /// The address that is read, and the one that is written.
    pub from: usize,
    pub to: usize,
    /// Elements, as the call counts them.
    pub count: usize,
    pub datatype: u32,
    pub reduction: u32,
    /// The root, or the peer; zero where there is none.
    pub root: i32,
    /// Its number among those of its kind; given when it is put into a stream.
    pub sequence: u64,
}

impl Task {
    pub fn is_collective(&self) -> bool {
        !matches!(self.kind, Kind::Send | Kind::Receive)
    }

    pub fn peer(&self) -> usize {
        self.root as usize
    }

    /// The bytes of `count` elements.
    fn bytes(&self) -> usize {
        self.count * size_of_type(self.datatype).unwrap_or(0)
    }

    /// How many bytes a rank reads and writes.
    fn lengths(&self, rank: usize, ranks: usize) -> (usize, usize) {
        let bytes = self.bytes();
        let is_root = self.peer() == rank;
        let if_root = |bytes| if is_root { bytes } else { 0 };
        match self.kind {
            Kind::AllReduce => (bytes, bytes),
            Kind::Broadcast => (if_root(bytes), bytes),
            Kind::Reduce => (bytes, if_root(bytes)),
            Kind::AllGather => (bytes, bytes * ranks),
            Kind::ReduceScatter => (bytes * ranks, bytes),
            Kind::Send => (bytes, 0),
            Kind::Receive => (0, bytes),
        }
    }

    /// Checks what a rank passes.
    pub fn check(&self, communicator: &Communicator) -> Outcome {
        let invalid = |text: String| Err(Error::new(INVALID_ARGUMENT, format!("{:?}: {text}", self.kind)));
        let member = &communicator.member;
        let Some(size) = size_of_type(self.datatype) else {
            return invalid(format!("invalid type {}", self.datatype));
        };
        if self.reduction > u32::from(AVERAGE) {
            return invalid(format!("invalid reduction operation {}", self.reduction));
        }
        if self.root < 0 || self.peer() >= member.count {
            return invalid(format!("invalid root or peer {} of {} ranks", self.root, member.count));
        }
        if self
            .count
            .checked_mul(size)
            .and_then(|bytes| bytes.checked_mul(member.count))
            .is_none()
        {
            return invalid(format!("{} elements", self.count));
        }
        let (read, written) = self.lengths(member.rank, member.count);
        for (name, address, bytes) in [("sends", self.from, read), ("receives", self.to, written)] {
            if bytes == 0 {
                continue;
            }
            match check_device(address, bytes) {
                Ok(ordinal) if ordinal == communicator.device.ordinal => (),
                Ok(other) => {
                    return invalid(format!(
                        "{name} in memory of device {other}, not of {}",
                        communicator.device.ordinal
                    ));
                }
                Err(_) => {
                    return invalid(format!(
                        "{name} {bytes} bytes at {address:#x}, which are no device memory"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Counts the operation, with the bytes of the longer of its buffers. The other ranks are simulated.
    pub fn record(&self, communicator: &Communicator) {
        let (read, written) = self.lengths(communicator.member.rank, communicator.member.count);
        let name = format!("{:?} of {}", self.kind, communicator.member.count);
        recording::count("nccl", &name, read.max(written));
    }

    fn description(&self) -> Description {
        // What is sent is received: both are called the same.
        let kind = if self.kind == Kind::Receive {
            Kind::Send
        } else {
            self.kind
        };
        Description {
            kind: kind as u8,
            datatype: self.datatype as u8,
            reduction: self.reduction as u8,
            root: if self.is_collective() { self.root as u32 } else { 0 },
            count: self.count as u64,
        }
    }

    fn read(&self, from: usize, bytes: usize) -> Result<Vec<u8>, Fault> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        check_running(from, bytes)?;
        // SAFETY: checked; what other streams do meanwhile is the caller's care, as on a GPU.
        Ok(unsafe { std::slice::from_raw_parts(from as *const u8, bytes) }.to_vec())
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.is_empty() {
            return Ok(());
        }
        check_running(self.to, bytes.len())?;
        // SAFETY: checked, as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.to as *mut u8, bytes.len()) };
        Ok(())
    }

    /// Sends a rank's part to the others, and returns what it keeps.
    fn send_parts(&self, communicator: &Communicator) -> Result<Vec<u8>, Fault> {
        let (rank, count) = (communicator.member.rank, communicator.member.count);
        let bytes = self.bytes();
        let (length, _) = self.lengths(rank, count);
        let all = self.read(self.from, length)?;
        let part = |to: usize| match self.kind {
            Kind::ReduceScatter => all[to * bytes..(to + 1) * bytes].to_vec(),
            Kind::Reduce if to != self.peer() => Vec::new(),
            _ => all.clone(),
        };
        for to in (0..count).filter(|&to| to != rank) {
            let frame = Frame {
                description: self.description(),
                ..Frame::new(Purpose::Collective, self.sequence, part(to))
            };
            communicator.send(to, frame);
        }
        Ok(part(rank))
    }

    /// Writes the result of everybody's parts.
    fn complete(&self, communicator: &Communicator, parts: &[&[u8]]) -> Result<(), Fault> {
        let (datatype, reduction) = (self.datatype as u8, self.reduction as u8);
        match self.kind {
            Kind::Broadcast => self.write(parts[self.peer()]),
            Kind::Reduce if self.peer() != communicator.member.rank => Ok(()),
            Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter => self.write(&reduce(datatype, reduction, parts)),
            Kind::AllGather => self.write(&parts.concat()),
            Kind::Send | Kind::Receive => Ok(()),
        }
    }
}

/// How far an operation has come.
enum Stage {
    Waiting,
    /// Its own part is kept, the others' come.
    Collecting(Vec<u8>, Vec<Option<Frame>>),
    Receiving,
    Done,
}

/// Runs the operations of a group in a stream. Returns early, and without an error, if the communicator is aborted.
pub fn run(communicator: &Communicator, tasks: &[Task]) -> Result<(), Fault> {
    let mut stages: Vec<Stage> = tasks.iter().map(|_| Stage::Waiting).collect();
    loop {
        let seen = {
            let state = communicator.state();
            // An operation that begins after an abort touches no memory.
            if state.is_stopped {
                return Ok(());
            }
            state.arrivals
        };
        let mut has_moved = false;
        // Collective operations go in order, sends and receives as they can.
        let mut is_held = false;
        for (task, stage) in std::iter::zip(tasks, &mut stages) {
            if !(task.is_collective() && is_held) {
                has_moved |= advance(communicator, task, stage)?;
            }
            is_held |= task.is_collective() && !matches!(stage, Stage::Done);
        }
        if stages.iter().all(|stage| matches!(stage, Stage::Done)) {
            return Ok(());
        }
        // What came since it was looked for makes it look again.
        let wanted = |arrivals: u64| has_moved || arrivals != seen;
        if communicator
            .wait_for(|state| wanted(state.arrivals).then_some(()))
            .is_none()
        {
            return Ok(());
        }
    }
}

/// Does what can be done of an operation; tells whether there was anything.
fn advance(communicator: &Communicator, task: &Task, stage: &mut Stage) -> Result<bool, Fault> {
    let (rank, count) = (communicator.member.rank, communicator.member.count);
    let take = |key| communicator.state().take(key);
    match stage {
        Stage::Done => Ok(false),
        Stage::Waiting if task.is_collective() => {
            let own = task.send_parts(communicator)?;
            *stage = Stage::Collecting(own, (0..count).map(|_| None).collect());
            Ok(true)
        }
        Stage::Collecting(own, frames) => {
            let mut has_moved = false;
            for from in (0..count).filter(|&from| from != rank) {
                if frames[from].is_none()
                    && let Some(frame) = take((from, Purpose::Collective, task.sequence))
                {
                    if !matches(communicator, task, from, &frame) {
                        return never(communicator);
                    }
                    frames[from] = Some(frame);
                    has_moved = true;
                }
            }
            let come = frames.iter().enumerate();
            let parts = come.map(|(from, frame)| {
                if from == rank {
                    Some(own.as_slice())
                } else {
                    frame.as_ref().map(|frame| frame.payload.as_slice())
                }
            });
            if let Some(parts) = parts.collect::<Option<Vec<&[u8]>>>() {
                task.complete(communicator, &parts)?;
                *stage = Stage::Done;
                has_moved = true;
            }
            Ok(has_moved)
        }
        Stage::Waiting if task.kind == Kind::Receive => {
            let frame = Frame {
                description: task.description(),
                ..Frame::new(Purpose::Ready, task.sequence, Vec::new())
            };
            communicator.send(task.peer(), frame);
            *stage = Stage::Receiving;
            Ok(true)
        }
        Stage::Waiting => {
            let Some(ready) = take((task.peer(), Purpose::Ready, task.sequence)) else {
                return Ok(false);
            };
            if !matches(communicator, task, task.peer(), &ready) {
                return never(communicator);
            }
            let frame = Frame {
                description: task.description(),
                ..Frame::new(Purpose::Data, task.sequence, task.read(task.from, task.bytes())?)
            };
            communicator.send(task.peer(), frame);
            *stage = Stage::Done;
            Ok(true)
        }
        Stage::Receiving => {
            let Some(data) = take((task.peer(), Purpose::Data, task.sequence)) else {
                return Ok(false);
            };
            task.write(&data.payload)?;
            *stage = Stage::Done;
            Ok(true)
        }
    }
}

fn matches(communicator: &Communicator, task: &Task, from: usize, frame: &Frame) -> bool {
    let does = frame.description == task.description();
    if !does {
        let text = format!(
            "rank {} of {} does {:?}, and rank {from} something else: {:?} and {:?}; neither ends",
            communicator.member.rank,
            communicator.member.count,
            task.kind,
            task.description(),
            frame.description
        );
        remember(&text);
        tell(&format!("NCCL: {text}"));
    }
    does
}

/// Waits until the communicator is aborted: what the library does when calls do not match.
fn never(communicator: &Communicator) -> Result<bool, Fault> {
    communicator.wait_for(|_| None::<()>);
    Ok(false)
}
