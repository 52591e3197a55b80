//! [`ProcessGroup`]: the typed calls on host slices.
//!
//! Checks arguments, describes the call for the other ranks, and hands bytes to `group_core`.

use super::call::{CallDescriptor, GroupLabel, Operation, ReduceOp};
use super::element::CollectiveElement;
use super::engine::Engine;
use super::engine_choice::{self, EngineChoice};
use super::error::CollectiveError;
use super::external::ConnectEngine;
use super::group_core::GroupCore;
use super::health::GroupHealth;
use super::pending::Pending;
use super::single::SingleEngine;
use crate::launch::World;
use bytemuck::{cast_slice, cast_slice_mut};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// The name of a group that belongs to no world, whose ranks are not global ones.
const SINGLE: &str = "single";
/// The longest name of a group: it becomes part of file names and store keys.
const MAX_NAME_BYTES: usize = 64;

/// How a group is made. [`EngineChoice`] is one.
pub trait GroupOptions {
    /// Which engine moves the bytes of host memory. The same on every rank of the group.
    fn engine(&self) -> EngineChoice;

    /// What connects the engine for [`EngineChoice::Mpi`]: burn-megatron-mpi's `connect`. `None` if the program does
    /// not have it; to choose that engine is then an error.
    fn mpi_engine(&self) -> Option<ConnectEngine> {
        None
    }

    /// Checks what does not depend on other ranks.
    ///
    /// # Errors
    /// What is wrong, in words.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Gives a group that has been connected what else it is to have. Collective over the group.
    ///
    /// # Errors
    /// As the group's calls.
    fn attach(&self, group: &ProcessGroup) -> Result<(), CollectiveError> {
        let _ = group;
        Ok(())
    }
}

impl GroupOptions for EngineChoice {
    fn engine(&self) -> EngineChoice {
        *self
    }
}

/// A set of ranks that communicate together.
///
/// Every rank of the group makes the same collective calls in the same order; transfers between two ranks are matched
/// in order. Clones are the same group. After the first error the group refuses further calls. When the last clone is
/// dropped, calls that were started still finish (for at most five seconds), then the other ranks learn of the drop.
///
/// Collectives are in order among themselves, transfers among those of the same sender and
/// receiver; these lanes do not wait for each other, so started sends and receives between two
/// ranks cannot block one another.
///
/// `Debug` and `Display` write the name and the global ranks: `tensor group [0, 1], rank 0`.
///
/// # Threads
/// Ranks match calls by their order alone. Two threads of one rank that make collectives at their own pace would come
/// in one order on one rank and in another on the next, and one thread's numbers would be added to the other's. So each
/// kind of call belongs to one thread of a rank:
///
/// - The collectives belong to the thread that connected the group; the sends to a rank, and the receives from a
///   rank, to the first thread that makes one. Transfers with different ranks, or in different directions, may be made
///   by different threads.
/// - A call of another thread is refused with [`CollectiveError::OtherThread`], whether or not calls overlap in time,
///   and the group fails on all ranks.
/// - [`hand_over`](Self::hand_over) passes on what belongs to the calling thread: the next thread that makes a call
///   owns it. When that thread has ended, it belongs to the thread that handed over once more; a third thread is
///   refused.
/// - Started calls belong to the thread that starts them. They run on a thread of the group, and any thread may wait
///   for them.
/// - Groups of one rank take calls of any thread.
///
/// Threads that communicate at the same time each connect a group of their own. A thread that trains with groups that
/// another one has connected gets them so:
///
/// ```
/// # use burn_megatron_comm::collectives::{ProcessGroup, ReduceOp};
/// # fn train(group: ProcessGroup) -> Result<(), Box<dyn std::error::Error>> {
/// group.barrier()?;
/// group.hand_over();
/// let trainer = std::thread::spawn({
///     let group = group.clone();
///     move || group.all_reduce(&mut [1.0_f32], ReduceOp::Sum)
/// });
/// trainer.join().expect("it does not panic")?;
/// // The thread has ended: the collectives are this thread's again.
/// group.barrier()?;
/// # Ok(())
/// # }
/// # train(ProcessGroup::single()).unwrap();
/// ```
#[derive(Clone)]
pub struct ProcessGroup {
    membership: Arc<Membership>,
    /// What the calls of this clone are called in the flight recorder.
    note: Option<Arc<str>>,
}

