//! What devices answer when they are asked for attributes, by the numbers of `CUdevice_attribute`.

use std::ffi::{c_int, c_uint};

use super::error::{Error, Outcome};
use crate::Architecture;

/// What a GPU says of itself; what is not asked for by those who use this is not known.
pub fn attribute(attribute: c_uint, architecture: Architecture) -> Outcome<c_int> {
    let of = |a100: c_int, h100: c_int| match architecture {
        Architecture::Sm80 => a100,
        Architecture::Sm90 => h100,
    };
    Ok(match attribute {
        1..=3 => 1024,                                   // threads of a block, and of its x and y
        4 => 64,                                         // of its z
        5 => c_int::MAX,                                 // blocks of a grid's x
        6 | 7 => 65535,                                  // of its y and z
        8 => 48 * 1024,                                  // shared memory of a block
        9 => 64 * 1024,                                  // constant memory
        10 => 32,                                        // warp
        11 => c_int::MAX,                                // pitch
        12 | 82 => 65536,                                // registers of a block, of a multiprocessor
        13 => of(1_410_000, 1_980_000),                  // clock in kHz
        18 => 0,                                         // integrated
        19 | 31 | 41 | 83 => 1, // host memory is mapped, concurrent kernels, unified addresses, managed memory
        33 => 1,                // PCI bus
        34 => 0,                // PCI device
        36 => of(1_215_000, 2_619_000), // clock of the memory in kHz
        37 => 5120,             // width of the memory's bus
        38 => of(40 << 20, 50 << 20), // L2
        39 => 2048,             // threads of a multiprocessor
        40 => 3,                // engines for copies
        50 => 0xffff,           // PCI domain: there is no such device in the system
        75 => architecture.capability() as c_int, // compute capability
        76 => 0,                // its minor
        81 => architecture.shared_memory() as c_int, // shared memory of a multiprocessor
        93 | 94 | 122 | 123 => 1, // waits for values in streams
        95 => 0,                // cooperative launches
        97 => architecture.max_shared_memory() as c_int, // shared memory of a block that asks for it
        106 => 32,              // blocks of a multiprocessor
        111 => 1024,            // shared memory that the system keeps of a block
        115 => 1,               // stream-ordered allocation
        120 => of(0, 1),        // clusters
        _ => return Err(Error::INVALID_VALUE),
    })
}
