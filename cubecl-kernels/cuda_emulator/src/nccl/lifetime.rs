//! Communicators as they are exported: made, asked, split, ended.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::communicator::{COMMUNICATORS, Communicator, Settings};
use super::error::{
    CUDA_ERROR, Error, IN_PROGRESS, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, Outcome, SYSTEM_ERROR,
};
use super::group;
use super::rendezvous::Member;
use super::wire::{Frame, Purpose};
use crate::driver::device::{self, Device};
use crate::driver::error::tell;
use crate::exported::{Out, exported};
use crate::recording;

/// `ncclUniqueId`: a name, and zeros.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([c_char; 128]);

/// The beginning of `ncclConfig_t`: up to `blocking` of every version, and up to the end since 2.17.
#[derive(Clone, Copy)]
#[repr(C)]
struct Configuration {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster_size: c_int,
    fewest_blocks: c_int,
    most_blocks: c_int,
}

/// What a configuration has in each field that is not set.
const UNDEFINED: c_int = c_int::MIN;
/// The size of a configuration that ends with `blocking`.
const SHORT: usize = 24;
/// The first version with the number of blocks.
const WITH_BLOCKS: c_uint = 21_700;

const MAGIC: c_uint = 0xcafe_beef;
/// The longest name of a unique id.
const NAME: usize = 32;

impl UniqueId {
    fn new() -> Outcome<Self> {
        let mut random = [0; NAME / 2];
        getrandom::fill(&mut random).map_err(|error| Error::new(SYSTEM_ERROR, error.to_string()))?;
        let mut made = UniqueId([0; 128]);
        let letters = random.iter().flat_map(|byte| format!("{byte:02x}").into_bytes());
        std::iter::zip(&mut made.0, letters).for_each(|(to, letter)| *to = letter as c_char);
        Ok(made)
    }

    fn name(&self) -> Outcome<String> {
        let bytes: Vec<u8> = self
            .0
            .iter()
            .map(|&letter| letter as u8)
            .take_while(|&letter| letter != 0)
            .collect();
        // While recording no other rank has to know it.
        let is_name = |name: &String| name.len() == NAME || recording::is_on();
        let name = String::from_utf8(bytes).ok().filter(is_name);
        name.ok_or_else(|| Error::new(INVALID_ARGUMENT, "the unique id is none of ncclGetUniqueId's"))
    }
}

/// What a configuration asks for.
///
/// # Safety
///
/// `configuration` must be null or point to an `ncclConfig_t` of the size that it says.
unsafe fn settings(configuration: *const Configuration) -> Outcome<Settings> {
    let invalid = |text: String| Error::new(INVALID_ARGUMENT, text);
    if configuration.is_null() {
        return Ok(Settings::DEFAULT);
    }
    let mut read = Configuration {
        size: 0,
        magic: 0,
        version: 0,
        blocking: UNDEFINED,
        cluster_size: UNDEFINED,
        fewest_blocks: UNDEFINED,
        most_blocks: UNDEFINED,
    };
    // SAFETY: the caller's; no more is read than the configuration has.
    unsafe {
        let size = (*configuration).size.min(size_of::<Configuration>());
        std::ptr::copy_nonoverlapping(configuration.cast::<u8>(), (&raw mut read).cast(), size);
    }
    if read.magic != MAGIC || read.size < SHORT {
        return Err(invalid("ncclConfig_t was not initialised".to_owned()));
    }
    let most_blocks = match read.most_blocks {
        blocks if blocks == UNDEFINED || read.version < WITH_BLOCKS => None,
        blocks if blocks > 0 => Some(blocks as usize),
        blocks => return Err(invalid(format!("Invalid config maxCTAs attribute value {blocks}"))),
    };
    let is_blocking = match read.blocking {
        0 => false,
        1 | UNDEFINED => true,
        other => return Err(invalid(format!("blocking is {other}"))),
    };
    Ok(Settings {
        is_blocking,
        most_blocks,
    })
}

/// Makes a rank's communicator, whose handle is written before the others have come.
fn make(to: Out<*mut c_void>, member: Member, device: &'static Device, settings: Settings) -> Outcome {
    if member.count == 0 || member.rank >= member.count {
        let text = format!("invalid rank requested : {}/{}", member.rank, member.count);
        return Err(Error::new(INVALID_ARGUMENT, text));
    }
    let made = Communicator::new(member, device, settings);
    let handle = COMMUNICATORS.insert(made.clone());
    to.give(handle)
        .inspect_err(|_: &Error| drop(COMMUNICATORS.remove(handle)))?;
    group::meet(made).inspect_err(|error| {
        // A blocking call that fails leaves no communicator.
        if error.code != IN_PROGRESS {
            COMMUNICATORS.remove(handle);
            to.give_if_asked(std::ptr::null_mut());
        }
    })
}

/// Makes the communicator of a rank of those that know a unique id.
fn make_by_id(to: Out<*mut c_void>, count: c_int, id: UniqueId, rank: c_int, settings: Settings) -> Outcome {
    let device = device::current_or_first()?;
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
    make(to, member, device, settings)
}

/// Makes the communicators of all ranks, each on its device, and returns their handles.
fn make_all(devices: &[c_int], invalid: impl Fn() -> Error) -> Outcome<Vec<*mut c_void>> {
    let name = UniqueId::new()?.name()?;
    let mut made = Vec::with_capacity(devices.len());
    for (rank, &ordinal) in devices.iter().enumerate() {
        let device = device::get(ordinal).map_err(|_| invalid())?;
        let member = Member {
            name: name.clone(),
            rank,
            count: devices.len(),
            uuid: device.uuid(),
        };
        made.push(Communicator::new(member, device, Settings::DEFAULT));
    }
    group::meet_all(made.clone())?;
    Ok(made.into_iter().map(|made| COMMUNICATORS.insert(made)).collect())
}

