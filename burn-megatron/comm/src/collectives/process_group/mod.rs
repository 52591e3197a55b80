//! [`ProcessGroup`]: the group as its callers have it.
//!
//! `connect` makes it, `calls` has the typed calls, `checks` checks their arguments and describes them for the other
//! ranks. The bytes go to `group_core`.

mod calls;
mod checks;
mod connect;

use super::call::GroupLabel;
use super::engines::engine::Engine;
use super::engines::single::SingleEngine;
use super::error::CollectiveError;
use super::group_core::GroupCore;
use super::health::GroupHealth;
use super::lanes::pending::Pending;
use crate::launch::World;
pub use checks::describe;
pub(super) use checks::{Checked, Operate, checked};
pub use connect::GroupOptions;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The name of a group that belongs to no world, whose ranks are not global ones.
const SINGLE: &str = "single";

/// A set of ranks that communicate together.
///
/// Every rank of the group makes the same collective calls in the same order; transfers between two ranks are matched
/// in order. Clones are the same group. After the first error the group refuses further calls. When the last clone is
/// dropped, or the rank leaves its [`World`], calls that were started still finish (for at most five seconds), then the
/// other ranks learn of the end.
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
    /// Returns a group of one, rank 0 of itself: every operation is the identity.
    pub fn single() -> ProcessGroup {
        let label = GroupLabel {
            name: SINGLE.into(),
            ranks: [0].into(),
            rank: 0,
        };
        Self::new(Arc::new(GroupHealth::alone(label)), Arc::new(SingleEngine))
    }

    /// Lets the group end with a world at the latest.
    pub(super) fn ending_with(self, world: &World) -> Self {
        // No one waits for the rank of a group of one, or of a world that is not there.
        if self.membership.core.health.label.size() > 1 && !world.is_fake() {
            let core: Weak<GroupCore> = Arc::downgrade(&self.membership.core);
            world.ends_with_it(core);
        }
        self
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

    /// Gives the group up on this rank, which cannot continue: the others need not wait for their timeout.
    ///
    /// Calls in which another rank waits for this one, now or later, stop with [`CollectiveError::PeerLeft`], which has
    /// `cause`, or the first 800 bytes of it. Calls on this rank are refused with [`CollectiveError::Poisoned`]. Does
    /// nothing if the group has failed.
    pub fn give_up(&self, cause: &str) {
        self.core().give_up(cause);
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

    /// Returns what moves the bytes: `single`, `fake`, `shared-memory`, `tcp` or `hierarchical`.
    pub fn engine_name(&self) -> &'static str {
        self.core().engine.name()
    }

    /// Returns the payload bytes that this rank has put on the wire, or into shared memory, for
    /// others since the group was made.
    pub fn bytes_communicated(&self) -> u64 {
        let on_device = self.core().device.get().map_or(0, |device| device.bytes_communicated());
        self.core().engine.bytes_communicated() + on_device
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
    pub(super) fn run<R>(&self, checked: Checked<impl Operate<R>>) -> Result<R, CollectiveError> {
        let (call, operate) = checked?;
        self.core().run(call, self.note(), operate)
    }

    #[track_caller]
    pub(super) fn start<R: Send + 'static>(&self, checked: Checked<impl Operate<R> + Send + 'static>) -> Pending<R> {
        match checked {
            Ok((call, operate)) => self.core().start(call, self.note(), operate),
            Err(error) => Pending::ready(Err(error)),
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
