//! Waiting for sockets: `poll(2)`.

use crate::collectives::health::GroupHealth;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Where the system does not wait: the pause before sockets are looked at.
const PAUSE: Duration = Duration::from_millis(1);

/// What a wait for one socket asks, and what it found.
pub(super) type Poll = libc::pollfd;

/// Returns a question to the socket: can it be read, can it be written, has its other end gone?
pub(super) fn ask(socket: &impl AsRawFd, events: libc::c_short) -> Poll {
    Poll {
        fd: socket.as_raw_fd(),
        events,
        revents: 0,
    }
}

/// Waits until a question has an answer, for `limit` at most, in whole milliseconds. Where the system does not wait for
/// that many, all questions are answered with yes, after a pause.
pub(super) fn wait(polls: &mut [Poll], limit: Duration) {
    let milliseconds = limit.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
    // SAFETY: the pointer and the count describe a live slice of pollfd.
    let found = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, milliseconds) };
    if found < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
        polls.iter_mut().for_each(|poll| poll.revents = poll.events);
        std::thread::sleep(limit.min(PAUSE));
    }
}

/// As [`wait`], or until a rank has failed.
pub(super) fn wait_unless_failed(mut polls: Vec<Poll>, health: &GroupHealth, limit: Duration) -> Vec<Poll> {
    let count = polls.len();
    polls.extend(health.failure_descriptor().map(|failure| ask(&failure, libc::POLLIN)));
    wait(&mut polls, limit);
    polls.truncate(count);
    polls
}

/// Returns whether the other end writes no more, whether or not everything has been read.
pub(super) fn has_gone(stream: &TcpStream) -> bool {
    let mut polls = [ask(stream, libc::POLLRDHUP)];
    // SAFETY: as in `wait`; returns at once.
    unsafe { libc::poll(polls.as_mut_ptr(), 1, 0) };
    polls[0].revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

/// Returns the bytes that a non-blocking read or write has moved: 0 when it would have to wait.
///
/// # Errors
/// When the connection is broken; at the end of the stream.
pub(super) fn moved(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the other end")),
        Ok(bytes) => Ok(bytes),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Returns whether this process, or the system, can open no further file.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
