//! [`Heads`]: a connection that notices a request with two lengths, and [`Peer`], by which it is noticed that a client
//! has left.
//!
//! A body of a `Content-Length` and of chunks ends at one place for this server and may end at another for a proxy
//! before it, so that a part of it is another request (RFC 9112, section 6.3). hyper drops the length, and does not say
//! so.
//!
//! A client that closes the half in which it sends, and one that leaves, look alike until something is sent to them. So
//! while such a one waits for its answer, an interim response is sent, which clients of HTTP/1.1 pass over (RFC 9110,
//! section 15.2): the kernel of one that has left refuses it.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// The time that a client may wait for its answer before it is looked whether it is there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The interim response.
const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A connection as its client is seen.
pub(super) struct Peer {
    stream: TcpStream,
    has_two_lengths: AtomicBool,
    /// True if a client of HTTP/1.1 waits, and nothing of the answer is sent.
    waits: AtomicBool,
}

impl Peer {
    /// Returns whether the last request has two lengths.
    pub(super) fn has_two_lengths(&self) -> bool {
        self.has_two_lengths.load(Ordering::Relaxed)
    }

    /// Waits until the client has left while it waits for an answer.
    pub(super) async fn leaves(&self) {
        let mut is_probed = false;
        loop {
            sleep(LOOK_EVERY).await;
            if !self.waits.load(Ordering::Relaxed) {
                is_probed = false;
                continue;
            }
            let socket = SockRef::from(&self.stream);
            if !matches!(socket.take_error(), Ok(None)) {
                return;
            }
            let has_closed = || matches!(socket.peek(&mut [MaybeUninit::uninit()]), Ok(0));
            if !is_probed && has_closed() {
                match self.stream.try_write(PROBE) {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                    written => is_probed = written.is_ok(),
                }
            }
        }
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// A connection, and the head of the request that comes.
pub(super) struct Heads {
    peer: Arc<Peer>,
    /// The bytes of the head that have come; empty again after it, until there is an answer.
    head: Vec<u8>,
    is_in_head: bool,
    most_bytes: usize,
}

impl Heads {
    /// Returns a connection whose heads have at most `most_bytes`, and its client.
    pub(super) fn new(stream: TcpStream, most_bytes: usize) -> (Self, Arc<Peer>) {
        let peer = Arc::new(Peer {
            stream,
            has_two_lengths: AtomicBool::new(false),
            waits: AtomicBool::new(false),
        });
        let heads = Self {
            peer: peer.clone(),
            head: Vec::new(),
            is_in_head: true,
            most_bytes,
        };
        (heads, peer)
    }

    fn look_at(&mut self, bytes: &[u8]) {
        if !self.is_in_head {
            return;
        }
        let left = self.most_bytes.saturating_sub(self.head.len());
        self.head.extend(&bytes[..bytes.len().min(left)]);
        if let Some(head) = head_of(&self.head) {
            let line = head.trim_ascii_start().split(|byte| *byte == b'\n').next();
            let is_known = line.is_some_and(|line| line.trim_ascii_end().ends_with(b"HTTP/1.1"));
            self.peer.waits.store(is_known, Ordering::Relaxed);
            self.peer
                .has_two_lengths
                .store(has_two_lengths(head), Ordering::Relaxed);
            self.is_in_head = false;
            self.head = Vec::new();
        }
    }
}

/// Returns a head up to its empty line, if that has come.
fn head_of(bytes: &[u8]) -> Option<&[u8]> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut length = 0;
    // An empty line before the request is none of its own.
    lines.find_map(|line| {
        let is_end = matches!(line, b"\r\n" | b"\n") && bytes[..length].iter().any(|byte| !byte.is_ascii_whitespace());
        length += line.len();
        is_end.then(|| &bytes[..length])
    })
}

fn has_two_lengths(head: &[u8]) -> bool {
    let has = |name: &str| {
        head.split(|byte| *byte == b'\n').any(|line| {
            let (start, rest) = line.split_at(name.len().min(line.len()));
            start.eq_ignore_ascii_case(name.as_bytes()) && rest.first() == Some(&b':')
        })
    };
    has("content-length") && has("transfer-encoding")
}

impl AsyncRead for Heads {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let heads = self.get_mut();
        loop {
            ready!(heads.peer.stream.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            match heads.peer.stream.try_read(unfilled) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    heads.look_at(&unfilled[..count]);
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Heads {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let heads = self.get_mut();
        // What comes after an answer is another request.
        heads.is_in_head = true;
        heads.peer.waits.store(false, Ordering::Relaxed);
        loop {
            ready!(heads.peer.stream.poll_write_ready(context))?;
            match heads.peer.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// Nothing is held back.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&self.peer.stream).shutdown(std::net::Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_with_two_lengths_is_noticed() {
        for (request, expected) in [
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                true,
            ),
            (
                "POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\nHost: a\r\nCONTENT-LENGTH:5\r\n\r\n0",
                true,
            ),
            (
                "\r\nPOST / HTTP/1.1\nTransfer-Encoding: chunked\nContent-Length: 5\n\n",
                true,
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\nX: Transfer-Encoding:\r\n\r\n",
                false,
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nTransfer-Encoding: chunked\r\n\r\n",
                false,
            ),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", false),
        ] {
            let head = head_of(request.as_bytes()).unwrap();
            assert_eq!(has_two_lengths(head), expected, "{request:?}");
        }
        assert_eq!(head_of(b"\r\nPOST / HTTP/1.1\r\nContent-Length: 5\r\n"), None);
    }
}
