//! Streams: each is a thread that does what was put into its queue, in order, at its own pace.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Device, current, number_in_environment};
use crate::driver::error::{Error, Outcome};
use crate::exported::{Out, exported};
use crate::handles::Handles;
use crate::recording;

/// The streams that were created and not destroyed.
static STREAMS: Handles<Stream> = Handles::new(1);
const NON_BLOCKING: c_uint = 1;
/// How many seconds a load or an allocation waits for the device, if the environment does not say: ranks that it may
/// wait for compile kernels.
const WAIT_LIMIT: usize = 120;
/// Time between two looks at whether the device has failed, of those who wait for it.
const HEALTH_SLICE: Duration = Duration::from_millis(50);
/// The handles of the default stream by name, and of the thread's own.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// A queue of work that one thread does.
#[derive(Debug)]
pub struct Stream {
    pub device: &'static Device,
    /// Whether it and the default stream wait for each other.
    is_blocking: bool,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    operations: VecDeque<Operation>,
    submitted: u64,
    completed: u64,
    is_destroyed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} operations done", self.completed, self.submitted)
    }
}

enum Operation {
    /// Is left out once the device has failed.
    Work(Work),
    Always(Work),
    Signal(Arc<Mark>),
    Wait(Arc<Mark>),
}

type Work = Box<dyn FnOnce() -> Result<(), Fault> + Send>;

/// What ends a context, and what is said of it.
pub type Fault = (Error, String);

/// A place in a stream: reached when all before it is done.
#[derive(Debug, Default)]
pub struct Mark {
    reached: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Mark {
    pub fn time(&self) -> Option<Instant> {
        *self.reached.lock()
    }

    /// Waits for the place to be reached, or the device to fail.
    pub fn wait(&self, device: &Device) {
        let mut reached = self.reached.lock();
        while reached.is_none() && device.health().is_ok() {
            self.changed.wait_for(&mut reached, HEALTH_SLICE);
        }
    }

    fn reach(&self) {
        *self.reached.lock() = Some(Instant::now());
        self.changed.notify_all();
    }
}

impl Stream {
    pub fn start(device: &'static Device, is_blocking: bool) -> Arc<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let stream = Arc::new(Self {
            device,
            is_blocking,
            queue: Mutex::default(),
            changed: Condvar::new(),
        });
        device.add(&stream);
        if recording::is_on() {
            return stream;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let worker = stream.clone();
        let thread = std::thread::Builder::new().name(format!("cuda stream {number}"));
        thread
            .spawn(move || worker.work(Jitter::new(number)))
            .expect("a stream needs a thread");
        stream
    }

    fn work(&self, mut jitter: Jitter) {
        loop {
            let mut queue = self.queue.lock();
            let operation = loop {
                match queue.operations.pop_front() {
                    Some(operation) => break operation,
                    None if queue.is_destroyed => return,
                    None => self.changed.wait(&mut queue),
                }
            };
            drop(queue);
            jitter.sleep();
            match operation {
                Operation::Signal(mark) => mark.reach(),
                Operation::Wait(mark) => mark.wait(self.device),
                Operation::Work(work) if self.device.health().is_ok() => self.run(work),
                Operation::Work(_) => (),
                Operation::Always(work) => self.run(work),
            }
            self.queue.lock().completed += 1;
            self.changed.notify_all();
        }
    }

