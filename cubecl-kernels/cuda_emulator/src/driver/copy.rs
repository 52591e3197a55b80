//! Copies and memsets: checked when they are asked for, and again when their stream comes to them.

use std::ffi::{c_uchar, c_uint, c_void};
use std::sync::Arc;

use super::device::stream::{Stream, resolve};
use super::error::{Error, Outcome};
use super::memory::{Place, check, check_device, check_running, place_of};
use crate::exported::exported;
use crate::recording;

/// Rows of bytes in memory.
#[derive(Clone, Copy, Debug)]
struct Rows {
    address: usize,
    pitch: usize,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Host(Rows),
    Device(Rows),
}

/// A copy of `height` rows of `width` bytes.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    to: End,
    from: End,
    width: usize,
    height: usize,
}

impl Transfer {
    fn bytes(to: End, from: End, width: usize) -> Self {
        let height = 1;
        Self {
            to,
            from,
            width,
            height,
        }
    }

    /// How many bytes the rows of an end span.
    fn span(&self, rows: Rows) -> Outcome<usize> {
        if self.height > 1 && rows.pitch < self.width {
            return Err(Error::INVALID_VALUE);
        }
        let before = rows.pitch.checked_mul(self.height - 1).ok_or(Error::INVALID_VALUE)?;
        before.checked_add(self.width).ok_or(Error::INVALID_VALUE)
    }

    /// Checks an end; a host's is pinned memory or not known.
    fn check(&self, end: End) -> Outcome {
        match end {
            End::Device(rows) => check_device(rows.address, self.span(rows)?).map(drop),
            End::Host(rows) => match place_of(rows.address) {
                _ if rows.address == 0 => Err(Error::INVALID_VALUE),
                Some(Place::Pinned) => check(rows.address, self.span(rows)?).map(drop),
                Some(Place::Device(_)) => Err(Error::INVALID_VALUE),
                None => self.span(rows).map(drop),
            },
        }
    }

    /// Puts the copy into a stream. Host memory that is not pinned is read before this returns, and written: CUDA
    /// copies such through memory of its own.
    fn submit(mut self, stream: &Arc<Stream>) -> Outcome {
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        self.check(self.to)?;
        self.check(self.from)?;
        if recording::is_on() {
            self.record();
            return Ok(());
        }
        // Known now: what is freed before the copy runs is still an error then.
        let is_known = |end: End| match end {
            End::Device(_) => true,
            End::Host(rows) => place_of(rows.address).is_some(),
        };
        let known = [self.to, self.from].map(is_known);
        let mut staged = Vec::new();
        if let (End::Host(rows), false) = (self.from, known[1]) {
            for row in 0..self.height {
                // SAFETY: the caller's memory has `height` rows.
                let bytes =
                    unsafe { std::slice::from_raw_parts((rows.address + row * rows.pitch) as *const u8, self.width) };
                staged.extend_from_slice(bytes);
            }
            let address = staged.as_ptr() as usize;
            self.from = End::Host(Rows {
                address,
                pitch: self.width,
            });
        }
        stream.submit(move || {
            let _alive = &staged;
            let running = |end: End, is_known: bool| -> Result<Rows, super::device::stream::Fault> {
                let (End::Host(rows) | End::Device(rows)) = end;
                if is_known {
                    let span = self.span(rows).map_err(|error| (error, "rows overlap".to_string()))?;
                    check_running(rows.address, span)?;
                }
                Ok(rows)
            };
            let (to, from) = (running(self.to, known[0])?, running(self.from, known[1])?);
            for row in 0..self.height {
                let from = (from.address + row * from.pitch) as *const u8;
                let to = (to.address + row * to.pitch) as *mut u8;
                // SAFETY: checked, or the caller's host memory; the ends may overlap.
                unsafe { std::ptr::copy(from, to, self.width) };
            }
            Ok(())
        });
        if known[0] { Ok(()) } else { stream.synchronize() }
    }

    /// Counts the copy; what the host reads of a device is zero.
    fn record(&self) {
        let name = match (self.from, self.to) {
            (End::Host(from), End::Device(_)) if place_of(from.address).is_some() => "host to device, pinned",
            (End::Host(_), End::Device(_)) => "host to device, pageable",
            (End::Device(_), End::Host(to)) if place_of(to.address).is_some() => "device to host, pinned",
            (End::Device(_), End::Host(_)) => "device to host, pageable",
            (End::Device(_), End::Device(_)) => "device to device",
            (End::Host(_), End::Host(_)) => "host to host",
        };
        let bytes = self.width * self.height;
        recording::count("copy", name, bytes);
        if let (End::Device(_), End::Host(to)) = (self.from, self.to) {
            for row in 0..self.height {
                // SAFETY: checked, or the caller's host memory, which has `height` rows.
                unsafe { std::ptr::write_bytes((to.address + row * to.pitch) as *mut u8, 0, self.width) };
            }
        }
    }
}

fn host(address: *const c_void) -> End {
    let address = address as usize;
    End::Host(Rows { address, pitch: 0 })
}

fn device(address: u64) -> End {
    let address = address as usize;
    End::Device(Rows { address, pitch: 0 })
}

/// The end that an address is, for the calls that do not name it.
fn either(address: u64) -> End {
    match place_of(address as usize) {
        Some(Place::Device(_)) => device(address),
        _ => host(address as *const c_void),
    }
}

