//! [`Heads`]: a connection that notices a request with two lengths.
//!
//! A body of a `Content-Length` and of chunks ends at one place for this server and may end at another for a proxy
//! before it, so that a part of it is another request (RFC 9112, section 6.3). hyper drops the length, and does not say
//! so.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection, and the head of the request that comes.
pub(super) struct Heads {
    stream: TcpStream,
    /// What has come of the head; empty again after it, until there is an answer.
    head: Vec<u8>,
    is_in_head: bool,
    most_bytes: usize,
    has_two_lengths: Arc<AtomicBool>,
}

impl Heads {
    /// Returns a connection whose heads have at most `most_bytes`, and whether the last one has two lengths.
    pub(super) fn new(stream: TcpStream, most_bytes: usize) -> (Self, Arc<AtomicBool>) {
        let has_two_lengths = Arc::new(AtomicBool::new(false));
        let heads = Self {
            stream,
            head: Vec::new(),
            is_in_head: true,
            most_bytes,
            has_two_lengths: has_two_lengths.clone(),
        };
        (heads, has_two_lengths)
    }

    pub(super) fn into_inner(self) -> TcpStream {
        self.stream
    }

    fn look_at(&mut self, bytes: &[u8]) {
        if !self.is_in_head {
            return;
        }
        let left = self.most_bytes.saturating_sub(self.head.len());
        self.head.extend(&bytes[..bytes.len().min(left)]);
        if let Some(head) = head_of(&self.head) {
            self.has_two_lengths.store(has_two_lengths(head), Ordering::Relaxed);
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
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.look_at(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Heads {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // What comes after an answer is another request.
        self.is_in_head = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
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
