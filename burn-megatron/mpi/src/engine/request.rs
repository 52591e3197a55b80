//! The calls into MPI: communicators, and sends and receives that own their buffers.
//!
//! MPI may read or write a buffer until its request is complete, and a wait that gives up (a timeout, a failed rank)
//! leaves requests that are not. A send cannot be cancelled in Open MPI, nor a receive whose message has begun to come.
//! So no request ever points into a caller's memory: it owns its [`Words`], and when it is dropped before it is
//! complete, and cannot be cancelled, they are leaked, since MPI may still use them. A group makes no further call
//! after such an error, so what can leak is bounded by what one call has on its way.

use mpi::ffi;
use std::ffi::c_int;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Memory that messages are in; words, to be aligned for every element.
pub(super) type Words = Vec<u64>;

/// What MPI said when a call failed.
#[derive(Debug)]
pub(super) struct MpiError {
    call: &'static str,
    what: String,
}

impl fmt::Display for MpiError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.call, self.what)
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut length: c_int = 0;
    // SAFETY: the buffer has the length that the standard asks for.
    let status = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    let what = if status == ffi::MPI_SUCCESS as c_int {
        String::from_utf8_lossy(&text[..(length as usize).min(text.len())]).into_owned()
    } else {
        format!("error {code}")
    };
    Err(MpiError { call, what })
}

/// The communicator of all processes of the `mpirun`.
fn world_communicator() -> ffi::MPI_Comm {
    // SAFETY: a constant of the library, which is initialised: `library::join` comes first.
    unsafe { ffi::RSMPI_COMM_WORLD }
}

/// Returns this process's rank and the number of processes, as MPI has them.
pub(super) fn world_place() -> Result<(usize, usize), MpiError> {
    let world = world_communicator();
    let (mut rank, mut size) = (0, 0);
    // SAFETY: the communicator of all processes is always valid, the results are places on this stack.
    unsafe {
        // Errors come back instead of ending every process at once, before anyone has said what happened.
        check(
            "MPI_Comm_set_errhandler",
            ffi::MPI_Comm_set_errhandler(world, ffi::RSMPI_ERRORS_RETURN),
        )?;
        check("MPI_Comm_rank", ffi::MPI_Comm_rank(world, &mut rank))?;
        check("MPI_Comm_size", ffi::MPI_Comm_size(world, &mut size))?;
    }
    Ok((rank as usize, size as usize))
}

/// Starts a barrier of all processes.
pub(super) fn world_barrier() -> Result<Request, MpiError> {
    Request::start("MPI_Ibarrier", |request| {
        // SAFETY: the communicator of all processes is always valid; a barrier has no buffer.
        unsafe { ffi::MPI_Ibarrier(world_communicator(), request) }
    })
}

/// A communicator of a group's ranks, whose ranks are the group's indices.
///
/// It is never freed: a message that comes late, a disconnect reason say, would be taken for one of a later
/// communicator that was given the same number. A job makes few groups.
pub(super) struct Communicator {
    raw: ffi::MPI_Comm,
}

// SAFETY: a handle, which the library lets every thread use: it was initialised with MPI_THREAD_MULTIPLE.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl Communicator {
    /// Returns a communicator of the processes `ranks`. Collective over them; waits without a bound.
    pub fn create(ranks: &[c_int], tag: c_int) -> Result<Self, MpiError> {
        let count = ranks.len() as c_int;
        let mut raw = MaybeUninit::uninit();
        let mut all = MaybeUninit::uninit();
        let mut some = MaybeUninit::uninit();
        // SAFETY: `ranks` holds `count` ranks of the communicator of all processes; each result is read only after the
        // call that writes it has succeeded.
        unsafe {
            let world = world_communicator();
            check("MPI_Comm_group", ffi::MPI_Comm_group(world, all.as_mut_ptr()))?;
            check(
                "MPI_Group_incl",
                ffi::MPI_Group_incl(all.assume_init(), count, ranks.as_ptr(), some.as_mut_ptr()),
            )?;
            check(
                "MPI_Comm_create_group",
                ffi::MPI_Comm_create_group(world, some.assume_init(), tag, raw.as_mut_ptr()),
            )?;
            check("MPI_Group_free", ffi::MPI_Group_free(some.as_mut_ptr()))?;
            check("MPI_Group_free", ffi::MPI_Group_free(all.as_mut_ptr()))?;
            let raw = raw.assume_init();
            check(
                "MPI_Comm_set_errhandler",
                ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN),
            )?;
            Ok(Self { raw })
        }
    }

    /// Starts to send the first `length` bytes of `words`.
    pub fn send(&self, peer: usize, tag: c_int, words: Arc<Words>, length: usize) -> Result<Sending, MpiError> {
        assert!(
            length <= size_of_val(&words[..]),
            "{length} bytes of {} words",
            words.len()
        );
        let request = Request::start("MPI_Isend", |request| {
            // SAFETY: the buffer is at least `length` bytes, not shared with any writer, and lives until the request is
            // complete: `Sending` owns it and leaks it otherwise.
            unsafe {
                ffi::MPI_Isend(
                    words.as_ptr().cast(),
                    length as c_int,
                    ffi::RSMPI_UINT8_T,
                    peer as c_int,
                    tag,
                    self.raw,
                    request,
                )
            }
        })?;
        Ok(Sending {
            request,
            words: Some(words),
        })
    }

    /// Starts to receive a message of at most the size of `words`.
    pub fn receive(&self, peer: usize, tag: c_int, mut words: Words) -> Result<Receiving, MpiError> {
        let request = Request::start("MPI_Irecv", |request| {
            // SAFETY: the buffer has that size, has no other user, and lives until the request is complete: `Receiving`
            // owns it and leaks it otherwise. A vector's memory stays where it is when the vector moves.
            unsafe {
                ffi::MPI_Irecv(
                    words.as_mut_ptr().cast(),
                    size_of_val(&words[..]) as c_int,
                    ffi::RSMPI_UINT8_T,
                    peer as c_int,
                    tag,
                    self.raw,
                    request,
                )
            }
        })?;
        Ok(Receiving {
            request,
            words: Some(words),
        })
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Communicator")
    }
}

