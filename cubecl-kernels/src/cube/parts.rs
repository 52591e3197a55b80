//! Ranges of a flat buffer that one launch goes through, each with cubes of its own: a table that kernels look their
//! range up in.

use std::collections::HashMap;
use std::sync::LazyLock;

use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::Handle;
use parking_lot::Mutex;

/// Words of a range in the table.
const WORDS: usize = 4;
/// Tables that are kept on devices: more than a step of a large model needs.
const MOST: usize = 4096;

/// A range, and what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first element.
    pub start: usize,
    /// The number of elements.
    pub count: usize,
    /// Cubes that share it.
    pub cubes: usize,
    /// A place in another buffer, where the kernel has one.
    pub place: usize,
}

/// Ranges, as kernels are given them.
#[derive(CubeType, CubeLaunch)]
pub struct Parts {
    table: Box<[u32]>,
    number: u32,
}

/// The range of a unit's cube.
#[derive(CubeType, Clone, Copy)]
pub struct OwnPart {
    /// The first element.
    pub start: usize,
    /// The number of elements.
    pub count: usize,
    /// The cube's number among those of the range.
    pub cube: usize,
    /// Cubes that share the range.
    pub cubes: usize,
    /// A place in another buffer.
    pub place: usize,
}

/// Whether the unit's cube has no range: some launches have more cubes than were asked for.
#[cube]
pub fn is_idle(parts: &Parts) -> bool {
    CUBE_POS as u32 >= parts.table[(parts.number as usize) * comptime!(WORDS)]
}

/// Returns the range of the unit's cube.
#[cube]
pub fn own_part(parts: &Parts) -> OwnPart {
    let cube = CUBE_POS as u32;
    let mut low = 0u32;
    let mut high = parts.number;
    while high - low > 1u32 {
        let middle = (low + high) / 2u32;
        if parts.table[middle as usize * comptime!(WORDS)] <= cube {
            low = middle;
        } else {
            high = middle;
        }
    }
    let at = low as usize * comptime!(WORDS);
    let first = parts.table[at];
    OwnPart {
        start: parts.table[at + 1] as usize,
        count: parts.table[at + 2] as usize,
        cube: (cube - first) as usize,
        cubes: (parts.table[at + comptime!(WORDS)] - first) as usize,
        place: parts.table[at + 3] as usize,
    }
}

/// Ranges that have been brought to a device.
pub struct DeviceParts {
    handle: Handle,
    words: usize,
    number: usize,
    cubes: usize,
}

impl DeviceParts {
    /// Returns the table of these ranges on the client's device, where it may be already. Those of no cubes are left
    /// out.
    ///
    /// # Panics
    /// When a range ends beyond what 32 bits count.
    pub fn new(client: &Client, parts: impl IntoIterator<Item = Part>) -> Self {
        let (mut words, mut cubes) = (Vec::new(), 0);
        for part in parts.into_iter().filter(|part| part.cubes > 0) {
            words.extend([cubes, part.start, part.count, part.place].map(word));
            cubes += part.cubes;
        }
        let number = words.len() / WORDS;
        words.extend([cubes, 0, 0, 0].map(word));
        Self {
            words: words.len(),
            handle: on_device(client, words),
            number,
            cubes,
        }
    }

    /// Cubes of all ranges.
    pub fn cubes(&self) -> usize {
        self.cubes
    }

    /// The table as an argument of a kernel.
    pub fn argument(&self) -> PartsLaunch {
        // SAFETY: the buffer holds this many words.
        let table = unsafe { BufferArg::from_raw_parts(self.handle.clone(), self.words) };
        PartsLaunch::new(table, self.number as u32)
    }
}

fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or_else(|_| panic!("a buffer's element {number} is not counted by 32 bits"))
}

type Tables = HashMap<(usize, Vec<u32>), Handle>;

/// By device and words. They are the same in every step, so that nothing is uploaded from the second on.
static TABLES: LazyLock<Mutex<Tables>> = LazyLock::new(Mutex::default);

fn on_device(client: &Client, words: Vec<u32>) -> Handle {
    // A device's properties are stored in its server, which lives as long as the process.
    let device = std::ptr::from_ref(client.properties()).addr();
    let tables = || TABLES.lock();
    let key = (device, words);
    if let Some(handle) = tables().get(&key) {
        return handle.clone();
    }
    // Without the lock, for the device may have others wait.
    let handle = client.create_from_slice(bytemuck::cast_slice(&key.1));
    let mut tables = tables();
    if tables.len() >= MOST {
        tables.clear();
    }
    tables.insert(key, handle.clone());
    handle
}
