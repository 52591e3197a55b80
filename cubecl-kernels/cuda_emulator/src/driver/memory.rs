//! Memory: the host's, in which everything that was not written, or was freed, is not a number.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_uint, c_void};

use parking_lot::Mutex;

use super::device::stream::{Fault, Stream, resolve, settle, settle_before};
use super::device::{Device, current};
use super::error::{Error, Outcome, tell};
use crate::exported::{Out, exported};
use crate::recording;

/// Neither a number in any type of floats, nor a sensible index.
pub const POISON: u8 = 0xFF;
/// Bytes of the guard after every allocation, which must not change.
const GUARD: usize = 512;
/// Bytes of freed memory that stay in place, poisoned, so that a use after free reads no number instead of ending the
/// process.
const QUARANTINE: usize = 256 << 20;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A device's, by its number.
    Device(usize),
    /// The host's, pinned.
    Pinned,
}

impl Place {
    /// Its name in what is recorded.
    fn name(self) -> &'static str {
        match self {
            Self::Device(_) => "device",
            Self::Pinned => "pinned",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Used,
    /// Freed by the caller; its stream has not come there.
    Freeing,
    Freed,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    base: usize,
    size: usize,
    place: Place,
    life: Life,
}

impl Allocation {
    fn mapped(&self) -> usize {
        (self.size + GUARD).next_multiple_of(4096)
    }

    fn holds(&self, address: usize, bytes: usize) -> bool {
        address
            .checked_add(bytes)
            .is_some_and(|end| end <= self.base + self.size)
    }

    fn poison(&self) {
        if recording::is_on() {
            return;
        }
        // SAFETY: mapped, and there is no reference to device memory.
        unsafe { std::ptr::write_bytes(self.base as *mut u8, POISON, self.mapped()) };
    }

    /// Whether the guard is unchanged.
    fn is_whole(&self) -> bool {
        if recording::is_on() {
            return true;
        }
        // SAFETY: mapped, right after what the caller was given.
        let guard = unsafe { std::slice::from_raw_parts((self.base + self.size) as *const u8, GUARD) };
        guard.iter().all(|&byte| byte == POISON)
    }
}

struct Memory {
    /// By the first address.
    allocations: BTreeMap<usize, Allocation>,
    /// First addresses of what was freed, the oldest first.
    freed: VecDeque<usize>,
    freed_bytes: usize,
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    allocations: BTreeMap::new(),
    freed: VecDeque::new(),
    freed_bytes: 0,
});

impl Memory {
    /// Returns the allocation that contains an address or ends there.
    fn around(&self, address: usize) -> Option<&Allocation> {
        let (_, allocation) = self.allocations.range(..=address).next_back()?;
        allocation.holds(address, 0).then_some(allocation)
    }

    fn used(&self, place: Place) -> usize {
        let all = self.allocations.values();
        let used = all.filter(|allocation| allocation.place == place && allocation.life != Life::Freed);
        used.map(|allocation| allocation.size).sum()
    }

    /// Notes how much memory of a place is in use.
    fn record(&self, place: Place) {
        if recording::is_on() {
            recording::memory_changed(place.name(), self.used(place));
        }
    }
}

/// Returns new memory, poisoned.
fn allocate(device: &Device, place: Place, size: usize) -> Outcome<usize> {
    if size == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let mut memory = MEMORY.lock();
    if size > device.memory.saturating_sub(memory.used(place)) {
        return Err(Error::OUT_OF_MEMORY);
    }
    let mut allocation = Allocation {
        base: 0,
        size,
        place,
        life: Life::Used,
    };
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping of no file.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), allocation.mapped(), access(place), kind, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(Error::OUT_OF_MEMORY);
    }
    allocation.base = base as usize;
    allocation.poison();
    memory.allocations.insert(allocation.base, allocation);
    memory.record(place);
    recording::count("allocation", place.name(), size);
    Ok(allocation.base)
}

/// What may be done with memory: while recording, a device's is not there.
fn access(place: Place) -> c_int {
    match place {
        Place::Device(_) if recording::is_on() => libc::PROT_NONE,
        _ => libc::PROT_READ | libc::PROT_WRITE,
    }
}

/// Returns the place of a range that a call names.
///
/// # Errors
///
/// If the range is not inside one allocation, or the caller has freed it.
pub fn check(address: usize, bytes: usize) -> Outcome<Place> {
    let memory = MEMORY.lock();
    let allocation = memory.around(address).ok_or(Error::INVALID_VALUE)?;
    if allocation.life == Life::Used && allocation.holds(address, bytes) {
        Ok(allocation.place)
    } else {
        Err(Error::INVALID_VALUE)
    }
}

/// As [`check`], of a device's memory only.
pub fn check_device(address: usize, bytes: usize) -> Outcome<usize> {
    match check(address, bytes)? {
        Place::Device(ordinal) => Ok(ordinal),
        Place::Pinned => Err(Error::INVALID_VALUE),
    }
}

/// Whether an address is that of pinned memory, of a device's, or nothing that is known.
pub fn place_of(address: usize) -> Option<Place> {
    let memory = MEMORY.lock();
    let allocation = memory.around(address)?;
    (allocation.life == Life::Used && allocation.holds(address, 1)).then_some(allocation.place)
}

/// How many bytes of a device's memory are free.
pub fn unused(device: &Device) -> usize {
    device
        .memory
        .saturating_sub(MEMORY.lock().used(Place::Device(device.ordinal)))
}

/// Returns the base, the size in bytes and the place of the allocation that contains an address.
pub fn range_of(address: usize) -> Outcome<(usize, usize, Place)> {
    check(address, 1)?;
    let memory = MEMORY.lock();
    let allocation = memory.around(address).ok_or(Error::INVALID_VALUE)?;
    Ok((allocation.base, allocation.size, allocation.place))
}