/// Ends the group when the last clone is dropped. Calls on their way hold the core, not this.
struct Membership {
    core: Arc<GroupCore>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.core.shut_down();
    }
}

impl ProcessGroup {
    /// Returns the group of `ranks`, called `name` in messages. Collective over `ranks`, which are
    /// global ranks, ascending, among them this one.
    ///
    /// # Errors
    /// When the arguments are wrong, when the ranks do not agree, when some do not come within
    /// [`World::timeout`], when one of them fails.
    #[track_caller]
    pub fn connect(
        world: &World,
        name: &str,
        ranks: &[usize],
        options: &impl GroupOptions,
    ) -> Result<ProcessGroup, CollectiveError> {
        let label = check_membership(world, name, ranks)?;
        options.check().map_err(|what| CollectiveError::NoAgreement {
            group: label.to_string(),
            what,
        })?;
        let health = Arc::new(GroupHealth::new(label, world));
        let engine: Arc<dyn Engine> = match ranks.len() {
            1 => Arc::new(SingleEngine),
            _ => {
                let called_at = Location::caller();
                engine_choice::connect(world, &health, options.engine(), options.mpi_engine()).inspect_err(|error| {
                    health.suspect(error, called_at);
                    health.flight_recorder.write_failure(&error.to_string());
                })?
            }
        };
        tracing::debug!(group = %health.label, engine = engine.name(), "connected");
        let group = Self::new(health, engine);
        options.attach(&group)?;
        Ok(group)
    }

    /// Returns a group of one, rank 0 of itself: every operation is the identity.
    pub fn single() -> ProcessGroup {
        let label = GroupLabel {
            name: SINGLE.into(),
            ranks: [0].into(),
            rank: 0,
        };
        Self::new(Arc::new(GroupHealth::alone(label)), Arc::new(SingleEngine))
    }

    pub(super) fn new(health: Arc<GroupHealth>, engine: Arc<dyn Engine>) -> Self {
        let core = Arc::new(GroupCore::new(health, engine));
        ProcessGroup {
            membership: Arc::new(Membership { core }),
            note: None,
        }
    }

    /// Returns this group with a name for the calls that are made through it, as the flight recorder shows them.
    pub fn labelled(&self, label: &str) -> ProcessGroup {
        ProcessGroup {
            membership: self.membership.clone(),
            note: Some(label.into()),
        }
    }

    /// Passes on the calls that belong to this thread: they belong to the next thread that makes one. Calls that belong
    /// to another thread stay with it. See [Threads](Self#threads).
    ///
    /// Which thread comes next is for the program to say, the same on every rank: it spawns one, or sends to one that
    /// waits. Of two that take what was handed over at their own pace, the second is refused.
    pub fn hand_over(&self) {
        self.core().hand_over();
    }

    /// Notes how far this rank's program has come, `3 steps`, for all groups of its world: a message about calls of two
    /// ranks that do not fit together says it of both.
    pub fn note_progress(&self, progress: impl Into<String>) {
        self.core().health.flight_recorder.set_progress(progress.into());
    }

    /// Returns the time that callers on this rank have spent in blocking calls and in waiting for started ones.
    pub fn time_blocked(&self) -> Duration {
        self.core().blocked.total()
    }

    /// Returns the name that the group was connected with.
    pub fn name(&self) -> &str {
        &self.label().name
    }

    /// Returns the global ranks of the group, ascending.
    pub fn ranks(&self) -> &[usize] {
        &self.label().ranks
    }

    /// Returns this rank's index in the group.
    pub fn rank(&self) -> usize {
        self.label().rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.label().size()
    }

