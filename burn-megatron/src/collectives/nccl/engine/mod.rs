//! [`Nccl`]: a group's operations on CUDA memory.
//!
//! [`prepare`](Nccl::prepare) asks CubeCL's server for the addresses of the buffers and for an event after everything
//! launched so far. [`queue`](Nccl::queue) then makes NCCL's call, on the caller's thread or on that of a transfer's
//! lane. The server's thread makes no call that waits for another rank: two ranks whose servers waited for each other
//! would hang.

mod connecting;

pub(crate) use connecting::connect_all;

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{self, AtomicBool};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use burn_megatron_comm::collectives::device::{DeviceEngine, GroupCore, GroupHealth, Made, ahead_of_time};
use cubecl::cuda::CudaDevice;
use cubecl_kernels::cuda::{queue, server};
use parking_lot::Mutex;

use super::communicator::{ABORT_LIMIT, Communicator, Refusal};
use super::library::{DataType, Library, Reduction, Status, dotted};
use super::order::{Event, StreamHandle, driver_message};
use super::pauses::Pauses;
use super::place::{Buffers, CallMemory, Place, Prepared};
use super::traffic::{Counted, NcclTraffic};
use super::watchdog::{Watchdog, Watched};
use crate::collectives::{CallDescriptor, CollectiveError, ElementType, Engine, Operation, ProcessGroup, ReduceOp};

/// How many sends to one rank may be on their way: each keeps its tensor until it has been received.
const MOST_SENDS: usize = 4;
/// The version of a rank that has no NCCL.
const NO_VERSION: i32 = 0;
/// How long the end of a group waits for the others to close a communicator.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// A group's part of NCCL.
#[derive(Debug)]
pub(crate) struct Nccl {
    library: &'static Library,
    device: CudaDevice,
    health: Arc<GroupHealth>,
    /// By the ranks that it connects; made at its first call.
    communicators: Mutex<HashMap<Ends, Arc<Communicator>>>,
    watchdog: Mutex<Watchdog>,
    counted: Counted,
    /// True if a call ends on the GPU before it is taken for queued.
    waits_for_calls: AtomicBool,
}

/// Whom a communicator connects, by group index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ends {
    All,
    Pair { from: usize, to: usize },
}

/// Returns the group's part of NCCL, if it has one.
pub(crate) fn of(group: &ProcessGroup) -> Option<&Nccl> {
    of_core(group.core())
}

/// As [`of`].
pub(crate) fn of_core(core: &GroupCore) -> Option<&Nccl> {
    let engine: &dyn Any = &**core.device.get()?;
    engine.downcast_ref()
}

impl NcclTraffic {
    /// Returns what this rank has sent over NCCL for `group`; `None` if the group has no NCCL.
    pub fn of(group: &ProcessGroup) -> Option<Self> {
        of(group).map(Nccl::traffic)
    }
}

/// Lets each call of the group on a GPU's memory be waited for on the host, or not, as at first: while kernels are
/// loaded, nothing of NCCL may run that waits for what comes after.
pub(crate) fn wait_for_gpu_calls(group: &ProcessGroup, waits: bool) {
    if let Some(nccl) = of(group) {
        nccl.waits_for_calls.store(waits, atomic::Ordering::Release);
    }
}

/// Gives the group NCCL for tensors on the GPU, if all ranks have it. Collective over the group.
pub(crate) fn attach(group: &ProcessGroup, gpu: usize) -> Result<(), CollectiveError> {
    let nccl = Nccl::new(CudaDevice::new(gpu), group.core());
    let mut versions = vec![NO_VERSION; group.size()];
    let own = nccl.as_ref().map_or(NO_VERSION, |nccl| nccl.library.version);
    group.all_gather(&[own], &mut versions)?;
    // Not in use by anybody yet.
    let _ = group.core().device.set(Box::new(nccl?));
    let ranks = group.ranks();
    let differs = versions.iter().position(|&version| version != versions[0]);
    let what = match (versions.iter().position(|&version| version == NO_VERSION), differs) {
        (None, None) => return Ok(()),
        (Some(rank), _) => format!("rank {} has no NCCL; what it lacks is in its own message", ranks[rank]),
        (None, Some(rank)) => format!(
            "rank {} has NCCL {}, and rank {} has {}: versions need not understand each other",
            ranks[0],
            dotted(versions[0]),
            ranks[rank],
            dotted(versions[rank])
        ),
    };
    let group = group.core().health.label.to_string();
    Err(CollectiveError::NoAgreement { group, what })
}