    fn run(&self, work: Work) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => (),
            Ok(Err((error, what))) => self.device.fail(error, &what),
            Err(_) => self.device.fail(Error::UNKNOWN, "work of a stream panicked"),
        }
    }

    fn push(&self, operation: Operation) {
        if recording::is_on() {
            return self.pass(operation);
        }
        let mut queue = self.queue.lock();
        queue.submitted += 1;
        queue.operations.push_back(operation);
        drop(queue);
        self.changed.notify_all();
    }

    /// What becomes of an operation while recording: work is not done, and nothing is waited for.
    fn pass(&self, operation: Operation) {
        match operation {
            Operation::Always(work) => self.run(work),
            Operation::Signal(mark) => mark.reach(),
            Operation::Work(_) | Operation::Wait(_) => (),
        }
    }

    /// Puts work into the queue.
    pub fn submit(&self, work: impl FnOnce() -> Result<(), Fault> + Send + 'static) {
        self.order_with_default();
        self.push(Operation::Work(Box::new(work)));
    }

    /// As [`submit`](Self::submit), for work that ends by itself once the device has failed; it is done while recording
    /// as well.
    pub fn submit_always(&self, work: impl FnOnce() -> Result<(), Fault> + Send + 'static) {
        self.order_with_default();
        self.push(Operation::Always(Box::new(work)));
    }

    /// Puts a mark into the queue.
    pub fn mark(&self) -> Arc<Mark> {
        self.order_with_default();
        self.plain_mark()
    }

    fn plain_mark(&self) -> Arc<Mark> {
        let mark = Arc::new(Mark::default());
        self.push(Operation::Signal(mark.clone()));
        mark
    }

    /// What is put into the queue from now on waits for a mark of another.
    pub fn wait_for(&self, mark: Arc<Mark>) {
        self.push(Operation::Wait(mark));
    }

    /// The default stream waits for all streams that are not free of it, and they for it.
    fn order_with_default(&self) {
        if !self.is_blocking {
            return;
        }
        let is_default = |stream: &Stream| std::ptr::eq(stream, &**self.device.default_stream());
        for other in self.device.streams() {
            let matters = other.is_blocking && !std::ptr::eq(&*other, self) && (is_default(self) || is_default(&other));
            if matters && other.is_busy() {
                self.wait_for(other.plain_mark());
            }
        }
    }

    fn is_busy(&self) -> bool {
        let queue = self.queue.lock();
        queue.completed < queue.submitted
    }

    /// Waits for what is in the queue now, until `end` or the failure of the device; returns whether that is done.
    fn wait_until(&self, end: Option<Instant>) -> bool {
        let mut queue = self.queue.lock();
        let last = queue.submitted;
        while queue.completed < last {
            let left = end.map_or(HEALTH_SLICE, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() || self.device.health().is_err() {
                return false;
            }
            self.changed.wait_for(&mut queue, left.min(HEALTH_SLICE));
        }
        true
    }

    /// Waits for what is in the queue now, or the failure of the device.
    pub fn wait(&self) {
        self.wait_until(None);
    }

    /// Waits for what is in the queue now, and tells whether the device is well.
    pub fn synchronize(&self) -> Outcome {
        self.wait();
        self.device.health()
    }
}

/// How long a load or an allocation waits for the device; not at all, where this is zero.
fn wait_limit() -> Duration {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    let seconds = LIMIT.get_or_init(|| number_in_environment("CUDA_EMULATOR_WAIT_LIMIT_S").unwrap_or(WAIT_LIMIT));
    Duration::from_secs(*seconds as u64)
}

/// Waits for all that was put into a device's streams, as CUDA may do before it loads a kernel or allocates memory;
/// `what` is what waits. Does nothing where the limit is zero.
pub fn settle_before(device: &Device, what: &str) -> Outcome {
    if wait_limit().is_zero() {
        Ok(())
    } else {
        settle(device, what)
    }
}

