//! Communicators as they are exported: made, asked, split, ended.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::communicator::{COMMUNICATORS, Communicator};
use super::error::{
    CUDA_ERROR, Error, IN_PROGRESS, INTERNAL_ERROR, INVALID_ARGUMENT, Outcome, SYSTEM_ERROR, give, returned,
};
use super::group;
use super::rendezvous::Member;
use super::wire::{Frame, Purpose};
use crate::driver::device::{self, Device};
use crate::driver::error::tell;

/// `ncclUniqueId`: a name, and zeros.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([c_char; 128]);

/// The beginning of `ncclConfig_t`, of every version.
#[repr(C)]
struct Configuration {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

const MAGIC: c_uint = 0xcafe_beef;
/// The longest name of a unique id.
const NAME: usize = 32;

impl UniqueId {
    fn name(&self) -> Outcome<String> {
        let bytes: Vec<u8> = self
            .0
            .iter()
            .map(|&letter| letter as u8)
            .take_while(|&letter| letter != 0)
            .collect();
        let name = String::from_utf8(bytes).ok().filter(|name| name.len() == NAME);
        name.ok_or_else(|| Error::new(INVALID_ARGUMENT, "the unique id is none of ncclGetUniqueId's"))
    }
}

/// Whether a configuration asks for calls that wait.
///
/// # Safety
///
/// `configuration` must be null or point to an `ncclConfig_t`.
unsafe fn is_blocking(configuration: *const Configuration) -> Outcome<bool> {
    // SAFETY: the caller's.
    let Some(configuration) = (unsafe { configuration.as_ref() }) else {
        return Ok(true);
    };
    if configuration.magic != MAGIC || configuration.size < size_of::<Configuration>() {
        return Err(Error::new(INVALID_ARGUMENT, "ncclConfig_t was not initialised"));
    }
    match configuration.blocking {
        0 => Ok(false),
        1 | c_int::MIN => Ok(true),
        other => Err(Error::new(INVALID_ARGUMENT, format!("blocking is {other}"))),
    }
}

fn current() -> Outcome<&'static Device> {
    let device = device::current_or_first();
    device.map_err(|error| Error::new(CUDA_ERROR, format!("Cuda failure {}", error.0)))
}

/// Makes a rank's communicator, whose handle is written before the others have come.
///
/// # Safety
///
/// `communicator` must be null or a pointer that may be written.
unsafe fn make(communicator: *mut *mut c_void, member: Member, device: &'static Device, is_blocking: bool) -> Outcome {
    if member.count == 0 || member.rank >= member.count {
        let text = format!("invalid rank requested : {}/{}", member.rank, member.count);
        return Err(Error::new(INVALID_ARGUMENT, text));
    }
    let made = Communicator::new(member, device, is_blocking);
    let handle = COMMUNICATORS.insert(made.clone());
    // SAFETY: the caller's.
    unsafe { give(communicator, handle) }.inspect_err(|_| drop(COMMUNICATORS.remove(handle)))?;
    group::meet(made).inspect_err(|error| {
        // A blocking call that fails leaves no communicator.
        if error.code != IN_PROGRESS {
            COMMUNICATORS.remove(handle);
            // SAFETY: written before.
            unsafe { communicator.write(std::ptr::null_mut()) };
        }
    })
}

