//! `Communicator`: the connections of a rank, what came over them, and how it ends.

use std::collections::{HashMap, HashSet};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::error::{Error, IN_PROGRESS, INVALID_ARGUMENT, Outcome, REMOTE_ERROR, SYSTEM_ERROR};
use super::rendezvous::{Member, connect};
use super::wire::{Frame, Purpose};
use crate::driver::device::Device;
use crate::driver::device::stream::{Mark, Stream};
use crate::driver::error::tell;
use crate::handles::Handles;
use crate::recording;

pub static COMMUNICATORS: Handles<Communicator> = Handles::new(6);

/// Which frame: from whom, for what, and its number.
pub type Key = (usize, Purpose, u64);

#[derive(Debug)]
pub struct Communicator {
    pub member: Member,
    pub device: &'static Device,
    /// Whether calls return before they are done.
    pub is_blocking: bool,
    /// The most blocks that a kernel may have, if the configuration says it.
    pub most_blocks: Option<usize>,
    state: Mutex<State>,
    changed: Condvar,
    peers: OnceLock<Vec<Option<Peer>>>,
    /// Held while operations are put into streams.
    pub order: Mutex<Order>,
}

/// What a configuration asks for.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub is_blocking: bool,
    pub most_blocks: Option<usize>,
}

impl Settings {
    /// Those of a call that has no configuration.
    pub const DEFAULT: Self = Self {
        is_blocking: true,
        most_blocks: None,
    };
}

/// A connection; the lock is held while a frame is written, and not to end what is written.
#[derive(Debug)]
struct Peer {
    stream: UnixStream,
    writing: Mutex<()>,
}

/// What numbers operations, and keeps them in the order of the calls.
#[derive(Debug, Default)]
pub struct Order {
    pub collectives: u64,
    pub splits: u64,
    /// By peer.
    pub sends: HashMap<usize, u64>,
    pub receives: HashMap<usize, u64>,
    /// What has been connected for operations that were called.
    pub connected: HashSet<Line>,
    /// The stream of the last operation, and the mark after it.
    pub last: Option<(Arc<Stream>, Arc<Mark>)>,
}

/// What is connected at the first operation that goes over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// All ranks, for collective operations.
    All,
    To(usize),
    From(usize),
}

#[derive(Debug, Default)]
pub struct State {
    inbox: HashMap<Key, Frame>,
    /// How many frames came.
    pub arrivals: u64,
    /// A call is not done yet.
    is_busy: bool,
    /// Aborted: what waits ends.
    pub is_stopped: bool,
    /// What ends now does so because of this rank.
    is_closed: bool,
    error: Option<Error>,
    /// Operations that were put into streams and have not ended, and those of them that have begun.
    submitted: usize,
    running: usize,
    /// Calls that have returned, and are not in their stream yet.
    deferred: usize,
    /// Peers that ended in order.
    left: Vec<usize>,
}

impl State {
    /// Takes a frame that has come.
    pub fn take(&mut self, key: Key) -> Option<Frame> {
        self.inbox.remove(&key)
    }

    pub fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    fn put(&mut self, from: usize, frame: Frame) {
        self.arrivals += 1;
        self.inbox.insert((from, frame.purpose, frame.sequence), frame);
    }

    fn fail(&mut self, error: Error) {
        tell(&format!("NCCL: {}", error.text));
        self.error.get_or_insert(error);
    }
}

impl Communicator {
    pub fn new(member: Member, device: &'static Device, settings: Settings) -> Arc<Self> {
        let state = State {
            is_busy: true,
            ..State::default()
        };
        Arc::new(Self {
            member,
            device,
            is_blocking: settings.is_blocking,
            most_blocks: settings.most_blocks,
            state: Mutex::new(state),
            changed: Condvar::new(),
            peers: OnceLock::new(),
            order: Mutex::default(),
        })
    }

    pub fn of(handle: *mut std::ffi::c_void) -> Outcome<Arc<Self>> {
        let unknown = || Error::new(INVALID_ARGUMENT, "no communicator, or one that was destroyed");
        COMMUNICATORS.get(handle).ok_or_else(unknown)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state, and wakes who waits for that.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let outcome = change(&mut self.state());
        self.changed.notify_all();
        outcome
    }

