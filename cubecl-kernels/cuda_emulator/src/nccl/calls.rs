//! The operations as they are exported.

use std::ffi::{c_int, c_void};

use super::communicator::Communicator;
use super::error::{CUDA_ERROR, Error, returned};
use super::group::call;
use super::operation::{Kind, Task};
use super::reduce::SUM;
use crate::driver::stream::resolve;

/// What the calls have in common.
struct Call {
    kind: Kind,
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: u32,
    communicator: *mut c_void,
    stream: *mut c_void,
}

impl Call {
    fn run(self, reduction: u32, root: c_int) -> u32 {
        returned(|| {
            let communicator = Communicator::of(self.communicator)?;
            let cuda = |error: crate::driver::error::Error| Error::new(CUDA_ERROR, format!("Cuda failure {}", error.0));
            let stream = resolve(self.stream).map_err(cuda)?;
            if !std::ptr::eq(stream.device, communicator.device) {
                return Err(Error::new(CUDA_ERROR, "Cuda failure: the stream is another device's"));
            }
            let task = Task {
                kind: self.kind,
                from: self.from as usize,
                to: self.to as usize,
                count: self.count,
                datatype: self.datatype,
                reduction,
                root,
                sequence: 0,
            };
            call(communicator, stream, task)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: u32,
    reduction: u32,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    let kind = Kind::AllReduce;
    Call {
        kind,
        from,
        to,
        count,
        datatype,
        communicator,
        stream,
    }
    .run(reduction, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclBroadcast(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: u32,
    root: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    let kind = Kind::Broadcast;
    Call {
        kind,
        from,
        to,
        count,
        datatype,
        communicator,
        stream,
    }
    .run(SUM.into(), root)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclBcast(
    buffer: *mut c_void,
    count: usize,
    datatype: u32,
    root: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    // SAFETY: the caller's.
    unsafe { ncclBroadcast(buffer, buffer, count, datatype, root, communicator, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: u32,
    reduction: u32,
    root: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    let kind = Kind::Reduce;
    Call {
        kind,
        from,
        to,
        count,
        datatype,
        communicator,
        stream,
    }
    .run(reduction, root)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllGather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: u32,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    let kind = Kind::AllGather;
    Call {
        kind,
        from,
        to,
        count,
        datatype,
        communicator,
        stream,
    }
    .run(SUM.into(), 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclReduceScatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: u32,
    reduction: u32,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    let kind = Kind::ReduceScatter;
    Call {
        kind,
        from,
        to,
        count,
        datatype,
        communicator,
        stream,
    }
    .run(reduction, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    datatype: u32,
    peer: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    let (kind, to) = (Kind::Send, std::ptr::null_mut());
    Call {
        kind,
        from,
        to,
        count,
        datatype,
        communicator,
        stream,
    }
    .run(SUM.into(), peer)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclRecv(
    to: *mut c_void,
    count: usize,
    datatype: u32,
    peer: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    let (kind, from) = (Kind::Receive, std::ptr::null());
    Call {
        kind,
        from,
        to,
        count,
        datatype,
        communicator,
        stream,
    }
    .run(SUM.into(), peer)
}
