//! Groups, and how operations come into streams: in the order of the calls, whatever streams they name.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::communicator::{Communicator, Line, Order};
use super::error::{Error, INTERNAL_ERROR, INVALID_USAGE, Outcome};
use super::operation::{Kind, Task, run};
use super::wire::{Frame, Purpose};
use crate::driver::device::number_in_environment;
use crate::driver::device::stream::Stream;
use crate::exported::exported;
use crate::recording;

/// How much later than its call an operation comes into its stream, at least, where it may.
const DEFERRED: Duration = Duration::from_micros(300);

type Call = (Arc<Communicator>, Arc<Stream>, Task);
/// The calls of one communicator.
type Calls = Vec<(Arc<Stream>, Task)>;

/// What a thread has called since its outermost `ncclGroupStart`.
#[derive(Default)]
struct Group {
    depth: usize,
    calls: Vec<Call>,
    /// Communicators whose ranks are to meet.
    meetings: Vec<Arc<Communicator>>,
    /// The first error, which `ncclGroupEnd` returns too.
    error: Option<Error>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::new(Group::default());
}

/// Calls an operation: at once, or at the end of the group.
pub fn call(communicator: Arc<Communicator>, stream: Arc<Stream>, task: Task) -> Outcome {
    let checked = communicator.ready().and_then(|()| task.check(&communicator));
    GROUP.with_borrow_mut(|group| {
        if let Err(error) = checked {
            if group.depth > 0 {
                group.error.get_or_insert(error.clone());
            }
            return Err(error);
        }
        // No rank waits for a collective operation on no elements.
        if task.is_collective() && task.count == 0 {
            return Ok(());
        }
        if recording::is_on() {
            task.record(&communicator);
            return Ok(());
        }
        if group.depth == 0 {
            return queue(communicator, vec![(stream, task)]);
        }
        group.calls.push((communicator, stream, task));
        Ok(())
    })
}

/// Lets a communicator's ranks meet: at once, or with the others of the group at its end.
pub fn meet(communicator: Arc<Communicator>) -> Outcome {
    let is_grouped = GROUP.with_borrow_mut(|group| {
        if group.depth > 0 {
            group.meetings.push(communicator.clone());
        }
        group.depth > 0
    });
    if is_grouped {
        Ok(())
    } else {
        meet_all(vec![communicator])
    }
}

/// Lets several communicators' ranks meet, and waits for the blocking ones.
pub fn meet_all(communicators: Vec<Arc<Communicator>>) -> Outcome {
    let mut threads = Vec::new();
    let mut is_in_progress = false;
    for communicator in communicators {
        let is_blocking = communicator.is_blocking;
        let thread = std::thread::spawn(move || communicator.meet());
        if is_blocking {
            threads.push(thread)
        } else {
            is_in_progress = true
        }
    }
    for thread in threads {
        let failed = |_| Error::new(INTERNAL_ERROR, "the emulator panicked");
        thread.join().map_err(failed)??;
    }
    if is_in_progress {
        Err(Error::in_progress())
    } else {
        Ok(())
    }
}

/// Whether calls of communicators that do not block return before they are done.
fn is_deferred() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| number_in_environment("CUDA_EMULATOR_IN_PROGRESS").is_some_and(|number| number > 0))
}

/// How much longer an operation takes in its stream than it would.
fn slowness() -> Duration {
    static MICROSECONDS: OnceLock<u64> = OnceLock::new();
    let number = || number_in_environment("CUDA_EMULATOR_NCCL_US").unwrap_or(0) as u64;
    Duration::from_micros(*MICROSECONDS.get_or_init(number))
}

/// The blocks of the kernel of operations: those that it would have over NVLink, unless the environment or the
/// configuration says fewer.
fn blocks(communicator: &Communicator, tasks: &[Task]) -> usize {
    const COLLECTIVE: usize = 24;
    const TRANSFER: usize = 32;
    static MOST: OnceLock<Option<usize>> = OnceLock::new();
    let of_environment = *MOST.get_or_init(|| number_in_environment("NCCL_MAX_CTAS"));
    let is_collective = tasks.iter().any(Task::is_collective);
    let most = of_environment.or(communicator.most_blocks).unwrap_or(usize::MAX);
    if is_collective { COLLECTIVE } else { TRANSFER }.min(most)
}

/// Puts operations of one communicator into streams: at once, or later where the communicator does not block.
///
/// # Errors
/// None but that it is in progress.
fn queue(communicator: Arc<Communicator>, calls: Calls) -> Outcome {
    if communicator.is_blocking || !is_deferred() {
        enqueue(&communicator, calls);
        return Ok(());
    }
    communicator.defer(|communicator| {
        std::thread::sleep(DEFERRED);
        if connect(communicator, &calls) {
            enqueue(communicator, calls);
        }
    });
    Err(Error::in_progress())
}