/// Puts work into the default stream, and waits for it.
fn now(submit: impl FnOnce(&Arc<Stream>) -> Outcome) -> Outcome {
    let stream = resolve(std::ptr::null_mut())?;
    recording::count("host wait", "copy", 0);
    submit(&stream)?;
    stream.synchronize()
}

fn copy(to: End, from: End, bytes: usize, stream: *mut c_void) -> Outcome {
    Transfer::bytes(to, from, bytes).submit(&resolve(stream)?)
}

fn copy_now(to: End, from: End, bytes: usize) -> Outcome {
    now(|stream| Transfer::bytes(to, from, bytes).submit(stream))
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Memcpy2D {
    from_x: usize,
    from_y: usize,
    from_type: c_uint,
    from_host: *const c_void,
    from_device: u64,
    from_array: *mut c_void,
    from_pitch: usize,
    to_x: usize,
    to_y: usize,
    to_type: c_uint,
    to_host: *mut c_void,
    to_device: u64,
    to_array: *mut c_void,
    to_pitch: usize,
    width: usize,
    height: usize,
}

impl Memcpy2D {
    /// # Safety
    ///
    /// The pointer must be null or point to one.
    unsafe fn read(copy: *const Self) -> Outcome<Transfer> {
        // SAFETY: the caller's.
        unsafe { copy.as_ref() }.ok_or(Error::INVALID_VALUE)?.transfer()
    }

    fn transfer(&self) -> Outcome<Transfer> {
        let end = |kind, host: usize, device: u64, pitch: usize, x: usize, y: usize| {
            // A pitch of zero means rows without gaps.
            let pitch = if pitch == 0 { self.width } else { pitch };
            let skipped = y.checked_mul(pitch).and_then(|rows| rows.checked_add(x));
            let skipped = skipped.filter(|_| pitch >= self.width).ok_or(Error::INVALID_VALUE)?;
            let rows = |address: usize| Rows {
                address: address.wrapping_add(skipped),
                pitch,
            };
            match kind {
                1 => Ok(End::Host(rows(host))),
                2 => Ok(End::Device(rows(device as usize))),
                _ => Err(Error::NOT_SUPPORTED),
            }
        };
        let (to, from) = (self.to_host as usize, self.from_host as usize);
        Ok(Transfer {
            to: end(self.to_type, to, self.to_device, self.to_pitch, self.to_x, self.to_y)?,
            from: end(
                self.from_type,
                from,
                self.from_device,
                self.from_pitch,
                self.from_x,
                self.from_y,
            )?,
            width: self.width,
            height: self.height,
        })
    }
}

/// Repeats a pattern over memory.
fn fill(address: u64, pattern: &[u8], count: usize, stream: &Arc<Stream>) -> Outcome {
    let bytes = count.checked_mul(pattern.len()).ok_or(Error::INVALID_VALUE)?;
    if bytes == 0 {
        return Ok(());
    }
    if !address.is_multiple_of(pattern.len() as u64) {
        return Err(Error::INVALID_VALUE);
    }
    check_device(address as usize, bytes)?;
    recording::count("memset", "device", bytes);
    let pattern = pattern.to_vec();
    stream.submit(move || {
        check_running(address as usize, bytes)?;
        // SAFETY: checked.
        let memory = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) };
        match pattern.as_slice() {
            [byte] => memory.fill(*byte),
            pattern => memory
                .chunks_exact_mut(pattern.len())
                .for_each(|to| to.copy_from_slice(pattern)),
        }
        Ok(())
    });
    Ok(())
}

exported! {
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) {
        copy(device(to), host(from), bytes, stream)
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) {
        copy(host(to), device(from), bytes, stream)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        copy(device(to), device(from), bytes, stream)
    }

    fn cuMemcpyPeerAsync(
        to: u64,
        _to_context: *mut c_void,
        from: u64,
        _from_context: *mut c_void,
        bytes: usize,
        stream: *mut c_void,
    ) {
        copy(device(to), device(from), bytes, stream)
    }

    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        copy(either(to), either(from), bytes, stream)
    }

    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        copy_now(either(to), either(from), bytes)
    }

    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        copy_now(device(to), host(from), bytes)
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        copy_now(host(to), device(from), bytes)
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        copy_now(device(to), device(from), bytes)
    }

    fn cuMemcpy2DAsync_v2(copy: *const Memcpy2D, stream: *mut c_void) {
        // SAFETY: the caller's, or null.
        unsafe { Memcpy2D::read(copy)? }.submit(&resolve(stream)?)
    }

    fn cuMemcpy2D_v2(copy: *const Memcpy2D) {
        // SAFETY: the caller's, or null.
        let transfer = unsafe { Memcpy2D::read(copy)? };
        now(|stream| transfer.submit(stream))
    }

    fn cuMemsetD8Async(address: u64, value: c_uchar, count: usize, stream: *mut c_void) {
        fill(address, &[value], count, &resolve(stream)?)
    }

    fn cuMemsetD32Async(address: u64, value: c_uint, count: usize, stream: *mut c_void) {
        fill(address, &value.to_ne_bytes(), count, &resolve(stream)?)
    }

    fn cuMemsetD8_v2(address: u64, value: c_uchar, count: usize) {
        now(|stream| fill(address, &[value], count, stream))
    }

    fn cuMemsetD32_v2(address: u64, value: c_uint, count: usize) {
        now(|stream| fill(address, &value.to_ne_bytes(), count, stream))
    }
}
