//! [`StoreTraffic`]: how much goes over a store's connections.

use std::sync::atomic::{AtomicU64, Ordering};

use super::StoreTraffic;

/// Counts what a store is asked and what it says.
#[derive(Debug, Default)]
pub(super) struct TrafficCounter {
    connections: AtomicU64,
    requests: AtomicU64,
    request_bytes: AtomicU64,
    replies: AtomicU64,
    reply_bytes: AtomicU64,
}

impl TrafficCounter {
    /// Counts a connection whose handshake is over.
    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request of `bytes`, the length in front of it included.
    pub(super) fn asked(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.request_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a reply of `bytes`, the length in front of it included.
    pub(super) fn said(&self, bytes: usize) {
        self.replies.fetch_add(1, Ordering::Relaxed);
        self.reply_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns what was counted so far.
    pub(super) fn total(&self) -> StoreTraffic {
        StoreTraffic {
            connections: self.connections.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            request_bytes: self.request_bytes.load(Ordering::Relaxed),
            replies: self.replies.load(Ordering::Relaxed),
            reply_bytes: self.reply_bytes.load(Ordering::Relaxed),
        }
    }
}
