//! Buffers in host memory, in place of a GPU's.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;

use cubecl_common::backtrace::BackTrace;
use cubecl_core::server::IoError;
use cubecl_runtime::storage::{ComputeStorage, StorageHandle, StorageId};

use crate::properties::ALIGNMENT;

#[derive(Debug, Default)]
pub struct HostStorage {
    memory: HashMap<StorageId, Allocation>,
}

/// Aligned inside a larger one: the system gives zeroed pages without touching them only for small alignments, and
/// compiling for a vocabulary's logits must not cost gigabytes.
#[derive(Debug)]
struct Allocation {
    whole: *mut u8,
    layout: Layout,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: allocations belong to their storage, which holds nothing that is tied to a thread.
unsafe impl Send for HostStorage {}

/// A part of an allocation, as a kernel sees it.
#[derive(Clone, Copy, Debug)]
pub struct HostResource {
    pub address: *mut u8,
    /// Its bytes.
    pub size: usize,
}

impl HostResource {
    pub fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.address as usize) < self.size
    }
}

// SAFETY: it is an address; who reads or writes there holds the memory's handle and is the server's only thread.
unsafe impl Send for HostResource {}

impl ComputeStorage for HostStorage {
    type Resource = HostResource;

    fn alignment(&self) -> usize {
        ALIGNMENT as usize
    }

    fn get(&mut self, handle: &StorageHandle) -> HostResource {
        let allocation = &self.memory[&handle.id];
        let (offset, size) = (handle.offset() as usize, handle.size() as usize);
        assert!(offset + size <= allocation.bytes, "a handle is inside its allocation");
        HostResource {
            // SAFETY: inside the allocation, as checked.
            address: unsafe { allocation.address.add(offset) },
            size,
        }
    }

    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        let too_big = || IoError::BufferTooBig {
            size,
            backtrace: BackTrace::capture(),
        };
        let bytes = usize::try_from(size).map_err(|_| too_big())?;
        let with_margin = bytes.checked_add(ALIGNMENT as usize).ok_or_else(too_big)?;
        let layout = Layout::array::<u8>(with_margin).map_err(|_| too_big())?;
        // SAFETY: the size is not zero.
        let whole = unsafe { alloc_zeroed(layout) };
        if whole.is_null() {
            return Err(too_big());
        }
        // SAFETY: less than the alignment, which is the margin.
        let address = unsafe { whole.add(whole.align_offset(ALIGNMENT as usize)) };
        let id = StorageId::new();
        self.memory.insert(
            id,
            Allocation {
                whole,
                layout,
                address,
                bytes,
            },
        );
        let utilization = cubecl_runtime::storage::StorageUtilization { offset: 0, size };
        Ok(StorageHandle::new(id, utilization))
    }

    fn dealloc(&mut self, id: StorageId) {
        if let Some(Allocation { whole, layout, .. }) = self.memory.remove(&id) {
            // SAFETY: allocated with this layout, and removed, so that it is not freed again.
            unsafe { dealloc(whole, layout) };
        }
    }

    fn flush(&mut self) {}
}

impl Drop for HostStorage {
    fn drop(&mut self) {
        let ids: Vec<StorageId> = self.memory.keys().copied().collect();
        for id in ids {
            self.dealloc(id);
        }
    }
}