    pub fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock()
    }

    /// Waits for the other ranks.
    pub fn meet(self: &Arc<Self>) -> Outcome {
        // While recording there are no others.
        let met = if recording::is_on() {
            Ok(())
        } else {
            connect(&self.member, &|| self.state().is_stopped).and_then(|streams| self.listen(streams))
        };
        self.change(|state| {
            state.is_busy = false;
            if let Err(error) = &met {
                state.fail(error.clone());
            }
        });
        met
    }

    fn listen(self: &Arc<Self>, streams: Vec<Option<UnixStream>>) -> Outcome {
        for (rank, stream) in streams.iter().enumerate() {
            let Some(stream) = stream else { continue };
            let system = |error| Error::new(SYSTEM_ERROR, format!("a connection to rank {rank}: {error}"));
            let stream = stream.try_clone().map_err(system)?;
            let communicator = self.clone();
            let thread = std::thread::Builder::new().name(format!("nccl from {rank}"));
            thread
                .spawn(move || communicator.receive(rank, stream))
                .map_err(system)?;
        }
        let peer = |stream| Peer {
            stream,
            writing: Mutex::new(()),
        };
        self.peers
            .get_or_init(|| streams.into_iter().map(|stream| stream.map(peer)).collect());
        Ok(())
    }

    /// Receives from a rank until it ends.
    fn receive(&self, rank: usize, mut stream: UnixStream) {
        let lost = loop {
            match Frame::read(&mut stream) {
                Ok(frame) if frame.purpose == Purpose::Bye => self.change(|state| state.left.push(rank)),
                Ok(frame) => self.change(|state| state.put(rank, frame)),
                Err(error) => break error,
            }
        };
        self.change(|state| {
            if !state.is_closed && !state.is_stopped && !state.left.contains(&rank) {
                let text = format!("rank {} lost rank {rank}: {lost}", self.member.rank);
                state.fail(Error::new(REMOTE_ERROR, text));
            }
        });
    }

    /// Sends a frame to a rank, which may be this one. That it is lost is found where its end is read.
    pub fn send(&self, rank: usize, frame: Frame) {
        if rank == self.member.rank {
            self.change(|state| state.put(rank, frame));
        } else if let Some(Some(peer)) = self.peers.get().map(|peers| &peers[rank]) {
            let _writing = peer.writing.lock();
            let _ = frame.write(&peer.stream);
        }
    }

    /// Waits until something is there, or until the communicator is aborted.
    pub fn wait_for<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.state();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Whether operations can be called.
    pub fn ready(&self) -> Outcome {
        let state = self.state();
        match &state.error {
            Some(error) => Err(error.clone()),
            None if state.is_stopped => Err(Error::new(INVALID_ARGUMENT, "the communicator was aborted")),
            None if state.is_busy => {
                let text = "Attempt to use communicator before the previous operation returned ncclSuccess";
                Err(Error::new(INVALID_ARGUMENT, text))
            }
            None => Ok(()),
        }
    }

    /// What `ncclCommGetAsyncError` says: no code, or one.
    pub fn progress(&self) -> u32 {
        let state = self.state();
        match &state.error {
            Some(error) => error.code,
            None if state.is_busy => IN_PROGRESS,
            None => 0,
        }
    }

    /// An operation was put into a stream.
    pub fn submitted(&self) {
        self.state().submitted += 1;
    }

    /// Runs an operation in its stream.
    pub fn run<T>(&self, operation: impl FnOnce() -> T) -> T {
        self.state().running += 1;
        let outcome = operation();
        self.change(|state| {
            state.running -= 1;
            state.submitted -= 1;
        });
        outcome
    }

    /// Waits for all operations, and says so to the other ranks.
    pub fn finish(&self) -> Outcome {
        self.wait_for(|state| (state.submitted == 0).then_some(()));
        let outcome = {
            let mut state = self.state();
            state.is_busy = false;
            state.error.clone().map_or(Ok(()), Err)
        };
        for rank in (0..self.member.count).filter(|&rank| rank != self.member.rank) {
            self.send(rank, Frame::new(Purpose::Bye, 0, Vec::new()));
        }
        self.changed.notify_all();
        outcome
    }

    /// Marks a call as unfinished, although it returns.
    pub fn begin(&self) {
        self.state().is_busy = true;
    }

    /// Continues a call on a thread of its own; until that ends, the communicator is in progress.
    pub fn defer(self: &Arc<Self>, call: impl FnOnce(&Arc<Self>) + Send + 'static) {
        self.change(|state| {
            state.is_busy = true;
            state.deferred += 1;
        });
        let communicator = self.clone();
        std::thread::spawn(move || {
            call(&communicator);
            communicator.change(|state| {
                state.is_busy = false;
                state.deferred -= 1;
            });
        });
    }

    /// Ends what waits. Returns when nothing that has begun is left: no memory is touched any more.
    pub fn abort(&self) {
        self.change(|state| state.is_stopped = true);
        self.close();
        let is_meeting = |state: &State| state.is_busy && self.peers.get().is_none() && state.error.is_none();
        let is_running = |state: &mut State| state.running > 0 || state.deferred > 0 || is_meeting(state);
        self.changed.wait_while(&mut self.state(), is_running);
    }

    /// Closes the connections.
    pub fn close(&self) {
        self.state().is_closed = true;
        for peer in self.peers.get().into_iter().flatten().flatten() {
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    }
}