/// Something that MPI has begun.
pub(super) struct Request {
    raw: ffi::MPI_Request,
    is_done: bool,
    /// Bytes of a message that was received.
    length: usize,
}

// SAFETY: a handle, as `Communicator`; only its owner uses it.
unsafe impl Send for Request {}

impl Request {
    fn start(name: &'static str, call: impl FnOnce(*mut ffi::MPI_Request) -> c_int) -> Result<Self, MpiError> {
        let mut raw = MaybeUninit::uninit();
        check(name, call(raw.as_mut_ptr()))?;
        Ok(Self {
            // SAFETY: a call that starts something writes the request when it succeeds.
            raw: unsafe { raw.assume_init() },
            is_done: false,
            length: 0,
        })
    }

    /// Returns whether it is complete, after letting the library work.
    pub fn test(&mut self) -> Result<bool, MpiError> {
        if self.is_done {
            return Ok(true);
        }
        let mut flag = 0;
        let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
        // SAFETY: the request is active, the results are places on this stack.
        let tested = unsafe { ffi::MPI_Test(&mut self.raw, &mut flag, status.as_mut_ptr()) };
        // A request that has failed is complete, too: the library has forgotten it.
        self.is_done = flag != 0;
        check("MPI_Test", tested)?;
        if self.is_done {
            let mut length = 0;
            // SAFETY: the status is that of a completed request.
            let counted = unsafe { ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut length) };
            check("MPI_Get_count", counted)?;
            self.length = usize::try_from(length).unwrap_or(0);
        }
        Ok(self.is_done)
    }

    /// Forgets it; returns whether it is complete, so that the library no longer uses its buffer.
    fn abandon(&mut self, may_cancel: bool) -> bool {
        if !self.is_done && may_cancel {
            // SAFETY: the request is active.
            unsafe { ffi::MPI_Cancel(&mut self.raw) };
        }
        // An error here changes nothing: the buffer is then leaked.
        let is_done = self.test().unwrap_or(false);
        if !self.is_done {
            // SAFETY: the request is active; what it started continues by itself.
            unsafe { ffi::MPI_Request_free(&mut self.raw) };
            self.is_done = true;
        }
        is_done
    }
}

/// A message on its way out. Several may share their words.
pub(super) struct Sending {
    request: Request,
    words: Option<Arc<Words>>,
}

impl Sending {
    /// Returns whether the words are no longer needed: the message has gone, or the library has a copy.
    pub fn is_done(&mut self) -> Result<bool, MpiError> {
        self.request.test()
    }

    /// Returns the words when the message has gone and no other message shares them.
    pub fn into_words_if_done(mut self) -> Option<Words> {
        if self.request.is_done {
            self.words.take().and_then(Arc::into_inner)
        } else {
            None
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(words) = self.words.take()
            && !self.request.abandon(false)
        {
            std::mem::forget(words);
        }
    }
}

/// A message on its way in.
pub(super) struct Receiving {
    request: Request,
    words: Option<Words>,
}

impl Receiving {
    /// Returns whether the message has come.
    pub fn is_done(&mut self) -> Result<bool, MpiError> {
        self.request.test()
    }

    /// Returns the words of a message that has come, and its length in bytes.
    pub fn into_message(mut self) -> (Words, usize) {
        assert!(self.request.is_done, "the words of a message on its way belong to MPI");
        let length = self.request.length;
        (self.words.take().expect("taken only here and in drop"), length)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some(words) = self.words.take()
            && !self.request.abandon(true)
        {
            std::mem::forget(words);
        }
    }
}
