//! Tables of the host on devices: brought there once for all launches that share one.
//!
//! A model's dropouts of one step share a table of places, forward and backward, and its attentions one of documents;
//! at thousands of tokens, each launch would wait for a copy of it to the device. Each process keeps the few tables
//! that were used last, and none that is no longer held elsewhere.

use std::sync::{Arc, Mutex, PoisonError};

use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::server::Handle;

/// How many tables are kept: enough for a few devices, whole and in shards.
const MOST: usize = 16;

/// A table on a device.
struct Held {
    /// Where it is on the host: no other table is there while this exists.
    address: usize,
    /// Whether anybody else has it.
    is_used: Box<dyn Fn() -> bool + Send>,
    device: usize,
    handle: Handle,
}

/// The tables, with the one used last at the end.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// Returns a table on the client's device, as the words that `words` makes of it.
pub fn on_device<R: CubeRuntime, T: Send + Sync + 'static>(
    client: &ComputeClient<R>,
    table: &Arc<[T]>,
    words: impl FnOnce(&[T]) -> Vec<u32>,
) -> Handle {
    // A device's properties are stored in its server, which lives as long as the process.
    let device = std::ptr::from_ref(client.properties()).addr();
    let address = Arc::as_ptr(table).addr();
    if let Some(handle) = find(address, device) {
        return handle;
    }
    // Without the lock, for the device may have others wait; a table that two threads bring is no harm.
    let handle = client.create_from_slice(bytemuck::cast_slice(&words(table)));
    let weak = Arc::downgrade(table);
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.push(Held {
        address,
        is_used: Box::new(move || weak.strong_count() > 0),
        device,
        handle: handle.clone(),
    });
    let spare = held.len().saturating_sub(MOST);
    held.drain(..spare);
    handle
}

fn find(address: usize, device: usize) -> Option<Handle> {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.retain(|held| (held.is_used)());
    let index = held
        .iter()
        .position(|held| (held.address, held.device) == (address, device))?;
    let found = held.remove(index);
    let handle = found.handle.clone();
    held.push(found);
    Some(handle)
}