/// A call that has been queued. Its result is available to work launched after [`before_use`](Started::before_use).
#[derive(Debug)]
#[must_use = "what uses the result must wait for it"]
pub(crate) struct Started {
    device: CudaDevice,
    done: Arc<Event>,
    health: Arc<GroupHealth>,
    memory: Arc<CallMemory>,
}

impl Started {
    /// Makes all that is launched on the device from now on wait for the call, and gives the call's memory back to that
    /// order: what is launched next may get it, or write to it in place. No host waits.
    pub fn before_use(self) {
        let Self {
            device,
            done,
            health,
            memory,
        } = self;
        let buffers = memory.take().expect("a call is waited for once");
        let reserved = buffers.clone().reserved();
        // Other threads' streams wait for this one where they use the buffers.
        queue::<Started>(&server(&device), buffers.clone().of_result(), move |stream, _| {
            // Not earlier: launches that are queued before this would get the memory too.
            let _reserved = reserved;
            done.block(StreamHandle::of(stream)).map_err(|error| {
                let refused = format!("the CUDA driver refuses to order streams: {error:?}");
                health.poison(&refused);
                refused
            })
        });
        // Not earlier: a thread might write to them in place before the wait is queued.
        drop(buffers);
    }
}

impl Nccl {
    /// Returns the part of NCCL of a group whose tensors are on `device`. Nothing is connected yet.
    ///
    /// # Errors
    /// When NCCL is not there, or a thread cannot be started.
    pub fn new(device: CudaDevice, core: &Arc<GroupCore>) -> Result<Self, CollectiveError> {
        let setup = |what: &str, source| CollectiveError::Setup {
            group: core.health.label.to_string(),
            what: what.to_owned(),
            source,
        };
        let library = Library::find().map_err(|error| setup("use NCCL", std::io::Error::other(error)))?;
        let watchdog = Watchdog::start(core);
        Ok(Self {
            library,
            device,
            health: core.health.clone(),
            communicators: Mutex::default(),
            watchdog: Mutex::new(watchdog.map_err(|source| setup("start the watchdog of NCCL", source))?),
            counted: Counted::default(),
            waits_for_calls: AtomicBool::default(),
        })
    }

    /// Returns what this rank has sent.
    pub fn traffic(&self) -> NcclTraffic {
        self.counted.so_far()
    }

    /// Asks for the addresses of the buffers, and for an event after everything launched so far.
    pub fn prepare(&self, buffers: Buffers) -> Prepared {
        Prepared::ask(&self.device, buffers)
    }

