//! Devices, and their primary contexts: all that a thread's calls refer to.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::attributes::attribute;
use super::error::{Error, Outcome, give, returned, tell};
use super::stream::Stream;

/// What contexts' handles begin with: those of [`Handles`](crate::handles::Handles) begin otherwise.
const CONTEXT: usize = 0xD0 << 56;
/// What `cuDriverGetVersion` says: 13.0.
const VERSION: c_int = 13000;
/// The devices' memory in bytes, if the environment does not name one. It is the host's, and most of it is written.
const MEMORY: usize = 1 << 30;

/// A GPU that is none, with its primary context.
#[derive(Debug)]
pub struct Device {
    /// Its number in this process.
    pub ordinal: usize,
    /// Its number among all, whatever `CUDA_VISIBLE_DEVICES` says.
    number: usize,
    /// Its memory in bytes.
    pub memory: usize,
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

/// Returns the device of a number.
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
        let memory = number_in_environment("CUDA_EMULATOR_MEMORY_MB").map(|megabytes| megabytes << 20);
        Self {
            ordinal,
            number,
            memory: memory.unwrap_or(MEMORY),
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

    /// Its context's handle.
    pub fn context(&self) -> *mut c_void {
        (CONTEXT + self.ordinal) as *mut c_void
    }

    /// Ends the context: every later call returns the error, and work that waits in streams is dropped.
    pub fn fail(&self, error: Error, what: &str) {
        tell(&format!("device {}: {what}", self.ordinal));
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert(error);
    }

    /// The error that ended the context, if one did.
    pub fn health(&self) -> Outcome {
        self.fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .map_or(Ok(()), Err)
    }

    /// The stream whose handle is null.
    pub fn default_stream(&'static self) -> &'static Arc<Stream> {
        self.default.get_or_init(|| Stream::start(self, true))
    }

    pub fn add(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Its streams, the default one included if anything used it.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
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
        tell(&format!("{name}={value} is no number, and is not heeded"));
    }
    number
}

/// Returns the numbers of the devices that the process may see, as CUDA reads `CUDA_VISIBLE_DEVICES`: up to the first
/// that is none.
fn visible(count: usize) -> Vec<usize> {
    let Ok(list) = std::env::var("CUDA_VISIBLE_DEVICES") else {
        return (0..count).collect();
    };
    let numbers = list.split(',').map(|number| number.trim().parse().ok());
    numbers
        .map_while(|number| number.filter(|&number| number < count))
        .collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuInit(flags: c_uint) -> u32 {
    returned(|| {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let found = DEVICES.get_or_init(|| {
            let count = number_in_environment("CUDA_EMULATOR_DEVICES").unwrap_or(1);
            let numbers = visible(count).into_iter().enumerate();
            numbers.map(|(ordinal, number)| Device::new(ordinal, number)).collect()
        });
        if found.is_empty() {
            Err(Error::NO_DEVICE)
        } else {
            Ok(())
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: the caller's pointer.
    returned(|| unsafe { give(version, VERSION) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> u32 {
    returned(|| {
        get(ordinal)?;
        // SAFETY: the caller's pointer.
        unsafe { give(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    // SAFETY: the caller's pointer.
    returned(|| unsafe { give(count, devices()?.len() as c_int) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> u32 {
    returned(|| {
        get(device)?;
        const NAME: &[u8] = b"CUDA emulator (as NVIDIA A100)\0";
        let length = usize::try_from(length).map_err(|_| Error::INVALID_VALUE)?;
        if name.is_null() || length == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let copied = length.min(NAME.len());
        // SAFETY: the caller has `length` bytes there, and `copied` is no more; the last one becomes zero.
        unsafe {
            std::ptr::copy_nonoverlapping(NAME.as_ptr().cast(), name, copied);
            name.add(copied - 1).write(0);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> u32 {
    // SAFETY: the caller's pointer, to 16 bytes.
    returned(|| unsafe { give(uuid, get(device)?.uuid()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> u32 {
    // SAFETY: as above.
    unsafe { cuDeviceGetUuid(uuid, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> u32 {
    // SAFETY: the caller's pointer.
    returned(|| unsafe { give(bytes, get(device)?.memory) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, asked: c_uint, device: c_int) -> u32 {
    returned(|| {
        get(device)?;
        let found = attribute(asked).inspect_err(|_| tell(&format!("the device attribute {asked} is not known")))?;
        // SAFETY: the caller's pointer.
        unsafe { give(value, found) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> u32 {
    returned(|| {
        get(peer)?;
        get(device)?;
        // SAFETY: the caller's pointer.
        unsafe { give(can, c_int::from(device != peer)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxEnablePeerAccess(context: *mut c_void, _flags: c_uint) -> u32 {
    returned(|| of_context(context).map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> u32 {
    returned(|| {
        let device = get(device)?;
        device.retained.fetch_add(1, Ordering::AcqRel);
        // SAFETY: the caller's pointer.
        unsafe { give(context, device.context()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32 {
    returned(|| {
        let retained = &get(device)?.retained;
        let fewer = retained.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
        fewer.map(drop).map_err(|_| Error::INVALID_CONTEXT)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) -> u32 {
    returned(|| {
        let is_active = get(device)?.retained.load(Ordering::Acquire) > 0;
        // SAFETY: the caller's pointers.
        unsafe {
            give(flags, 0)?;
            give(active, c_int::from(is_active))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> u32 {
    returned(|| {
        let device = if context.is_null() {
            None
        } else {
            Some(of_context(context)?)
        };
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            stack.push(device);
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPushCurrent_v2(context: *mut c_void) -> u32 {
    returned(|| {
        let device = of_context(context)?;
        CURRENT.with_borrow_mut(|stack| stack.push(Some(device)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut *mut c_void) -> u32 {
    returned(|| {
        let device = CURRENT.with_borrow_mut(Vec::pop).flatten();
        let device = device.ok_or(Error::INVALID_CONTEXT)?;
        if context.is_null() {
            Ok(())
        } else {
            // SAFETY: the caller's pointer.
            unsafe { give(context, device.context()) }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> u32 {
    returned(|| {
        devices()?;
        let handle = set().map_or(std::ptr::null_mut(), Device::context);
        // SAFETY: the caller's pointer.
        unsafe { give(context, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> u32 {
    // SAFETY: the caller's pointer.
    returned(|| unsafe { give(device, current()?.ordinal as c_int) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize() -> u32 {
    returned(|| current()?.synchronize())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> u32 {
    returned(|| {
        current()?;
        for priority in [least, greatest] {
            // SAFETY: the caller's pointers, which may be null.
            if let Some(priority) = unsafe { priority.as_mut() } {
                *priority = 0;
            }
        }
        Ok(())
    })
}
