//! The engine itself: how a group is connected, and its calls.
//!
//! MPI moves bytes, and burn-megatron-comm adds them up: the order of additions in `MPI_Allreduce` is the library's
//! choice, and here it is the rank order, as in every other engine. `library` initialises and finalises MPI, `request`
//! has the calls into it, `stream` cuts long messages into pieces, `progress` bounds the waits, `disconnect_reason`
//! tells who has left; `collective` and `transfer` build the operations from these.

mod collective;
mod disconnect_reason;
mod library;
mod pool;
mod progress;
mod request;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;
mod watchdog;

use burn_megatron_comm::collectives::external::{GroupHealth, Rendezvous};
use burn_megatron_comm::collectives::{CallDescriptor, CollectiveError, Engine};
use burn_megatron_comm::launch::World;
use disconnect_reason::DisconnectReasons;
use pool::Pool;
use request::Communicator;
use std::ffi::c_int;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The largest message that travels in the same MPI message as its descriptor.
const INLINE_BYTES: usize = 8 * 1024;
/// The largest piece of a longer message.
const MAX_PIECE_BYTES: usize = 256 * 1024;
/// The smallest, in large groups.
const MIN_PIECE_BYTES: usize = 16 * 1024;
/// What the pieces from all ranks take together, about.
const ALL_PIECES_BYTES: usize = 4 << 20;
/// The longest wait for the communicator before the failure signal and the timeout are looked at.
const CONNECT_SLICE: Duration = Duration::from_millis(10);
/// Tags of `MPI_Comm_create_group` that every MPI library has.
const CONNECT_TAGS: u64 = 1 << 15;

type Tag = c_int;

/// What the messages of a communicator are. MPI keeps those of one tag between two ranks in order.
mod tags {
    use super::Tag;
    /// The descriptor of a collective, with a short message.
    pub const HEAD: Tag = 1;
    /// Contributions to a reduction.
    pub const CONTRIBUTION: Tag = 2;
    /// What is the same for every receiver: reduced pieces, shards, the root's buffer.
    pub const RESULT: Tag = 3;
    /// Sends and receives.
    pub const TRANSFER: Tag = 4;
    /// Why a rank has left.
    pub const DISCONNECT_REASON: Tag = 5;
}

/// Moves bytes over a communicator of the group's ranks.
#[derive(Debug)]
struct MpiEngine {
    health: Arc<GroupHealth>,
    communicator: Communicator,
    disconnect_reasons: DisconnectReasons,
    /// For descriptors with a short message.
    heads: Pool,
    /// For pieces of long messages.
    pieces: Pool,
    /// The size of a piece, the same on all ranks; whole elements.
    piece_bytes: usize,
    bytes_communicated: AtomicU64,
}

/// Returns the engine, connected to all ranks of a group. Collective.
///
/// For [`GroupOptions::mpi_engine`](burn_megatron_comm::collectives::GroupOptions::mpi_engine).
///
/// # Errors
/// When a rank was not started by `mpirun`, has another rank there, does not come, or fails.
pub fn connect(
    world: &World,
    health: &Arc<GroupHealth>,
    rendezvous: &Rendezvous,
) -> Result<Arc<dyn Engine>, CollectiveError> {
    let label = &health.label;
    let no_agreement = |what| CollectiveError::NoAgreement {
        group: label.to_string(),
        what,
    };
    // A rank without MPI says so to the others, which would wait for it in MPI.
    agree(rendezvous, "mpirun", library::check_place(world))?.map_err(no_agreement)?;
    agree(rendezvous, "MPI", library::join(world, health)?)?.map_err(no_agreement)?;
    let tag = connect_tag(world, health, rendezvous)?;
    let communicator = create_communicator(health, tag)?;
    let disconnect_reasons = DisconnectReasons::open(&communicator, label.size(), label.rank)
        .map_err(|error| setup_failed(health, "receive with MPI", &error))?;
    let piece_bytes = (ALL_PIECES_BYTES / label.size()).clamp(MIN_PIECE_BYTES, MAX_PIECE_BYTES) / 64 * 64;
    Ok(Arc::new(MpiEngine {
        health: health.clone(),
        communicator,
        disconnect_reasons,
        heads: Pool::new(CallDescriptor::BYTES + INLINE_BYTES),
        pieces: Pool::new(piece_bytes),
        piece_bytes,
        bytes_communicated: AtomicU64::new(0),
    }))
}

/// Tells the other ranks whether this one is ready; returns what is wrong here, or else elsewhere. Collective.
fn agree(rendezvous: &Rendezvous, step: &str, here: Result<(), String>) -> Result<Result<(), String>, CollectiveError> {
    let statement = here.as_ref().err().map_or("is ready", String::as_str);
    let agreement = rendezvous.agree(step, statement)?;
    Ok(here.and(agreement))
}

