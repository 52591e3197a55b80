//! The rows' places on devices: brought there once for all launches that share a table.
//!
//! A model's dropouts of one step share a table of places, forward and backward; at thousands of tokens, each launch
//! would wait for a copy of it to the device. Each process keeps the few tables that were used last, and none that is
//! no longer held elsewhere.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::server::Handle;

use crate::random::RowPlace;

/// How many tables are kept: enough for a few devices, whole and in shards.
const MOST: usize = 8;

/// A table on a device.
struct Held {
    /// Its address is not reused while this exists.
    table: Weak<[RowPlace]>,
    device: usize,
    handle: Handle,
}

impl Held {
    fn is(&self, table: &Arc<[RowPlace]>, device: usize) -> bool {
        self.device == device && std::ptr::addr_eq(self.table.as_ptr(), Arc::as_ptr(table))
    }
}

/// The tables, with the one used last at the end.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// Returns the places on the client's device: position and sample of each, as words.
pub fn on_device<R: CubeRuntime>(client: &ComputeClient<R>, table: &Arc<[RowPlace]>) -> Handle {
    // A device's properties are stored in its server, which lives as long as the process.
    let device = std::ptr::from_ref(client.properties()).addr();
    if let Some(handle) = find(table, device) {
        return handle;
    }
    let words: Vec<u32> = table.iter().flat_map(|place| [place.position, place.sample]).collect();
    // Without the lock, for the device may have others wait; a table that two threads bring is no harm.
    let handle = client.create_from_slice(bytemuck::cast_slice(&words));
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.push(Held {
        table: Arc::downgrade(table),
        device,
        handle: handle.clone(),
    });
    let spare = held.len().saturating_sub(MOST);
    held.drain(..spare);
    handle
}

fn find(table: &Arc<[RowPlace]>, device: usize) -> Option<Handle> {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.retain(|held| held.table.strong_count() > 0);
    let index = held.iter().position(|held| held.is(table, device))?;
    let found = held.remove(index);
    let handle = found.handle.clone();
    held.push(found);
    Some(handle)
}
