//! A rank of the scenes, what it holds, and operations tried out of place and in place.

use std::ffi::c_void;

use anyhow::{Context, Result, ensure};
use cudarc::driver::sys::CUstream;
use cudarc::nccl::{result, sys};
use half::{bf16, f16};
use sys::ncclDataType_t as Type;
use sys::ncclRedOp_t as Reduction;

use crate::gpu::{Address, allocate, done, download, open, upload, write};
use crate::scene::Role;

/// A rank with its communicator.
pub struct Rank {
    pub stream: CUstream,
    pub communicator: sys::ncclComm_t,
    pub rank: usize,
    pub ranks: usize,
}

impl Rank {
    pub fn join(role: &Role) -> Result<Self> {
        Self::join_as(role.rank, role.ranks, role.ids[0])
    }

    pub fn join_as(rank: usize, ranks: usize, id: sys::ncclUniqueId) -> Result<Self> {
        let stream = open(rank)?;
        let communicator = communicator(rank, ranks, id)?;
        Ok(Self {
            stream,
            communicator,
            rank,
            ranks,
        })
    }

    /// What this rank holds of the `n`th numbers of all.
    pub fn values(&self, count: usize) -> Vec<f64> {
        values(self.rank, count)
    }

    pub fn all_reduce(&self, address: Address, count: usize) -> Result<()> {
        let (kind, sum) = (Type::ncclFloat32, Reduction::ncclSum);
        let (from, to) = (address as *const c_void, address as *mut c_void);
        // SAFETY: the emulator checks the addresses.
        done(unsafe { result::all_reduce(from, to, count, kind, sum, self.communicator, self.stream.cast()) })
    }

    pub fn send(&self, address: Address, count: usize, kind: Type, peer: usize) -> Result<()> {
        let (from, peer) = (address as *const c_void, peer as i32);
        // SAFETY: the emulator checks the addresses.
        done(unsafe { result::send(from, count, kind, peer, self.communicator, self.stream.cast()) })
    }

    pub fn receive(&self, address: Address, count: usize, kind: Type, peer: usize) -> Result<()> {
        let (to, peer) = (address as *mut c_void, peer as i32);
        // SAFETY: the emulator checks the addresses.
        done(unsafe { result::recv(to, count, kind, peer, self.communicator, self.stream.cast()) })
    }
}

pub fn communicator(rank: usize, ranks: usize, id: sys::ncclUniqueId) -> Result<sys::ncclComm_t> {
    let mut communicator = std::ptr::null_mut();
    // SAFETY: the handle is written here.
    done(unsafe { result::comm_init_rank(&mut communicator, ranks as i32, id, rank as i32) })?;
    Ok(communicator)
}

/// Small numbers, whose products of three ranks fit any type.
pub fn values(rank: usize, count: usize) -> Vec<f64> {
    (0..count)
        .map(|index| ((rank * 7 + index * 3) % 5 + 1) as f64)
        .collect()
}

fn to_bytes(kind: Type, values: &[f64]) -> Vec<u8> {
    let each = values.iter().map(|&value| match kind {
        Type::ncclInt8 => (value as i8).to_ne_bytes().to_vec(),
        Type::ncclUint8 => (value as u8).to_ne_bytes().to_vec(),
        Type::ncclInt32 => (value as i32).to_ne_bytes().to_vec(),
        Type::ncclUint32 => (value as u32).to_ne_bytes().to_vec(),
        Type::ncclInt64 => (value as i64).to_ne_bytes().to_vec(),
        Type::ncclUint64 => (value as u64).to_ne_bytes().to_vec(),
        Type::ncclFloat16 => f16::from_f64(value).to_ne_bytes().to_vec(),
        Type::ncclBfloat16 => bf16::from_f64(value).to_ne_bytes().to_vec(),
        Type::ncclFloat32 => (value as f32).to_ne_bytes().to_vec(),
        _ => value.to_ne_bytes().to_vec(),
    });
    each.flatten().collect()
}

