//! [`Resolver`]: the addresses of a name, within a time limit, which the system's own look-up does not have.
//!
//! Used by the store's clients, and by `network` where the store begins to listen.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

type Lookup = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Looks a name up, as often as it is asked.
pub(super) struct Resolver {
    name: String,
    port: u16,
    lookup: Lookup,
    /// A look-up that took longer than its limit. No other is begun until it ends: a thread that waits for the system
    /// cannot be ended, and must not become many.
    pending: Option<Receiver<io::Result<Vec<SocketAddr>>>>,
}

impl Resolver {
    /// Returns a resolver of `name`, which may be an address.
    pub(super) fn new(name: &str, port: u16) -> Resolver {
        Resolver {
            name: name.to_string(),
            port,
            lookup: |name, port| Ok((name, port).to_socket_addrs()?.collect()),
            pending: None,
        }
    }

    /// Returns the name's addresses.
    ///
    /// # Errors
    /// The name has none, or the look-up takes longer than `limit`; the next call continues to wait for it.
    pub(super) fn addresses(&mut self, limit: Duration) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.name.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let pending = match self.pending.take() {
            Some(pending) => pending,
            None => self.begin()?,
        };
        match pending.recv_timeout(limit) {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout) => {
                self.pending = Some(pending);
                let name = &self.name;
                // Not `TimedOut`: it was not the store that gave no answer.
                Err(io::Error::other(format!(
                    "the name {name:?} was not resolved within {limit:.1?}"
                )))
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the thread that resolves names panicked")),
        }
    }

    fn begin(&self) -> io::Result<Receiver<io::Result<Vec<SocketAddr>>>> {
        let (name, port, lookup) = (self.name.clone(), self.port, self.lookup);
        let (sender, receiver) = mpsc::channel();
        thread::Builder::new().name("resolver".into()).spawn(move || {
            // The receiver may be gone already.
            let _ = sender.send(lookup(&name, port));
        })?;
        Ok(receiver)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn names_and_addresses_are_resolved() {
        let addresses = |name| Resolver::new(name, 7).addresses(LONG);
        assert_eq!(addresses("127.0.0.3").unwrap(), [SocketAddr::from(([127, 0, 0, 3], 7))]);
        assert!(
            addresses("localhost")
                .unwrap()
                .iter()
                .all(|found| found.ip().is_loopback())
        );
        assert!(addresses("no such name").is_err());
    }

    #[test]
    fn a_slow_look_up_ends_in_time_and_is_not_begun_twice() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let mut resolver = Resolver {
            lookup: |_, port| {
                BEGUN.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_secs(1));
                Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))])
            },
            ..Resolver::new("node0", 7)
        };
        let begin = Instant::now();
        for _ in 0..2 {
            let error = resolver.addresses(Duration::from_millis(50)).unwrap_err().to_string();
            assert_eq!(error, "the name \"node0\" was not resolved within 50.0ms");
        }
        assert!(begin.elapsed() < Duration::from_millis(900), "{:?}", begin.elapsed());
        assert_eq!(
            resolver.addresses(LONG).unwrap(),
            [SocketAddr::from(([10, 0, 0, 1], 7))]
        );
        assert_eq!(BEGUN.load(Ordering::Relaxed), 1);
    }
}
