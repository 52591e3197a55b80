//! Devices, their streams, and their primary contexts: all that a thread's calls refer to.

pub mod multiprocessors;
pub mod stream;

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::attributes::attribute;
use super::error::{Error, Outcome, tell};
use crate::Architecture;
use crate::exported::{Out, exported};
use crate::recording;
use multiprocessors::Multiprocessors;
use stream::Stream;

/// What contexts' handles begin with: those of [`Handles`](crate::handles::Handles) begin otherwise.
const CONTEXT: usize = 0xD0 << 56;
/// What `cuDriverGetVersion` says: 13.0.
const VERSION: c_int = 13000;
/// The devices' memory in bytes, if the environment does not name one. It is the host's, and most of it is written.
const MEMORY: usize = 1 << 30;

/// An emulated GPU, with its primary context.
#[derive(Debug)]
pub struct Device {
    /// Its number in this process.
    pub ordinal: usize,
    /// Its number among all, whatever `CUDA_VISIBLE_DEVICES` says.
    number: usize,
    /// The GPU that it is by its attributes.
    pub architecture: Architecture,
    /// Its memory in bytes.
    pub memory: usize,
    pub multiprocessors: Multiprocessors,
    retained: AtomicUsize,
    fault: Mutex<Option<Error>>,
    default: OnceLock<Arc<Stream>>,
    streams: Mutex<Vec<Weak<Stream>>>,
}

static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

thread_local! {
    /// The thread's stack of contexts, the current one last.
    static CURRENT: RefCell<Vec<Option<&'static Device>>> = const { RefCell::new(Vec::new()) };
}

fn devices() -> Outcome<&'static [Device]> {
    DEVICES.get().map(Vec::as_slice).ok_or(Error::NOT_INITIALIZED)
}

pub fn get(ordinal: c_int) -> Outcome<&'static Device> {
    let ordinal = usize::try_from(ordinal).map_err(|_| Error::INVALID_DEVICE)?;
    devices()?.get(ordinal).ok_or(Error::INVALID_DEVICE)
}

/// Returns the device of the thread's current context, if it has not failed.
pub fn current() -> Outcome<&'static Device> {
    devices()?;
    let device = set().ok_or(Error::INVALID_CONTEXT)?;
    device.health()?;
    Ok(device)
}

/// Returns the device that CUDA's runtime would use: the first where no context is current.
pub fn current_or_first() -> Outcome<&'static Device> {
    set().map_or_else(|| get(0), Ok)
}

/// The thread's device, whether or not its context still works.
pub fn set() -> Option<&'static Device> {
    CURRENT.with_borrow(|stack| stack.last().copied().flatten())
}

fn of_context(context: *mut c_void) -> Outcome<&'static Device> {
    let ordinal = (context as usize).checked_sub(CONTEXT).ok_or(Error::INVALID_CONTEXT)?;
    let device = devices()?.get(ordinal).ok_or(Error::INVALID_CONTEXT)?;
    match device.retained.load(Ordering::Acquire) {
        0 => Err(Error::INVALID_CONTEXT),
        _ => Ok(device),
    }
}

impl Device {
    fn new(ordinal: usize, number: usize) -> Self {
        let architecture = architecture(number);
        let memory = number_in_environment("CUDA_EMULATOR_MEMORY_MB").map(|megabytes| megabytes << 20);
        Self {
            ordinal,
            number,
            architecture,
            memory: memory.unwrap_or(MEMORY),
            multiprocessors: Multiprocessors::new(architecture),
            retained: AtomicUsize::new(0),
            fault: Mutex::default(),
            default: OnceLock::new(),
            streams: Mutex::default(),
        }
    }

    /// The same in every process, and another for every device.
    pub fn uuid(&self) -> [u8; 16] {
        let mut uuid = *b"cuda-emulator\0\0\0";
        uuid[14..].copy_from_slice(&(self.number as u16).to_be_bytes());
        uuid
    }

    pub fn context(&self) -> *mut c_void {
        (CONTEXT + self.ordinal) as *mut c_void
    }

    /// Ends the context: every later call returns the error, and work that waits in streams is dropped.
    pub fn fail(&self, error: Error, what: &str) {
        tell(&format!("device {}: {what}", self.ordinal));
        let mut fault = self.fault.lock();
        fault.get_or_insert(error);
    }

    /// The error that ended the context, if one did.
    pub fn health(&self) -> Outcome {
        self.fault.lock().map_or(Ok(()), Err)
    }