fn from_bytes(kind: Type, bytes: &[u8]) -> Vec<f64> {
    let size = to_bytes(kind, &[0.0]).len();
    let number = |bytes: &[u8]| -> Option<f64> {
        Some(match kind {
            Type::ncclInt8 => i8::from_ne_bytes(bytes.try_into().ok()?).into(),
            Type::ncclUint8 => u8::from_ne_bytes(bytes.try_into().ok()?).into(),
            Type::ncclInt32 => i32::from_ne_bytes(bytes.try_into().ok()?).into(),
            Type::ncclUint32 => u32::from_ne_bytes(bytes.try_into().ok()?).into(),
            Type::ncclInt64 => i64::from_ne_bytes(bytes.try_into().ok()?) as f64,
            Type::ncclUint64 => u64::from_ne_bytes(bytes.try_into().ok()?) as f64,
            Type::ncclFloat16 => f16::from_ne_bytes(bytes.try_into().ok()?).to_f64(),
            Type::ncclBfloat16 => bf16::from_ne_bytes(bytes.try_into().ok()?).to_f64(),
            Type::ncclFloat32 => f32::from_ne_bytes(bytes.try_into().ok()?).into(),
            _ => f64::from_ne_bytes(bytes.try_into().ok()?),
        })
    };
    bytes
        .chunks_exact(size)
        .map(|bytes| number(bytes).unwrap_or(f64::NAN))
        .collect()
}

pub fn reduced(reduction: Reduction, parts: &[Vec<f64>]) -> Vec<f64> {
    let join = |a: f64, b: f64| match reduction {
        Reduction::ncclProd => a * b,
        Reduction::ncclMax => a.max(b),
        Reduction::ncclMin => a.min(b),
        _ => a + b,
    };
    let at = |index: usize| parts.iter().map(|part| part[index]).reduce(join).unwrap_or(0.0);
    let end = |value| {
        if reduction == Reduction::ncclAvg {
            value / parts.len() as f64
        } else {
            value
        }
    };
    (0..parts[0].len()).map(|index| end(at(index))).collect()
}

fn expect(what: &str, kind: Type, bytes: &[u8], expected: &[f64]) -> Result<()> {
    // As the type has them: averages are cut, or rounded.
    let expected = from_bytes(kind, &to_bytes(kind, expected));
    let found = from_bytes(kind, bytes);
    ensure!(
        found.len() == expected.len(),
        "{what}: {} of {} elements",
        found.len(),
        expected.len()
    );
    for (index, (found, expected)) in std::iter::zip(&found, &expected).enumerate() {
        // Averages are divided in f32 and rounded once more.
        let is_same = (found - expected).abs() <= 1e-2 * f64::from(u8::from(expected.fract() != 0.0));
        ensure!(
            is_same,
            "{what} of {kind:?}, element {index}: {found}, expected {expected}"
        );
    }
    Ok(())
}

/// Runs an operation out of place and in place, and compares both. In place, one buffer holds what is sent and what is
/// received, each where the library requires it.
pub struct Try<'a> {
    pub what: &'a str,
    pub kind: Type,
    pub sent: &'a [f64],
    /// None where this rank receives nothing.
    pub expected: Option<&'a [f64]>,
    /// In place, elements before what is sent, and before what is received.
    pub places: (usize, usize),
}

impl Try<'_> {
    pub fn run(&self, rank: &Rank, call: &dyn Fn(*const c_void, *mut c_void) -> Result<()>) -> Result<()> {
        let size = to_bytes(self.kind, &[0.0]).len();
        let sent = to_bytes(self.kind, self.sent);
        let received = self.expected.map_or(sent.len(), |expected| expected.len() * size);
        let from = upload(&sent, rank.stream)?;
        let to = allocate(received, rank.stream)?;
        call(from as *const c_void, to as *mut c_void).context(self.what.to_string())?;
        let bytes = download::<u8>(to, received, rank.stream)?;
        match self.expected {
            Some(expected) => expect(self.what, self.kind, &bytes, expected)?,
            None => ensure!(bytes.iter().all(|&byte| byte == 0xFF), "{}: was written", self.what),
        }
        expect(
            self.what,
            self.kind,
            &download::<u8>(from, sent.len(), rank.stream)?,
            self.sent,
        )?;
        let (sent_at, received_at) = (self.places.0 * size, self.places.1 * size);
        let buffer = allocate((sent_at + sent.len()).max(received_at + received), rank.stream)?;
        write(buffer + sent_at as u64, &sent, rank.stream)?;
        call(
            (buffer + sent_at as u64) as *const c_void,
            (buffer + received_at as u64) as *mut c_void,
        )?;
        let bytes = download::<u8>(buffer + received_at as u64, received, rank.stream)?;
        match self.expected {
            Some(expected) => expect("in place", self.kind, &bytes, expected),
            None => Ok(()),
        }
    }
}