/// Sends a rank's color and key to the others, and returns who it is among those of its color, ordered by key: none
/// where the color is below zero.
fn split(parent: &Communicator, color: c_int, key: c_int) -> Outcome<Option<Member>> {
    if recording::is_on() {
        return Err(Error::new(
            INVALID_USAGE,
            "the other ranks' colors are not known while recording",
        ));
    }
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
        return Ok(None);
    }
    members.sort_unstable();
    let mut hasher = DefaultHasher::new();
    (&parent.member.name, sequence, color).hash(&mut hasher);
    Ok(Some(Member {
        name: format!("{:.15}-{:016x}", parent.member.name, hasher.finish()),
        rank: members.iter().position(|&(_, member)| member == rank).unwrap_or(0),
        count: members.len(),
        uuid: parent.member.uuid,
    }))
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

/// Ends a communicator, and forgets its handle; nothing is done for a null one.
fn end(handle: *mut c_void, end: impl FnOnce(&Communicator) -> Outcome) -> Outcome {
    if handle.is_null() {
        return Ok(());
    }
    let communicator = Communicator::of(handle)?;
    on_its_device(&communicator)?;
    let outcome = end(&communicator);
    COMMUNICATORS.remove(handle);
    outcome
}

/// Writes what a communicator is, once it is made.
fn known(communicator: *mut c_void, to: Out<c_int>, what: impl FnOnce(&Communicator) -> usize) -> Outcome {
    let communicator = Communicator::of(communicator)?;
    communicator.ready()?;
    to.give(what(&communicator) as c_int)
}

exported! {
    fn ncclGetUniqueId(id: Out<UniqueId>) {
        id.give(UniqueId::new()?)
    }

    /// The ranks of one process, each on a device of its own.
    fn ncclCommInitAll(communicators: *mut *mut c_void, count: c_int, devices: *const c_int) {
        let invalid = || Error::new(INVALID_ARGUMENT, format!("{count} devices"));
        let length = usize::try_from(count).ok().filter(|&count| count > 0).ok_or_else(invalid)?;
        if communicators.is_null() {
            return Err(invalid());
        }
        let devices: Vec<c_int> = if devices.is_null() {
            (0..count).collect()
        } else {
            // SAFETY: the caller's list has `count` entries.
            unsafe { std::slice::from_raw_parts(devices, length) }.to_vec()
        };
        for (rank, handle) in make_all(&devices, invalid)?.into_iter().enumerate() {
            // SAFETY: the caller has room for all of them.
            unsafe { communicators.add(rank).write(handle) };
        }
        Ok(())
    }

    fn ncclCommInitRankConfig(
        communicator: Out<*mut c_void>,
        count: c_int,
        id: UniqueId,
        rank: c_int,
        configuration: *const Configuration,
    ) {
        // SAFETY: the caller's.
        let settings = unsafe { settings(configuration)? };
        make_by_id(communicator, count, id, rank, settings)
    }

    fn ncclCommInitRank(communicator: Out<*mut c_void>, count: c_int, id: UniqueId, rank: c_int) {
        make_by_id(communicator, count, id, rank, Settings::DEFAULT)
    }

    /// Each rank sends its color and key to the others of the communicator; those of one color become one, ordered by
    /// key. Always waits, also where the configuration says otherwise; aborting the communicator ends it.
    fn ncclCommSplit(
        communicator: *mut c_void,
        color: c_int,
        key: c_int,
        to: Out<*mut c_void>,
        configuration: *const Configuration,
    ) {
        let parent = Communicator::of(communicator)?;
        parent.ready()?;
        // SAFETY: the caller's.
        let settings = unsafe { settings(configuration)? };
        match split(&parent, color, key)? {
            Some(member) => make(to, member, parent.device, settings),
            None => to.give(std::ptr::null_mut()),
        }
    }

    fn ncclCommFinalize(communicator: *mut c_void) {
        let communicator = Communicator::of(communicator)?;
        communicator.ready()?;
        on_its_device(&communicator)?;
        if communicator.is_blocking {
            return communicator.finish();
        }
        communicator.begin();
        std::thread::spawn(move || communicator.finish());
        Err(Error::in_progress())
    }

    /// Waits for all operations: for ever, if one of them never ends, as with the library; `ncclCommAbort` does not.
    fn ncclCommDestroy(communicator: *mut c_void) {
        end(communicator, |communicator| {
            let outcome = communicator.finish();
            communicator.close();
            outcome
        })
    }

    fn ncclCommAbort(communicator: *mut c_void) {
        end(communicator, |communicator| {
            communicator.abort();
            Ok(())
        })
    }

    fn ncclCommGetAsyncError(communicator: *mut c_void, error: Out<u32>) {
        error.give(Communicator::of(communicator)?.progress())
    }

    fn ncclCommCount(communicator: *mut c_void, count: Out<c_int>) {
        known(communicator, count, |communicator| communicator.member.count)
    }

    fn ncclCommCuDevice(communicator: *mut c_void, device: Out<c_int>) {
        known(communicator, device, |communicator| communicator.device.ordinal)
    }

    fn ncclCommUserRank(communicator: *mut c_void, rank: Out<c_int>) {
        known(communicator, rank, |communicator| communicator.member.rank)
    }
}