    /// The stream whose handle is null.
    pub fn default_stream(&'static self) -> &'static Arc<Stream> {
        self.default.get_or_init(|| Stream::start(self, true))
    }

    pub fn add(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Its streams, the default one included if anything used it.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.lock();
        streams.iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits for all that was put into its streams until now.
    pub fn synchronize(&self) -> Outcome {
        self.streams().iter().for_each(|stream| stream.wait());
        self.health()
    }
}

pub fn number_in_environment(name: &str) -> Option<usize> {
    let value = std::env::var(name).ok()?;
    let number = value.trim().parse().ok();
    if number.is_none() {
        tell(&format!("{name}={value} is not a number and is ignored"));
    }
    number
}

/// Returns the numbers of the devices that the process may see, as CUDA reads `CUDA_VISIBLE_DEVICES`: up to the first
/// invalid entry.
fn visible(count: usize) -> Vec<usize> {
    let Ok(list) = std::env::var("CUDA_VISIBLE_DEVICES") else {
        return (0..count).collect();
    };
    let numbers = list.split(',').map(|number| number.trim().parse().ok());
    numbers
        .map_while(|number| number.filter(|&number| number < count))
        .collect()
}

/// Returns the GPU that a device is: that of its place in `CUDA_EMULATOR_GPUS`, or an A100.
fn architecture(number: usize) -> Architecture {
    let names = std::env::var("CUDA_EMULATOR_GPUS").unwrap_or_default();
    let named = names
        .split(',')
        .nth(number)
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let found = named.map(|name| (name, Architecture::named(name)));
    if let Some((name, None)) = found {
        tell(&format!(
            "CUDA_EMULATOR_GPUS: {name} is neither A100 nor H100, and taken for an A100"
        ));
    }
    found.and_then(|(_, found)| found).unwrap_or(Architecture::Sm80)
}

fn find_devices() -> Vec<Device> {
    let count = number_in_environment("CUDA_EMULATOR_DEVICES").unwrap_or(1);
    let numbers = visible(count).into_iter().enumerate();
    numbers.map(|(ordinal, number)| Device::new(ordinal, number)).collect()
}

/// Writes as much of a text as there is room for, and a zero.
fn give_text(text: &str, to: *mut c_char, length: c_int) -> Outcome {
    let length = usize::try_from(length).map_err(|_| Error::INVALID_VALUE)?;
    if to.is_null() || length == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let copied = text.len().min(length - 1);
    // SAFETY: the caller has `length` bytes there, of which a zero takes the last.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, copied);
        to.add(copied).write(0);
    }
    Ok(())
}

exported! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let found = DEVICES.get_or_init(find_devices);
        if found.is_empty() { Err(Error::NO_DEVICE) } else { Ok(()) }
    }

    fn cuDriverGetVersion(version: Out<c_int>) {
        version.give(VERSION)
    }

    // There are none. The real NVRTC asks, and fails only where the function is missing.
    fn cuGetExportTable(_table: Out<*const c_void>, _id: *const c_void) {
        Err(Error::NOT_SUPPORTED)
    }

    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        get(ordinal)?;
        device.give(ordinal)
    }

    fn cuDeviceGetCount(count: Out<c_int>) {
        count.give(devices()?.len() as c_int)
    }

    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) {
        let model = get(device)?.architecture.name();
        give_text(&format!("CUDA emulator (as NVIDIA {model})"), name, length)
    }

    fn cuDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: c_int) {
        get(device)?;
        give_text(&format!("0000:{:02x}:00.0", device + 1), id, length)
    }

    // Of Windows alone.
    fn cuDeviceGetLuid(_luid: *mut c_char, _mask: *mut c_uint, device: c_int) {
        get(device)?;
        Err(Error::NOT_SUPPORTED)
    }

    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) {
        uuid.give(get(device)?.uuid())
    }

    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) {
        uuid.give(get(device)?.uuid())
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) {
        bytes.give(get(device)?.memory)
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, asked: c_uint, device: c_int) {
        let device = get(device)?;
        let found = match asked {
            multiprocessors::ATTRIBUTE => Ok(device.multiprocessors.count as c_int),
            _ => attribute(asked, device.architecture),
        };
        value.give(found.inspect_err(|_| tell(&format!("the device attribute {asked} is not known")))?)
    }

    fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) {
        get(peer)?;
        get(device)?;
        can.give(c_int::from(device != peer))
    }

    fn cuCtxEnablePeerAccess(context: *mut c_void, _flags: c_uint) {
        of_context(context).map(drop)
    }

    fn cuDevicePrimaryCtxRetain(context: Out<*mut c_void>, device: c_int) {
        let device = get(device)?;
        device.retained.fetch_add(1, Ordering::AcqRel);
        context.give(device.context())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let retained = &get(device)?.retained;
        let fewer = retained.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
        fewer.map(drop).map_err(|_| Error::INVALID_CONTEXT)
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let is_active = get(device)?.retained.load(Ordering::Acquire) > 0;
        flags.give(0).and(active.give(c_int::from(is_active)))
    }

    fn cuCtxSetCurrent(context: *mut c_void) {
        let device = if context.is_null() { None } else { Some(of_context(context)?) };
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            stack.push(device);
        });
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: *mut c_void) {
        let device = of_context(context)?;
        CURRENT.with_borrow_mut(|stack| stack.push(Some(device)));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<*mut c_void>) {
        let device = CURRENT.with_borrow_mut(Vec::pop).flatten();
        context.give_if_asked(device.ok_or(Error::INVALID_CONTEXT)?.context());
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<*mut c_void>) {
        devices()?;
        context.give(set().map_or(std::ptr::null_mut(), Device::context))
    }

    fn cuCtxGetDevice(device: Out<c_int>) {
        device.give(current()?.ordinal as c_int)
    }

    fn cuCtxSynchronize() {
        recording::count("host wait", "context", 0);
        current()?.synchronize()
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        current()?;
        least.give_if_asked(0);
        greatest.give_if_asked(0);
        Ok(())
    }
}