    /// Queues a call after everything that had been launched on the device when it was prepared. The first call of a
    /// communicator connects it, for which the other ranks are needed. `host` is the group's engine for host memory;
    /// `call` comes in its order among the group's calls.
    ///
    /// # Errors
    /// When the ranks do not come together, or NCCL or the driver refuses the call. What goes wrong later is the
    /// watchdog's to tell.
    pub fn queue(
        &self,
        host: &dyn Engine,
        call: CallDescriptor,
        made: &Made,
        prepared: Prepared,
    ) -> Result<Started, CollectiveError> {
        let failed = |refusal: Refusal| self.failed(&call, refusal);
        let said = |what: String| failed(Refusal::Reported(what));
        let place = prepared.wait(&self.check_wait()).map_err(said)?;
        place.context.make_current().map_err(said)?;
        let communicator = self.communicator(&call, host, place.context)?;
        // What NCCL has taken over may still write to the buffers, which are given back here.
        let aborted = |refusal: Refusal| {
            communicator.abort(&refusal.to_string());
            failed(refusal)
        };
        if call.operation == Operation::Send {
            self.wait_for_sends(&communicator, &call).map_err(aborted)?;
        }
        // From now: whoever connected may have waited for long.
        let done = perform(&communicator, &call, &place, self.deadline(&call)).map_err(aborted)?;
        let done = Arc::new(done);
        if call.operation == Operation::Send {
            communicator.sends.lock().push_back(done.clone());
        }
        let memory = Arc::new(CallMemory::new(prepared.buffers));
        let watched = self.watchdog.lock().watch(Watched {
            call,
            made: made.clone(),
            communicator: communicator.clone(),
            launched: place.launched,
            done: done.clone(),
            awaited: ahead_of_time(),
            memory: memory.clone(),
        });
        watched.map_err(|_| aborted(Refusal::Reported("the group was dropped".to_owned())))?;
        if self.waits_for_calls.load(atomic::Ordering::Acquire) {
            self.wait_for_end(&done, &call).map_err(aborted)?;
        }
        self.counted.add(&call, &self.health.label);
        Ok(Started {
            device: self.device.clone(),
            done,
            health: self.health.clone(),
            memory,
        })
    }

    /// Waits until fewer than [`MOST_SENDS`] are on their way: a stage that is faster than the next one, and gets no
    /// gradients back, would run ahead of it, and hold whatever it has made.
    fn wait_for_sends(&self, communicator: &Communicator, call: &CallDescriptor) -> Result<(), Refusal> {
        let mut sends = communicator.sends.lock();
        while sends.len() >= MOST_SENDS
            && let Some(first) = sends.pop_front()
        {
            self.wait_for_end(&first, call)?;
        }
        Ok(())
    }

    /// Waits for the end of a queued call. Bounded by the watchdog, which ends what hangs and says why.
    fn wait_for_end(&self, done: &Event, call: &CallDescriptor) -> Result<(), Refusal> {
        let pauses = Pauses::begin();
        while !done.is_done().map_err(driver_message)? {
            self.health.check(Some(call)).map_err(Refusal::Waited)?;
            pauses.take();
        }
        Ok(())
    }

    /// Returns the error of a call that was refused: what is known of the job's failure tells more.
    fn failed(&self, call: &CallDescriptor, refusal: Refusal) -> CollectiveError {
        match refusal {
            Refusal::Waited(error) => error,
            Refusal::Reported(what) => {
                let known = self.health.check(Some(call)).err();
                known.unwrap_or_else(|| self.health.device_error(call, what))
            }
        }
    }

    /// Returns a check of whether a wait in NCCL for the other ranks, begun now, may continue.
    fn deadline<'a>(&'a self, call: &'a CallDescriptor) -> impl Fn() -> Result<(), CollectiveError> + 'a {
        let deadline = self.health.wait_deadline_on_device(call);
        move || deadline.check(|| self.health.awaited_by(call))
    }

    /// Returns a check of whether a wait for CubeCL's server, begun now, may continue.
    fn check_wait(&self) -> impl Fn() -> Result<(), String> {
        let (health, begun) = (&self.health, Instant::now());
        move || {
            health.check(None).map_err(|error| error.to_string())?;
            if begun.elapsed() > health.timeout {
                Err(format!(
                    "CubeCL has not come to it within {} s",
                    health.timeout.as_secs_f64()
                ))
            } else {
                Ok(())
            }
        }
    }
}

impl DeviceEngine for Nccl {
    fn bytes_communicated(&self) -> u64 {
        self.traffic().bytes
    }

    /// Ends the watch: what is on its way may take until `deadline`, and is then ended.
    fn stop(&self, deadline: Instant) {
        // Not locked meanwhile: a lane may be about to hand over a call.
        let ending = self.watchdog.lock().end(deadline);
        if let Some(ending) = ending {
            ending.wait();
        }
    }