    /// Returns what moves the bytes: `single`, `shared-memory`, `tcp`, `hierarchical` or `mpi`.
    pub fn engine_name(&self) -> &'static str {
        self.core().engine.name()
    }

    /// Returns the payload bytes that this rank has put on the wire, or into shared memory, for
    /// others since the group was made.
    pub fn bytes_communicated(&self) -> u64 {
        let on_device = self.core().device.get().map_or(0, |device| device.bytes_communicated());
        self.core().engine.bytes_communicated() + on_device
    }

    /// Replaces `buffer` on every rank by its reduction over all ranks.
    ///
    /// # Errors
    /// A wrong argument on this rank; different calls on different ranks; a rank that fails, or
    /// does not come in time; an earlier error of this group. The same holds for every call below.
    #[track_caller]
    pub fn all_reduce<T: CollectiveElement>(&self, buffer: &mut [T], op: ReduceOp) -> Result<(), CollectiveError> {
        let call = self.reduction::<T>(Operation::AllReduce, buffer.len(), op)?;
        self.run(call, |engine, call| engine.all_reduce(call, cast_slice_mut(buffer)))
    }

    /// Starts [`all_reduce`](Self::all_reduce); the handle returns the reduced buffer.
    #[track_caller]
    pub fn all_reduce_start<T: CollectiveElement>(&self, mut buffer: Vec<T>, op: ReduceOp) -> Pending<Vec<T>> {
        let call = self.reduction::<T>(Operation::AllReduce, buffer.len(), op);
        self.start(call, move |engine, call| {
            engine.all_reduce(call, cast_slice_mut(&mut buffer))?;
            Ok(buffer)
        })
    }

    /// Fills `output` with the `shard` of every rank, in rank order.
    ///
    /// `output` is as long as `size` shards.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_gather<T: CollectiveElement>(&self, shard: &[T], output: &mut [T]) -> Result<(), CollectiveError> {
        self.check_shards(Operation::AllGather, "output", shard.len(), output.len())?;
        let call = describe::<T>(Operation::AllGather, shard.len());
        self.run(call, |engine, call| {
            engine.all_gather(call, cast_slice(shard), cast_slice_mut(output))
        })
    }

    /// Starts [`all_gather`](Self::all_gather); the handle returns the output.
    #[track_caller]
    pub fn all_gather_start<T: CollectiveElement>(&self, shard: Vec<T>) -> Pending<Vec<T>> {
        let call = describe::<T>(Operation::AllGather, shard.len());
        let mut output = vec![T::zeroed(); shard.len() * self.size()];
        self.start(Ok(call), move |engine, call| {
            engine.all_gather(call, cast_slice(&shard), cast_slice_mut(&mut output))?;
            Ok(output)
        })
    }

    /// Fills `shard` with this rank's part of the reduction of `input` over all ranks.
    ///
    /// `input` is as long as `size` shards; rank r gets the r-th.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce_scatter<T: CollectiveElement>(
        &self,
        input: &[T],
        shard: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.check_shards(Operation::ReduceScatter, "input", shard.len(), input.len())?;
        let call = self.reduction::<T>(Operation::ReduceScatter, shard.len(), op)?;
        self.run(call, |engine, call| {
            engine.reduce_scatter(call, cast_slice(input), cast_slice_mut(shard))
        })
    }

    /// Starts [`reduce_scatter`](Self::reduce_scatter); the handle returns the shard.
    #[track_caller]
    pub fn reduce_scatter_start<T: CollectiveElement>(&self, input: Vec<T>, op: ReduceOp) -> Pending<Vec<T>> {
        let length = input.len() / self.size();
        let call = self
            .check_shards(Operation::ReduceScatter, "input", length, input.len())
            .and_then(|()| self.reduction::<T>(Operation::ReduceScatter, length, op));
        let mut shard = vec![T::zeroed(); length];
        self.start(call, move |engine, call| {
            engine.reduce_scatter(call, cast_slice(&input), cast_slice_mut(&mut shard))?;
            Ok(shard)
        })
    }

    /// Replaces `buffer` on every rank by that of the rank with group index `root`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn broadcast<T: CollectiveElement>(&self, buffer: &mut [T], root: usize) -> Result<(), CollectiveError> {
        let call = self.with_root::<T>(buffer.len(), root)?;
        self.run(call, |engine, call| engine.broadcast(call, cast_slice_mut(buffer)))
    }

    /// Starts [`broadcast`](Self::broadcast); the handle returns the root's buffer.
    #[track_caller]
    pub fn broadcast_start<T: CollectiveElement>(&self, mut buffer: Vec<T>, root: usize) -> Pending<Vec<T>> {
        let call = self.with_root::<T>(buffer.len(), root);
        self.start(call, move |engine, call| {
            engine.broadcast(call, cast_slice_mut(&mut buffer))?;
            Ok(buffer)
        })
    }

    /// Sends `buffer` to the rank with group index `to`. May return before it has been received;
    /// a large buffer waits for the receiver.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn send<T: CollectiveElement>(&self, buffer: &[T], to: usize) -> Result<(), CollectiveError> {
        let call = self.transfer::<T>(Operation::Send, buffer.len(), to)?;
        self.run(call, |engine, call| engine.send(call, cast_slice(buffer)))
    }

    /// Starts [`send`](Self::send); the handle returns the buffer.
    #[track_caller]
    pub fn send_start<T: CollectiveElement>(&self, buffer: Vec<T>, to: usize) -> Pending<Vec<T>> {
        let call = self.transfer::<T>(Operation::Send, buffer.len(), to);
        self.start(call, move |engine, call| {
            engine.send(call, cast_slice(&buffer))?;
            Ok(buffer)
        })
    }

    /// Starts [`send`](Self::send) of a buffer that is of no further use here: it is freed once it has been handed
    /// over.
    #[track_caller]
    pub fn send_owned_start<T: CollectiveElement>(&self, buffer: Vec<T>, to: usize) -> Pending<()> {
        match self.transfer::<T>(Operation::Send, buffer.len(), to) {
            Ok(call) => self.core().start(call, self.note.as_ref(), move |engine, call| {
                engine.send(call, cast_slice(&buffer))
            }),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    /// Fills `buffer` with what the rank with group index `from` sends.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn recv<T: CollectiveElement>(&self, buffer: &mut [T], from: usize) -> Result<(), CollectiveError> {
        let call = self.transfer::<T>(Operation::Recv, buffer.len(), from)?;
        self.run(call, |engine, call| engine.recv(call, cast_slice_mut(buffer)))
    }

    /// Starts [`recv`](Self::recv) of `length` elements; the handle returns them.
    #[track_caller]
    pub fn recv_start<T: CollectiveElement>(&self, length: usize, from: usize) -> Pending<Vec<T>> {
        let call = self.transfer::<T>(Operation::Recv, length, from);
        let mut buffer = vec![T::zeroed(); length];
        self.start(call, move |engine, call| {
            engine.recv(call, cast_slice_mut(&mut buffer))?;
            Ok(buffer)
        })
    }

    /// Returns when every rank of the group has called it.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        let call = describe::<u8>(Operation::Barrier, 0);
        self.run(call, |engine, call| engine.barrier(call))
    }

    /// Starts [`barrier`](Self::barrier); the handle returns when every rank of the group has come.
    #[track_caller]
    pub fn barrier_start(&self) -> Pending<()> {
        let call = describe::<u8>(Operation::Barrier, 0);
        self.core()
            .start(call, self.note.as_ref(), |engine, call| engine.barrier(call))
    }

    #[doc(hidden)]
    pub fn core(&self) -> &Arc<GroupCore> {
        &self.membership.core
    }

    /// What the calls of this clone are called.
    #[doc(hidden)]
    pub fn note(&self) -> Option<&Arc<str>> {
        self.note.as_ref()
    }

    fn label(&self) -> &GroupLabel {
        &self.core().health.label
    }

    #[track_caller]
    pub(super) fn run<R>(
        &self,
        call: CallDescriptor,
        operate: impl FnOnce(&dyn Engine, &CallDescriptor) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        self.core().run(call, self.note.as_ref(), operate)
    }

    #[track_caller]
    pub(super) fn start<R: Send + 'static>(
        &self,
        call: Result<CallDescriptor, CollectiveError>,
        operate: impl FnOnce(&dyn Engine, &CallDescriptor) -> Result<R, CollectiveError> + Send + 'static,
    ) -> Pending<R> {
        match call {
            Ok(call) => self.core().start(call, self.note.as_ref(), operate),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    #[doc(hidden)]
    pub fn reduction<T: CollectiveElement>(
        &self,
        operation: Operation,
        length: usize,
        op: ReduceOp,
    ) -> Result<CallDescriptor, CollectiveError> {
        if op == ReduceOp::Mean && T::ELEMENT_TYPE.is_integer() {
            let what = format!("mean of {}: only sum and max of integers", T::ELEMENT_TYPE);
            return Err(self.refuse(operation, what));
        }
        Ok(CallDescriptor {
            reduce_op: Some(op),
            ..describe::<T>(operation, length)
        })
    }

    #[doc(hidden)]
    pub fn with_root<T: CollectiveElement>(
        &self,
        length: usize,
        root: usize,
    ) -> Result<CallDescriptor, CollectiveError> {
        if root >= self.size() {
            let what = format!("root {root}: expected less than {}", self.size());
            return Err(self.refuse(Operation::Broadcast, what));
        }
        Ok(CallDescriptor {
            peer: Some(root),
            ..describe::<T>(Operation::Broadcast, length)
        })
    }

    #[doc(hidden)]
    pub fn transfer<T: CollectiveElement>(
        &self,
        operation: Operation,
        length: usize,
        peer: usize,
    ) -> Result<CallDescriptor, CollectiveError> {
        if peer >= self.size() || peer == self.rank() {
            let (size, rank) = (self.size(), self.rank());
            let what = format!("peer {peer}: expected less than {size} and not this rank ({rank})");
            return Err(self.refuse(operation, what));
        }
        Ok(CallDescriptor {
            peer: Some(peer),
            ..describe::<T>(operation, length)
        })
    }

    /// Checks that `whole`, the length of the buffer called `name`, is `size` shards.
    pub(super) fn check_shards(
        &self,
        operation: Operation,
        name: &str,
        shard: usize,
        whole: usize,
    ) -> Result<(), CollectiveError> {
        if shard.checked_mul(self.size()) == Some(whole) {
            return Ok(());
        }
        let size = self.size();
        let what = format!("{name} of length {whole}: expected {size} shards of length {shard}");
        Err(self.refuse(operation, what))
    }

    pub(super) fn refuse(&self, operation: Operation, what: String) -> CollectiveError {
        CollectiveError::InvalidArgument {
            group: self.label().to_string(),
            operation: operation.to_string(),
            what,
        }
    }
}

impl fmt::Display for ProcessGroup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.label();
        if &*label.name == SINGLE && label.size() == 1 {
            return formatter.write_str("group of one rank");
        }
        let (ranks, rank) = (label.listed_ranks(), label.ranks[label.rank]);
        write!(formatter, "{} group {ranks}, rank {rank}", label.name)
    }
}

