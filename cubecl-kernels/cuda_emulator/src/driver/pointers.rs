//! What is asked of memory and of addresses.

use std::ffi::{c_int, c_uint, c_void};

use super::device::{current, get};
use super::error::{Error, Outcome, give, returned, tell};
use super::memory::{Place, range_of, unused};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    returned(|| {
        let device = current()?;
        // SAFETY: the caller's pointers.
        unsafe {
            give(free, unused(device))?;
            give(total, device.memory)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) -> u32 {
    returned(|| {
        let (first, length, _) = range_of(address as usize)?;
        // SAFETY: the caller's pointers, which may be null.
        let (base, bytes) = unsafe { (base.as_mut(), bytes.as_mut()) };
        if let Some(base) = base {
            *base = first as u64;
        }
        if let Some(bytes) = bytes {
            *bytes = length;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(to: *mut c_void, attribute: c_uint, address: u64) -> u32 {
    returned(|| {
        let (first, length, place) = range_of(address as usize)?;
        let device = match place {
            Place::Device(ordinal) => get(ordinal as c_int)?,
            Place::Pinned => current()?,
        };
        // SAFETY: the caller's pointer, to what the attribute is.
        unsafe {
            match attribute {
                1 => give(to.cast(), device.context()),
                // As of `CUmemorytype`: the host's, or a device's.
                2 => give::<c_uint>(to.cast(), if place == Place::Pinned { 1 } else { 2 }),
                3 => give::<u64>(to.cast(), address),
                4 => host(to, place, address),
                8 => give::<c_uint>(to.cast(), 0),
                9 => give::<c_int>(to.cast(), device.ordinal as c_int),
                11 => give::<u64>(to.cast(), first as u64),
                12 => give::<usize>(to.cast(), length),
                _ => {
                    tell(&format!("the pointer attribute {attribute} is not known"));
                    Err(Error::INVALID_VALUE)
                }
            }
        }
    })
}

/// The host's address: of pinned memory only.
///
/// # Safety
///
/// As of [`give`].
unsafe fn host(to: *mut c_void, place: Place, address: u64) -> Outcome {
    match place {
        // SAFETY: the caller's.
        Place::Pinned => unsafe { give::<u64>(to.cast(), address) },
        Place::Device(_) => Err(Error::INVALID_VALUE),
    }
}
