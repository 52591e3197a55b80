//! The operations as they are exported.

use std::ffi::{c_int, c_void};

use super::communicator::Communicator;
use super::error::{CUDA_ERROR, Error, Outcome};
use super::group;
use super::operation::{Kind, Task};
use super::reduce::SUM;
use crate::driver::device::stream::resolve;
use crate::exported::exported;

/// An operation without a reduction, root or peer.
fn task(kind: Kind, from: *const c_void, to: *mut c_void, count: usize, datatype: u32) -> Task {
    Task {
        kind,
        from: from as usize,
        to: to as usize,
        count,
        datatype,
        reduction: SUM.into(),
        root: 0,
        sequence: 0,
    }
}

fn call(communicator: *mut c_void, stream: *mut c_void, task: Task) -> Outcome {
    let communicator = Communicator::of(communicator)?;
    let stream = resolve(stream)?;
    if !std::ptr::eq(stream.device, communicator.device) {
        return Err(Error::new(CUDA_ERROR, "Cuda failure: the stream is another device's"));
    }
    group::call(communicator, stream, task)
}

exported! {
    fn ncclAllReduce(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        datatype: u32,
        reduction: u32,
        communicator: *mut c_void,
        stream: *mut c_void,
    ) {
        let all_reduce = task(Kind::AllReduce, from, to, count, datatype);
        call(communicator, stream, Task { reduction, ..all_reduce })
    }

    fn ncclBroadcast(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        datatype: u32,
        root: c_int,
        communicator: *mut c_void,
        stream: *mut c_void,
    ) {
        call(communicator, stream, Task { root, ..task(Kind::Broadcast, from, to, count, datatype) })
    }

    fn ncclBcast(
        buffer: *mut c_void,
        count: usize,
        datatype: u32,
        root: c_int,
        communicator: *mut c_void,
        stream: *mut c_void,
    ) {
        call(communicator, stream, Task { root, ..task(Kind::Broadcast, buffer, buffer, count, datatype) })
    }

    fn ncclReduce(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        datatype: u32,
        reduction: u32,
        root: c_int,
        communicator: *mut c_void,
        stream: *mut c_void,
    ) {
        let reduce = task(Kind::Reduce, from, to, count, datatype);
        call(communicator, stream, Task { reduction, root, ..reduce })
    }

    fn ncclAllGather(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        datatype: u32,
        communicator: *mut c_void,
        stream: *mut c_void,
    ) {
        call(communicator, stream, task(Kind::AllGather, from, to, count, datatype))
    }

    fn ncclReduceScatter(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        datatype: u32,
        reduction: u32,
        communicator: *mut c_void,
        stream: *mut c_void,
    ) {
        let reduce_scatter = task(Kind::ReduceScatter, from, to, count, datatype);
        call(communicator, stream, Task { reduction, ..reduce_scatter })
    }

    fn ncclSend(
        from: *const c_void,
        count: usize,
        datatype: u32,
        peer: c_int,
        communicator: *mut c_void,
        stream: *mut c_void,
    ) {
        let send = task(Kind::Send, from, std::ptr::null_mut(), count, datatype);
        call(communicator, stream, Task { root: peer, ..send })
    }

    fn ncclRecv(
        to: *mut c_void,
        count: usize,
        datatype: u32,
        peer: c_int,
        communicator: *mut c_void,
        stream: *mut c_void,
    ) {
        let receive = task(Kind::Receive, std::ptr::null(), to, count, datatype);
        call(communicator, stream, Task { root: peer, ..receive })
    }
}