/// As `Display`: a module that prints its fields has many groups.
impl fmt::Debug for ProcessGroup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Returns the call without its number, which it gets when its turn comes.
pub fn describe<T: CollectiveElement>(operation: Operation, length: usize) -> CallDescriptor {
    CallDescriptor {
        sequence: 0,
        operation,
        element_type: T::ELEMENT_TYPE,
        length,
        peer: None,
        reduce_op: None,
        buffer: None,
    }
}

/// Checks the arguments of [`ProcessGroup::connect`].
fn check_membership(world: &World, name: &str, ranks: &[usize]) -> Result<GroupLabel, CollectiveError> {
    let refuse = |what: String| {
        Err(CollectiveError::InvalidArgument {
            group: format!("{name} {ranks:?}"),
            operation: "connect".to_string(),
            what,
        })
    };
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        let length = name.len();
        return refuse(format!("name of {length} bytes: expected 1 to {MAX_NAME_BYTES}"));
    }
    if name.contains(char::is_control) {
        return refuse("the name contains a control character".to_string());
    }
    if !ranks.is_sorted_by(|first, second| first < second) {
        return refuse("ranks are not ascending".to_string());
    }
    if let Some(last) = ranks.last()
        && *last >= world.world_size()
    {
        let world_size = world.world_size();
        return refuse(format!("rank {last}: expected less than the world size {world_size}"));
    }
    match ranks.binary_search(&world.rank()) {
        Ok(rank) => Ok(GroupLabel {
            name: name.into(),
            ranks: ranks.into(),
            rank,
        }),
        Err(_) => refuse(format!("this rank, {}, is not among the ranks", world.rank())),
    }
}
