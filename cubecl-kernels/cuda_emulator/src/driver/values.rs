//! Values that streams write, and wait for, in memory.

use std::ffi::{c_uint, c_void};
use std::time::Duration;

use super::device::stream::resolve;
use super::error::{Error, Outcome};
use super::memory::{check, check_running};
use crate::exported::exported;

fn write_value(stream: *mut c_void, address: u64, value: u64, bytes: usize) -> Outcome {
    let stream = resolve(stream)?;
    check(address as usize, bytes)?;
    stream.submit(move || {
        check_running(address as usize, bytes)?;
        // SAFETY: checked, and little endian: the value's first bytes are written.
        unsafe { std::ptr::copy_nonoverlapping((&raw const value).cast(), address as *mut u8, bytes) };
        Ok(())
    });
    Ok(())
}

/// Waits until a word compares so: 0 not less (cyclically), 1 equal, 2 any bit in common, 3 not all bits of either.
fn wait_value(stream: *mut c_void, address: u64, value: u64, bytes: usize, flags: c_uint) -> Outcome {
    let stream = resolve(stream)?;
    check(address as usize, bytes)?;
    if flags > 3 {
        return Err(Error::NOT_SUPPORTED);
    }
    let device = stream.device;
    stream.submit(move || {
        loop {
            check_running(address as usize, bytes)?;
            let found = match bytes {
                // SAFETY: checked; another stream may write it meanwhile.
                4 => u64::from(unsafe { (address as *const u32).read_volatile() }),
                // SAFETY: as above.
                _ => unsafe { (address as *const u64).read_volatile() },
            };
            let is_met = match flags {
                0 if bytes == 4 => (found as u32).wrapping_sub(value as u32) as i32 >= 0,
                0 => found.wrapping_sub(value) as i64 >= 0,
                1 => found == value,
                2 => found & value != 0,
                _ => !(found | value) != 0,
            };
            if is_met || device.health().is_err() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    });
    Ok(())
}

exported! {
    fn cuStreamWriteValue32_v2(stream: *mut c_void, address: u64, value: u32, _flags: c_uint) {
        write_value(stream, address, value.into(), 4)
    }

    fn cuStreamWriteValue64_v2(stream: *mut c_void, address: u64, value: u64, _flags: c_uint) {
        write_value(stream, address, value, 8)
    }

    fn cuStreamWaitValue32_v2(stream: *mut c_void, address: u64, value: u32, flags: c_uint) {
        wait_value(stream, address, value.into(), 4, flags)
    }

    fn cuStreamWaitValue64_v2(stream: *mut c_void, address: u64, value: u64, flags: c_uint) {
        wait_value(stream, address, value, 8, flags)
    }
}
