//! Tables of the host on devices: brought there once for all launches that share one.
//!
//! A model's dropouts of one step share a table of places, forward and backward, and its attentions one of documents;
//! at thousands of tokens, each launch would wait for a copy of it to the device. Each process keeps the few tables
//! that were used last, and none that is no longer held elsewhere.

use std::sync::Arc;

use cubecl::client::Client;
use cubecl::server::Handle;
use parking_lot::Mutex;

/// Tables that are kept: enough for a few devices, whole and in shards.
const MOST: usize = 16;

/// Returns a table on the client's device, as the words that `words` makes of it.
pub fn on_device<T: Send + Sync + 'static>(
    client: &Client,
    numbers: &Arc<[T]>,
    words: impl FnOnce(&[T]) -> Vec<u32>,
) -> Handle {
    let table = Table {
        owners: vec![Owner::of(numbers)],
        form: Vec::new(),
    };
    table.on_device(client, || words(numbers))
}

/// Origin of a table: as long as it is held elsewhere, so is the table on the device.
pub struct Owner {
    /// Address on the host: nothing else is there while this exists.
    address: usize,
    /// Returns whether anybody else has it.
    is_used: Box<dyn Fn() -> bool + Send>,
}

impl Owner {
    pub fn of<T: Send + Sync + 'static>(numbers: &Arc<[T]>) -> Self {
        let weak = Arc::downgrade(numbers);
        Self {
            address: Arc::as_ptr(numbers).addr(),
            is_used: Box::new(move || weak.strong_count() > 0),
        }
    }
}

/// A table, by what it is made from and how: the same are the same words.
pub struct Table {
    /// Numbers of the host that it is made from.
    pub owners: Vec<Owner>,
    /// Numbers that say how.
    pub form: Vec<usize>,
}

/// A table on a device.
struct Held {
    table: Table,
    device: usize,
    handle: Handle,
}

/// The tables, with the one used last at the end.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

impl Table {
    fn is_same(&self, other: &Self) -> bool {
        let addresses = |table: &Self| table.owners.iter().map(|owner| owner.address).collect::<Vec<_>>();
        self.form == other.form && addresses(self) == addresses(other)
    }

    /// Returns the table on the client's device, where it has the words that `words` makes.
    pub fn on_device(self, client: &Client, words: impl FnOnce() -> Vec<u32>) -> Handle {
        // A device's properties are stored in its server, which lives as long as the process.
        let device = std::ptr::from_ref(client.properties()).addr();
        if let Some(handle) = self.find(device) {
            return handle;
        }
        // Without the lock, for the device may have others wait; a table that two threads bring is no harm.
        let handle = client.create_from_slice(bytemuck::cast_slice(&words()));
        let mut held = HELD.lock();
        held.push(Held {
            table: self,
            device,
            handle: handle.clone(),
        });
        let spare = held.len().saturating_sub(MOST);
        held.drain(..spare);
        handle
    }

    fn find(&self, device: usize) -> Option<Handle> {
        let mut held = HELD.lock();
        held.retain(|held| held.table.owners.iter().all(|owner| (owner.is_used)()));
        let is_this = |held: &Held| held.device == device && held.table.is_same(self);
        let index = held.iter().position(is_this)?;
        let found = held.remove(index);
        let handle = found.handle.clone();
        held.push(found);
        Some(handle)
    }
}