/// Waits until those whom operations concern have come to their first over the same lines; returns whether they have.
/// So does the library, which connects ranks when they first communicate: collective operations since 2.22, sends and
/// receives always.
fn connect(communicator: &Communicator, calls: &Calls) -> bool {
    const ALL: u64 = 0;
    const SENDER: u64 = 1;
    const RECEIVER: u64 = 2;
    let (me, count) = (communicator.member.rank, communicator.member.count);
    let mut awaited: Vec<(usize, u64)> = Vec::new();
    {
        let mut order = communicator.order();
        for (_, task) in calls {
            let line = match task.kind {
                Kind::Send => Line::To(task.peer()),
                Kind::Receive => Line::From(task.peer()),
                _ => Line::All,
            };
            if !order.connected.insert(line) {
                continue;
            }
            let (peers, own, theirs) = match line {
                Line::All => ((0..count).collect(), ALL, ALL),
                Line::To(peer) => (vec![peer], SENDER, RECEIVER),
                Line::From(peer) => (vec![peer], RECEIVER, SENDER),
            };
            for peer in peers.into_iter().filter(|&peer| peer != me) {
                communicator.send(peer, Frame::new(Purpose::Connect, own, Vec::new()));
                awaited.push((peer, theirs));
            }
        }
    }
    awaited.into_iter().all(|(peer, sequence)| {
        let come = communicator.wait_for(|state| match state.take((peer, Purpose::Connect, sequence)) {
            Some(_) => Some(true),
            None => state.has_failed().then_some(false),
        });
        come.unwrap_or(false)
    })
}

/// Numbers operations of one communicator, and puts them into the first one's stream; other streams that they name wait
/// for it, and it for them.
fn enqueue(communicator: &Arc<Communicator>, calls: Calls) {
    let mut order = communicator.order();
    let Some(stream) = calls.first().map(|(stream, _)| stream.clone()) else {
        return;
    };
    let mut others: Vec<Arc<Stream>> = Vec::new();
    for (other, _) in &calls {
        if !Arc::ptr_eq(other, &stream) && !others.iter().any(|known| Arc::ptr_eq(known, other)) {
            others.push(other.clone());
        }
    }
    for other in &others {
        stream.wait_for(other.mark());
    }
    if let Some((last, mark)) = &order.last
        && !Arc::ptr_eq(last, &stream)
    {
        stream.wait_for(mark.clone());
    }
    let numbered = calls.into_iter().map(|(_, task)| numbered(&mut order, task));
    let tasks: Vec<Task> = numbered.collect();
    communicator.submitted();
    let runner = communicator.clone();
    let device = stream.device;
    stream.submit_always(move || {
        std::thread::sleep(slowness());
        let if_well = || {
            let is_ended = || runner.state().is_stopped || device.health().is_err();
            let _held = device.multiprocessors.hold(blocks(&runner, &tasks), is_ended);
            device.health().map_or(Ok(()), |()| run(&runner, &tasks))
        };
        runner.run(if_well)
    });
    let mark = stream.mark();
    for other in others {
        other.wait_for(mark.clone());
    }
    order.last = Some((stream, mark));
}

fn numbered(order: &mut Order, mut task: Task) -> Task {
    let counter = match task.kind {
        Kind::Send => order.sends.entry(task.peer()).or_default(),
        Kind::Receive => order.receives.entry(task.peer()).or_default(),
        _ => &mut order.collectives,
    };
    task.sequence = *counter;
    *counter += 1;
    task
}

/// Ends the thread's innermost group; returns it if it is the outermost too.
fn end() -> Outcome<Group> {
    GROUP.with_borrow_mut(|group| {
        let left = group.depth.checked_sub(1);
        group.depth = left.ok_or_else(|| Error::new(INVALID_USAGE, "ncclGroupEnd: not in a group call."))?;
        Ok(if group.depth == 0 {
            std::mem::take(group)
        } else {
            Group::default()
        })
    })
}

exported! {
    fn ncclGroupStart() {
        GROUP.with_borrow_mut(|group| group.depth += 1);
        Ok(())
    }

    fn ncclGroupEnd() {
        let group = end()?;
        if let Some(error) = group.error {
            return Err(error);
        }
        let mut by_communicator: Vec<(Arc<Communicator>, Calls)> = Vec::new();
        for (communicator, stream, task) in group.calls {
            let known = by_communicator.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &communicator));
            match known {
                Some((_, calls)) => calls.push((stream, task)),
                None => by_communicator.push((communicator, vec![(stream, task)])),
            }
        }
        let mut outcome = Ok(());
        for (communicator, calls) in by_communicator {
            outcome = queue(communicator, calls).and(outcome);
        }
        meet_all(group.meetings).and(outcome)
    }
}
