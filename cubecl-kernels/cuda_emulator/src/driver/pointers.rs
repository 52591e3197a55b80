//! What is asked of memory and of addresses.

use std::ffi::{c_int, c_uint, c_void};

use super::device::{current, get};
use super::error::{Error, Outcome, tell};
use super::memory::{Place, range_of, unused};
use crate::exported::{Out, exported};

exported! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let device = current()?;
        free.give(unused(device)).and(total.give(device.memory))
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<usize>, address: u64) {
        let (first, length, _) = range_of(address as usize)?;
        base.give_if_asked(first as u64);
        bytes.give_if_asked(length);
        Ok(())
    }

    fn cuPointerGetAttribute(to: Out<c_void>, attribute: c_uint, address: u64) {
        let (first, length, place) = range_of(address as usize)?;
        let device = match place {
            Place::Device(ordinal) => get(ordinal as c_int)?,
            Place::Pinned => current()?,
        };
        // SAFETY: the caller's pointer, to what the attribute is.
        unsafe {
            match attribute {
                1 => to.of().give(device.context()),
                // As of `CUmemorytype`: the host's, or a device's.
                2 => to.of::<c_uint>().give(if place == Place::Pinned { 1 } else { 2 }),
                3 => to.of().give(address),
                // The host's address: of pinned memory only.
                4 if place == Place::Pinned => to.of().give(address),
                4 => Err(Error::INVALID_VALUE),
                8 => to.of::<c_uint>().give(0),
                9 => to.of().give(device.ordinal as c_int),
                11 => to.of().give(first as u64),
                12 => to.of().give(length),
                _ => {
                    tell(&format!("the pointer attribute {attribute} is not known"));
                    Err(Error::INVALID_VALUE)
                }
            }
        }
    }
}
