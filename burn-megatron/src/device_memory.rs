//! What stays in a device's memory as long as a model is trained: buckets of gradients, the optimizer's state.
//!
//! CubeCL takes memory from the driver in pages of a few sizes and cuts each request from one of them. A request that
//! is far smaller than the page of its class shares it, and one that fits badly leaves a part of it unused: bucket by
//! bucket that is a tenth of the state, and a bucket of more than a 256th of the memory takes pages of a 16th. Buffers
//! of a size that has been allocated once as persistent have memory of exactly that size instead, as long as one of
//! them is in use at every [`give_back`].
//!
//! Pages are kept when nothing in them is in use any more. [`give_back`] returns such pages to the driver.

use std::collections::BTreeSet;

use burn::tensor::{DType, Device, Tensor};

/// Lets all buffers of these numbers of elements have memory of exactly their size from now on. CubeCL forgets a size
/// of which no buffer is in use when memory is [given back](give_back).
pub(crate) fn allocate_exactly(lengths: impl IntoIterator<Item = usize>, dtype: DType, device: &Device) {
    let lengths: BTreeSet<usize> = lengths.into_iter().filter(|&length| length > 0).collect();
    for length in lengths {
        let done = device.memory_persistent_allocations((), |()| {
            let _buffer = Tensor::<1>::empty([length], (device, dtype));
            // Before the pools take later buffers from shared pages again.
            device.sync()
        });
        drop(done);
    }
}

/// Returns memory in which nothing is in use to the driver. The device is waited for.
pub(crate) fn give_back(device: &Device) {
    // What was lost is found where results are read.
    let _ = device.sync();
    device.memory_cleanup();
}