/// Waits for all that was put into a device's streams.
///
/// # Errors
///
/// If that takes longer than the limit, which ends the context: on a GPU it might never return.
pub fn settle(device: &Device, what: &str) -> Outcome {
    let limit = match wait_limit() {
        Duration::ZERO => Duration::from_secs(WAIT_LIMIT as u64),
        limit => limit,
    };
    let end = Instant::now() + limit;
    let streams = device.streams();
    let late: Vec<&Arc<Stream>> = streams.iter().filter(|stream| !stream.wait_until(Some(end))).collect();
    device.health()?;
    if late.is_empty() {
        return Ok(());
    }
    let queues: Vec<String> = late.iter().map(|stream| format!("{:?}", stream.queue.lock())).collect();
    let what = format!(
        "{what} has waited {} s for what runs on the device, and {} of {} streams are not done ({}): what runs there \
         waits for something that comes later, such as a message from a rank that waits for this one",
        limit.as_secs(),
        late.len(),
        streams.len(),
        queues.join(", ")
    );
    device.fail(Error::LAUNCH_TIMEOUT, &what);
    Err(Error::LAUNCH_TIMEOUT)
}

/// Pseudo-random pauses before operations, so that what is not ordered comes in any order.
struct Jitter {
    most: u64,
    state: u64,
}

impl Jitter {
    fn new(stream: u64) -> Self {
        static SETTING: OnceLock<(u64, u64)> = OnceLock::new();
        let (most, seed) = *SETTING.get_or_init(|| {
            let number = |name| number_in_environment(name).unwrap_or(0) as u64;
            (number("CUDA_EMULATOR_JITTER_US"), number("CUDA_EMULATOR_SEED"))
        });
        let state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (stream + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
        Self { most, state }
    }

    fn sleep(&mut self) {
        if self.most == 0 {
            return;
        }
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        std::thread::sleep(Duration::from_micros(mixed % (self.most + 1)));
    }
}

pub fn resolve(handle: *mut c_void) -> Outcome<Arc<Stream>> {
    match handle as usize {
        0 | LEGACY => Ok(current()?.default_stream().clone()),
        PER_THREAD => Err(Error::NOT_SUPPORTED),
        _ => {
            let stream = STREAMS.get(handle).ok_or(Error::INVALID_HANDLE)?;
            stream.device.health()?;
            Ok(stream)
        }
    }
}

fn create(stream: Out<*mut c_void>, flags: c_uint) -> Outcome {
    if flags > NON_BLOCKING {
        return Err(Error::INVALID_VALUE);
    }
    let device = current()?;
    // Blocking streams are ordered with the default one, which has to be there.
    device.default_stream();
    stream.give(STREAMS.insert(Stream::start(device, flags != NON_BLOCKING)))
}

exported! {
    fn cuStreamCreate(stream: Out<*mut c_void>, flags: c_uint) {
        create(stream, flags)
    }

    fn cuStreamCreateWithPriority(stream: Out<*mut c_void>, flags: c_uint, _priority: c_int) {
        create(stream, flags)
    }

    fn cuStreamDestroy_v2(stream: *mut c_void) {
        let stream = STREAMS.remove(stream).ok_or(Error::INVALID_HANDLE)?;
        // What it holds is done nevertheless.
        stream.queue.lock().is_destroyed = true;
        stream.changed.notify_all();
        Ok(())
    }

    fn cuStreamSynchronize(stream: *mut c_void) {
        recording::count("host wait", "stream", 0);
        resolve(stream)?.synchronize()
    }

    fn cuStreamQuery(stream: *mut c_void) {
        if resolve(stream)?.is_busy() { Err(Error::NOT_READY) } else { Ok(()) }
    }

    fn cuStreamGetCtx(stream: *mut c_void, context: Out<*mut c_void>) {
        context.give(resolve(stream)?.device.context())
    }

    fn cuStreamIsCapturing(stream: *mut c_void, status: Out<c_uint>) {
        resolve(stream)?;
        status.give(0)
    }

    fn cuLaunchHostFunc(
        stream: *mut c_void,
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        argument: *mut c_void,
    ) {
        let function = function.ok_or(Error::INVALID_VALUE)?;
        let argument = argument as usize;
        resolve(stream)?.submit_always(move || {
            // SAFETY: the caller's function, with the argument that it is for.
            unsafe { function(argument as *mut c_void) };
            Ok(())
        });
        Ok(())
    }
}