impl UniqueId {
    fn new() -> Outcome<Self> {
        let mut random = [0; NAME / 2];
        getrandom::fill(&mut random).map_err(|error| Error::new(SYSTEM_ERROR, error.to_string()))?;
        let mut made = UniqueId([0; 128]);
        let letters = random.iter().flat_map(|byte| format!("{byte:02x}").into_bytes());
        std::iter::zip(&mut made.0, letters).for_each(|(to, letter)| *to = letter as c_char);
        Ok(made)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> u32 {
    // SAFETY: the caller's pointer.
    returned(|| unsafe { give(id, UniqueId::new()?) })
}

/// The ranks of one process, each on a device of its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitAll(communicators: *mut *mut c_void, count: c_int, devices: *const c_int) -> u32 {
    returned(|| {
        let invalid = || Error::new(INVALID_ARGUMENT, format!("{count} devices"));
        let count = usize::try_from(count)
            .ok()
            .filter(|&count| count > 0)
            .ok_or_else(invalid)?;
        if communicators.is_null() {
            return Err(invalid());
        }
        let name = UniqueId::new()?.name()?;
        let mut made = Vec::with_capacity(count);
        for rank in 0..count {
            let ordinal = if devices.is_null() {
                rank as c_int
            } else {
                // SAFETY: the caller's list has `count` entries.
                unsafe { *devices.add(rank) }
            };
            let device = device::get(ordinal).map_err(|_| invalid())?;
            let member = Member {
                name: name.clone(),
                rank,
                count,
                uuid: device.uuid(),
            };
            made.push(Communicator::new(member, device, true));
        }
        group::meet_all(made.clone())?;
        for (rank, communicator) in made.into_iter().enumerate() {
            // SAFETY: the caller has room for all of them.
            unsafe { communicators.add(rank).write(COMMUNICATORS.insert(communicator)) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    communicator: *mut *mut c_void,
    count: c_int,
    id: UniqueId,
    rank: c_int,
    configuration: *const Configuration,
) -> u32 {
    returned(|| {
        let device = current()?;
        let number = |number: c_int| {
            let text = format!("invalid rank requested : {rank}/{count}");
            usize::try_from(number).map_err(|_| Error::new(INVALID_ARGUMENT, text))
        };
        let member = Member {
            name: id.name()?,
            rank: number(rank)?,
            count: number(count)?,
            uuid: device.uuid(),
        };
        // SAFETY: the caller's.
        unsafe { make(communicator, member, device, is_blocking(configuration)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRank(communicator: *mut *mut c_void, count: c_int, id: UniqueId, rank: c_int) -> u32 {
    // SAFETY: the caller's.
    unsafe { ncclCommInitRankConfig(communicator, count, id, rank, std::ptr::null()) }
}

/// Each rank sends its color and key to the others of the communicator; those of one color become one, ordered by key.
/// Always waits, also where the configuration says otherwise; aborting the communicator ends it.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommSplit(
    communicator: *mut c_void,
    color: c_int,
    key: c_int,
    to: *mut *mut c_void,
    configuration: *const Configuration,
) -> u32 {
    returned(|| {
        let parent = Communicator::of(communicator)?;
        parent.ready()?;
        // SAFETY: the caller's.
        let is_blocking = unsafe { is_blocking(configuration)? };
        let sequence = {
            let mut order = parent.order();
            order.splits += 1;
            order.splits
        };
        let own = [color.to_le_bytes(), key.to_le_bytes()].concat();
        let rank = parent.member.rank;
        for peer in 0..parent.member.count {
            parent.send(peer, Frame::new(Purpose::Split, sequence, own.clone()));
        }
        let mut members: Vec<(c_int, usize)> = Vec::new();
        for peer in 0..parent.member.count {
            let frame = parent.wait_for(|state| state.take((peer, Purpose::Split, sequence)));
            let frame = frame.ok_or_else(|| Error::new(INTERNAL_ERROR, "the communicator was aborted"))?;
            let number = |at: usize| c_int::from_le_bytes(std::array::from_fn(|byte| frame.payload[at + byte]));
            if number(0) == color {
                members.push((number(4), peer));
            }
        }
        if color < 0 {
            // SAFETY: the caller's pointer.
            return unsafe { give(to, std::ptr::null_mut()) };
        }
        members.sort_unstable();
        let mut hasher = DefaultHasher::new();
        (&parent.member.name, sequence, color).hash(&mut hasher);
        let member = Member {
            name: format!("{:.15}-{:016x}", parent.member.name, hasher.finish()),
            rank: members.iter().position(|&(_, member)| member == rank).unwrap_or(0),
            count: members.len(),
            uuid: parent.member.uuid,
        };
        // SAFETY: the caller's.
        unsafe { make(to, member, parent.device, is_blocking) }
    })
}

/// Refuses what the library lets pass at a price: on a thread where the communicator's device is not current it makes
/// that current for a moment, and then a context on whatever was there before: the first device, where no context was.
fn on_its_device(communicator: &Communicator) -> Outcome {
    let is_current = device::set().is_some_and(|device| std::ptr::eq(device, communicator.device));
    let text = "a communicator is ended on a thread where its device is not current";
    is_current.then_some(()).ok_or_else(|| {
        tell(&format!("NCCL: {text}"));
        Error::new(CUDA_ERROR, text)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommFinalize(communicator: *mut c_void) -> u32 {
    returned(|| {
        let communicator = Communicator::of(communicator)?;
        communicator.ready()?;
        on_its_device(&communicator)?;
        if communicator.is_blocking {
            return communicator.finish();
        }
        communicator.begin();
        std::thread::spawn(move || communicator.finish());
        Err(Error::new(IN_PROGRESS, ""))
    })
}

/// Waits for all operations: for ever, if one of them never ends, as with the library; `ncclCommAbort` does not.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommDestroy(communicator: *mut c_void) -> u32 {
    returned(|| {
        if communicator.is_null() {
            return Ok(());
        }
        let handle = communicator;
        let communicator = Communicator::of(handle)?;
        on_its_device(&communicator)?;
        let outcome = communicator.finish();
        COMMUNICATORS.remove(handle);
        communicator.close();
        outcome
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommAbort(communicator: *mut c_void) -> u32 {
    returned(|| {
        if communicator.is_null() {
            return Ok(());
        }
        let handle = communicator;
        let communicator = Communicator::of(handle)?;
        on_its_device(&communicator)?;
        communicator.abort();
        COMMUNICATORS.remove(handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(communicator: *mut c_void, error: *mut u32) -> u32 {
    // SAFETY: the caller's pointer.
    returned(|| unsafe { give(error, Communicator::of(communicator)?.progress()) })
}

/// What a communicator is, once it is made.
fn known(communicator: *mut c_void, to: *mut c_int, what: impl FnOnce(&Arc<Communicator>) -> usize) -> u32 {
    returned(|| {
        let communicator = Communicator::of(communicator)?;
        communicator.ready()?;
        // SAFETY: the caller's pointer.
        unsafe { give(to, what(&communicator) as c_int) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommCount(communicator: *mut c_void, count: *mut c_int) -> u32 {
    known(communicator, count, |communicator| communicator.member.count)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommCuDevice(communicator: *mut c_void, device: *mut c_int) -> u32 {
    known(communicator, device, |communicator| communicator.device.ordinal)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommUserRank(communicator: *mut c_void, rank: *mut c_int) -> u32 {
    known(communicator, rank, |communicator| communicator.member.rank)
}
