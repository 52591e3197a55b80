//! One function per thing that reads bytes from outside: it feeds them to the reader and asserts what must hold.
//!
//! Compiled only with the feature `fuzzing`, and no part of the library's interface.
//!
//! In addition to what each function asserts, [`run`] bounds memory and time.

pub mod allocations;

pub use crate::collectives::fuzzing::call_descriptor;
pub use crate::flight_recorder::fuzzing::flight_record;
pub use crate::launch::fuzzing::{MAGIC, environment, handshake, store_protocol, store_server};

use std::time::{Duration, Instant};

/// Memory that a reader may take in addition to a multiple of its input: buffers of fixed size, and the store's own
/// state.
const FIXED_BYTES: usize = 512 << 10;
/// Memory per byte of input: an empty text in a list takes 24 bytes for its one.
const BYTES_PER_INPUT_BYTE: usize = 32;
/// Longest run on one input; most take microseconds, but sanitizers and busy machines are slow.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Something that reads bytes from outside.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name of the function.
    pub name: &'static str,
    /// Feeds the bytes to the reader.
    pub read: fn(&[u8]),
    /// Returns valid inputs, from which others are mutated.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 6] = [
    Target {
        name: "store_protocol",
        read: store_protocol,
        seeds: crate::launch::fuzzing::store_protocol_seeds,
    },
    Target {
        name: "handshake",
        read: handshake,
        seeds: crate::launch::fuzzing::handshake_seeds,
    },
    Target {
        name: "store_server",
        read: store_server,
        seeds: crate::launch::fuzzing::store_server_seeds,
    },
    Target {
        name: "call_descriptor",
        read: call_descriptor,
        seeds: crate::collectives::fuzzing::call_descriptor_seeds,
    },
    Target {
        name: "environment",
        read: environment,
        seeds: crate::launch::fuzzing::environment_seeds,
    },
    Target {
        name: "flight_record",
        read: flight_record,
        seeds: crate::flight_recorder::fuzzing::flight_record_seeds,
    },
];

/// Returns the target of this name.
///
/// # Panics
/// There is none.
pub fn target(name: &str) -> Target {
    let found = TARGETS.into_iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("no target is called {name:?}"))
}

/// Feeds `data` to a reader, and asserts that it takes neither more memory than is stated here nor longer.
///
/// Memory is seen where the program's allocator is [`allocations::Counting`].
pub fn run(read: fn(&[u8]), data: &[u8]) {
    let start = Instant::now();
    let peak = allocations::peak_of(|| read(data));
    let limit = FIXED_BYTES + BYTES_PER_INPUT_BYTE * data.len();
    assert!(
        peak <= limit,
        "{} bytes of input made it allocate {peak} bytes; limit {limit}",
        data.len()
    );
    let taken = start.elapsed();
    assert!(taken <= TIME_LIMIT, "{} bytes of input took {taken:?}", data.len());
}

/// Takes an input apart: small numbers and pieces, zeros and nothing when it is used up.
pub(crate) struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.piece(1).first().copied().unwrap_or(0)
    }

    /// Up to `length` bytes.
    pub(crate) fn piece(&mut self, length: usize) -> &'a [u8] {
        let (piece, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        piece
    }

    /// A piece with its length, a byte, in front.
    pub(crate) fn counted(&mut self) -> &'a [u8] {
        let length = self.byte();
        self.piece(length.into())
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.piece(usize::MAX)
    }
}