/// Returns a tag that no other group uses that is connected at the same time: the job's groups over MPI are counted.
fn connect_tag(world: &World, health: &GroupHealth, rendezvous: &Rendezvous) -> Result<Tag, CollectiveError> {
    const KEY: &str = "mpi/tag";
    let count = match health.label.rank {
        0 => {
            let count = world.store().add("collectives/mpi/groups", 1);
            let count = count.map_err(|source| CollectiveError::Store {
                group: health.label.to_string(),
                source,
            })?;
            rendezvous.publish(KEY, &count.to_le_bytes())?;
            count.to_le_bytes().to_vec()
        }
        _ => rendezvous.wait(KEY, 0)?,
    };
    let count = count.try_into().map_or(0, u64::from_le_bytes);
    Ok((count % CONNECT_TAGS) as Tag)
}

/// Returns the communicator of the group. MPI makes it without a bound on the waits, so a thread does it; if a rank
/// dies in between, the thread is left running.
fn create_communicator(health: &GroupHealth, tag: Tag) -> Result<Communicator, CollectiveError> {
    let ranks: Vec<c_int> = health.label.ranks.iter().map(|&rank| rank as c_int).collect();
    let (sender, created) = mpsc::channel();
    let thread = std::thread::Builder::new().name("connect over MPI".to_owned());
    let spawned = thread.spawn(move || sender.send(Communicator::create(&ranks, tag)));
    spawned.map_err(|source| CollectiveError::Setup {
        group: health.label.to_string(),
        what: "start a thread".to_owned(),
        source,
    })?;
    let deadline = health.deadline(None);
    loop {
        match created.recv_timeout(deadline.slice(CONNECT_SLICE)) {
            Ok(communicator) => {
                return communicator.map_err(|error| setup_failed(health, "make a communicator", &error));
            }
            Err(RecvTimeoutError::Timeout) => deadline.check(|| health.label.peers().collect())?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(setup_failed(health, "make a communicator", &"the thread panicked"));
            }
        }
    }
}

fn setup_failed(health: &GroupHealth, what: &str, error: &dyn Display) -> CollectiveError {
    CollectiveError::Setup {
        group: health.label.to_string(),
        what: what.to_owned(),
        source: io::Error::other(error.to_string()),
    }
}

/// One call of the engine.
#[derive(Clone, Copy)]
struct Call<'a> {
    engine: &'a MpiEngine,
    descriptor: &'a CallDescriptor,
}

impl Call<'_> {
    /// Returns the error when MPI cannot reach a rank, or that rank breaks the rules: what the job knows, or else
    /// `what`.
    fn lost(&self, peer: usize, what: &dyn Display) -> CollectiveError {
        let health = &self.engine.health;
        if let Err(known) = health.check(Some(self.descriptor)) {
            return known;
        }
        CollectiveError::ConnectionLost {
            group: health.label.to_string(),
            call: health.label.describe(self.descriptor),
            rank: health.label.ranks[peer],
            what: what.to_string(),
        }
    }

    /// Reads the descriptor in front of a message; returns it and the length of the message.
    fn decode(&self, peer: usize, words: &[u64], length: usize) -> Result<(CallDescriptor, usize), CollectiveError> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        bytes
            .first_chunk()
            .filter(|_| length >= CallDescriptor::BYTES)
            .and_then(CallDescriptor::from_bytes)
            .map(|descriptor| (descriptor, length - CallDescriptor::BYTES))
            .ok_or_else(|| self.lost(peer, &"it sent something that is no call"))
    }
}

impl MpiEngine {
    fn call<'a>(&'a self, descriptor: &'a CallDescriptor) -> Call<'a> {
        Call {
            engine: self,
            descriptor,
        }
    }

    fn count_bytes(&self, bytes: usize) {
        self.bytes_communicated.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Engine for MpiEngine {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn place(&self) -> (usize, usize) {
        self.health.label.place()
    }

    fn all_gather(&self, call: &CallDescriptor, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        self.call(call).all_gather(shard, output)
    }

    fn barrier(&self, call: &CallDescriptor) -> Result<(), CollectiveError> {
        self.call(call).barrier()
    }

    fn all_reduce(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        self.call(call).all_reduce(buffer)
    }

    fn reduce_scatter(&self, call: &CallDescriptor, input: &[u8], shard: &mut [u8]) -> Result<(), CollectiveError> {
        self.call(call).reduce_scatter(input, shard)
    }

    fn broadcast(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        self.call(call).broadcast(buffer)
    }

    fn send(&self, call: &CallDescriptor, buffer: &[u8]) -> Result<(), CollectiveError> {
        self.call(call).send(buffer)
    }

    fn recv(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        self.call(call).receive(buffer)
    }

    fn disconnect_reason(&self, peer: usize) -> Option<String> {
        Some(self.disconnect_reasons.of(peer)?.to_string())
    }

    fn bytes_communicated(&self) -> u64 {
        self.bytes_communicated.load(Ordering::Relaxed)
    }

    fn leave(&self, cause: &str) {
        disconnect_reason::send_to_all(&self.communicator, self.health.label.peers(), cause);
    }
}