    /// Closes the communicators in parallel, after [`stop`](Self::stop). The time is bounded even if NCCL does not
    /// return.
    fn close(&self) {
        let (ends, all_ended) = mpsc::channel::<()>();
        for (_, communicator) in self.communicators.lock().drain() {
            let end = ends.clone();
            let close = move || {
                communicator.close(CLOSE_LIMIT);
                drop(end);
            };
            // Without a thread it is aborted as it is dropped.
            let _ = std::thread::Builder::new().name("NCCL close".to_owned()).spawn(close);
        }
        drop(ends);
        let _ = all_ended.recv_timeout(CLOSE_LIMIT + ABORT_LIMIT);
    }
}

/// Makes NCCL's call on the communicator's stream, between what was launched before and an event, which is returned.
fn perform(
    communicator: &Communicator,
    call: &CallDescriptor,
    place: &Place,
    check_wait: impl Fn() -> Result<(), CollectiveError>,
) -> Result<Event, Refusal> {
    place.launched.block(communicator.stream).map_err(driver_message)?;
    let length = call.length;
    let element = data_type(call.element_type);
    let peer = call.peer.map_or(0, |peer| peer as i32);
    let (input, output) = (place.input(), place.output());
    communicator.call(
        // SAFETY: the buffers are device memory of the lengths that the group has checked, kept until the
        // stream is done with them; communicator and stream are open.
        |library, comm, stream| unsafe {
            match call.operation {
                Operation::AllReduce => {
                    (library.all_reduce)(input, output, length, element, reduction(call.reduce_op), comm, stream)
                }
                Operation::AllGather => match place.distance {
                    None => (library.all_gather)(input, output, length, element, comm, stream),
                    Some(distance) => each_to_its_place(library, communicator.size, |rank| {
                        let output = output.byte_add(rank * distance);
                        (library.broadcast)(input, output, length, element, rank as i32, comm, stream)
                    }),
                },
                Operation::ReduceScatter => {
                    (library.reduce_scatter)(input, output, length, element, reduction(call.reduce_op), comm, stream)
                }
                Operation::Broadcast => (library.broadcast)(input, output, length, element, peer, comm, stream),
                // Of a pair, of which the sender is the first.
                Operation::Send => (library.send)(input, length, element, 1, comm, stream),
                Operation::Recv => (library.recv)(output, length, element, 0, comm, stream),
                Operation::Barrier
                | Operation::Allocate
                | Operation::AllReduceShared
                | Operation::AllGatherShared
                | Operation::ReduceScatterShared => {
                    unreachable!("{} is not an operation on device memory", call.operation)
                }
            }
        },
        check_wait,
    )?;
    Ok(Event::record(communicator.stream).map_err(driver_message)?)
}

/// Makes the calls of an all-gather whose parts are not adjacent, one of each rank, as one group: NCCL runs them at the
/// same time, in one kernel, and each link carries what it carries in an all-gather.
///
/// # Safety
/// As of the calls.
unsafe fn each_to_its_place(library: &Library, ranks: usize, call: impl Fn(usize) -> Status) -> Status {
    let is_good = |status: &Status| [Status::SUCCESS, Status::IN_PROGRESS].contains(status);
    // SAFETY: ended below, on the same thread.
    let started = unsafe { (library.group_start)() };
    if started != Status::SUCCESS {
        return started;
    }
    let refused = (0..ranks).map(call).find(|status| !is_good(status));
    // SAFETY: it was started.
    let ended = unsafe { (library.group_end)() };
    refused.unwrap_or(ended)
}

fn data_type(element: ElementType) -> DataType {
    match element {
        ElementType::F64 => DataType::Float64,
        ElementType::F32 => DataType::Float32,
        ElementType::F16 => DataType::Float16,
        ElementType::BF16 => DataType::Bfloat16,
        ElementType::I64 => DataType::Int64,
        ElementType::I32 => DataType::Int32,
        ElementType::U8 => DataType::Uint8,
    }
}

fn reduction(op: Option<ReduceOp>) -> Reduction {
    match op {
        Some(ReduceOp::Mean) => Reduction::Average,
        Some(ReduceOp::Max) => Reduction::Max,
        Some(ReduceOp::Sum) | None => Reduction::Sum,
    }
}