/// Checks a range when the stream comes to what uses it.
pub fn check_running(address: usize, bytes: usize) -> Result<(), Fault> {
    let memory = MEMORY.lock();
    let is_there = |allocation: &&Allocation| allocation.life != Life::Freed && allocation.holds(address, bytes);
    match memory.around(address).filter(is_there) {
        Some(_) => Ok(()),
        None => {
            let what = format!("{bytes} bytes at {address:#x} were used after they were freed");
            Err((Error::ILLEGAL_ADDRESS, what))
        }
    }
}

/// Checks that nothing was written past the end of the allocations that contain these addresses.
pub fn check_guards(addresses: &[usize]) -> Result<(), Fault> {
    let memory = MEMORY.lock();
    for &address in addresses {
        let allocation = memory
            .around(address)
            .filter(|allocation| allocation.life != Life::Freed);
        if let Some(allocation) = allocation.filter(|allocation| !allocation.is_whole()) {
            let what = format!("wrote past the {} bytes at {:#x}", allocation.size, allocation.base);
            return Err((Error::ILLEGAL_ADDRESS, what));
        }
    }
    Ok(())
}

/// Marks an allocation as freed by the caller.
fn begin_free(address: usize, may_be: impl Fn(Place) -> bool) -> Outcome<Place> {
    let mut memory = MEMORY.lock();
    let allocation = memory.allocations.get_mut(&address).ok_or(Error::INVALID_VALUE)?;
    if allocation.life != Life::Used || !may_be(allocation.place) {
        return Err(Error::INVALID_VALUE);
    }
    allocation.life = Life::Freeing;
    Ok(allocation.place)
}

/// How many bytes of freed memory stay in place: none while recording, since nothing uses memory.
fn quarantine() -> usize {
    if recording::is_on() { 0 } else { QUARANTINE }
}

/// Poisons an allocation, and gives old ones back.
fn end_free(address: usize) -> Result<(), Fault> {
    let mut memory = MEMORY.lock();
    let Some(allocation) = memory.allocations.get_mut(&address) else {
        return Ok(());
    };
    let was_whole = allocation.is_whole();
    allocation.poison();
    allocation.life = Life::Freed;
    let freed = *allocation;
    memory.freed.push_back(address);
    memory.freed_bytes += freed.mapped();
    memory.record(freed.place);
    recording::count("free", freed.place.name(), freed.size);
    while memory.freed_bytes > quarantine()
        && let Some(oldest) = memory.freed.pop_front()
    {
        if let Some(allocation) = memory.allocations.remove(&oldest) {
            memory.freed_bytes -= allocation.mapped();
            // SAFETY: mapped with this size, and forgotten here.
            unsafe { libc::munmap(oldest as *mut c_void, allocation.mapped()) };
        }
    }
    if was_whole {
        return Ok(());
    }
    let what = format!("something was written past the {} bytes at {address:#x}", freed.size);
    Err((Error::ILLEGAL_ADDRESS, what))
}

fn is_device(place: Place) -> bool {
    matches!(place, Place::Device(_))
}

fn allocate_pinned(address: Out<*mut c_void>, bytes: usize) -> Outcome {
    let device = current()?;
    settle_before(device, "an allocation of pinned memory")?;
    let base = allocate(device, Place::Pinned, bytes)?;
    address.give(base as *mut c_void)
}

/// Allocates in the order of a stream.
fn allocate_in(stream: &Stream, bytes: usize) -> Outcome<usize> {
    let take = || allocate(stream.device, Place::Device(stream.device.ordinal), bytes);
    let base = match take() {
        // What streams are about to free is waited for, as CUDA does.
        Err(Error::OUT_OF_MEMORY) if bytes <= stream.device.memory => {
            settle(stream.device, "an allocation without room")?;
            take()?
        }
        taken => taken?,
    };
    // Once more when the stream comes here: whoever wrote before did not wait for it.
    stream.submit(move || {
        if let Some(allocation) = MEMORY.lock().allocations.get(&base) {
            allocation.poison();
        }
        Ok(())
    });
    Ok(base)
}

exported! {
    fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) {
        let device = current()?;
        settle_before(device, "an allocation of device memory")?;
        let base = allocate(device, Place::Device(device.ordinal), bytes)?;
        address.give(base as u64)
    }

    fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: *mut c_void) {
        let base = allocate_in(&*resolve(stream)?, bytes)?;
        address.give(base as u64)
    }

    fn cuMemFreeAsync(address: u64, stream: *mut c_void) {
        let stream = resolve(stream)?;
        let base = address as usize;
        begin_free(base, is_device)?;
        stream.submit_always(move || end_free(base));
        Ok(())
    }

    fn cuMemFree_v2(address: u64) {
        if address == 0 {
            return Ok(());
        }
        let base = address as usize;
        let Place::Device(ordinal) = begin_free(base, is_device)? else {
            return Err(Error::INVALID_VALUE);
        };
        let device = super::device::get(ordinal as i32)?;
        // As CUDA does, for everything that the device still has to do.
        settle(device, "the release of device memory")?;
        end_free(base).map_err(|(error, what)| {
            device.fail(error, &what);
            error
        })
    }

    fn cuMemHostAlloc(address: Out<*mut c_void>, bytes: usize, _flags: c_uint) {
        allocate_pinned(address, bytes)
    }

    fn cuMemAllocHost_v2(address: Out<*mut c_void>, bytes: usize) {
        allocate_pinned(address, bytes)
    }

    fn cuMemFreeHost(address: *mut c_void) {
        let base = address as usize;
        begin_free(base, |place| place == Place::Pinned)?;
        end_free(base).map_err(|(error, what)| {
            tell(&what);
            error
        })
    }
}
