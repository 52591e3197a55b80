//! [`StoreServer`]: listens, keeps strangers in check, and owns the thread on which everything of the server runs.
//!
//! Started by the local launcher, or by [`World::join`](crate::launch::World::join) on rank 0 when another launcher
//! started the job.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection;
use super::job::Job;
use super::pending_handshakes::PendingHandshakes;
use super::{StoreServerConfig, StoreTraffic};
use crate::launch::descriptors;
use crate::launch::error::LaunchError;
use crate::launch::network;
use crate::launch::peer_failure::PeerFailure;
use crate::launch::store::set_socket_options;

/// Those that stay; a rank sometimes has a few more.
const CONNECTIONS_PER_RANK: usize = 2;
/// Time for the last messages to leave when the server ends.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

/// A running store. Dropping it ends it in good order.
pub struct StoreServer {
    job: Arc<Job>,
    address: SocketAddr,
    thread: Option<thread::JoinHandle<()>>,
}

impl StoreServer {
    /// Starts a store on a thread of its own.
    ///
    /// # Errors
    /// The port is taken, or the address is not this host's; this process may not open two connections per rank.
    pub fn start(options: StoreServerConfig) -> Result<StoreServer, LaunchError> {
        let StoreServerConfig {
            listen,
            port_variable,
            world_size,
            job_id,
            token,
            on_failure,
        } = options;
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => LaunchError::PortTaken {
                address: listen.to_string(),
                variable: port_variable,
            },
            _ => LaunchError::Listen {
                address: listen.to_string(),
                source,
            },
        };
        descriptors::make_room(CONNECTIONS_PER_RANK * world_size)?;
        let listener = network::listen(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;

        let job = Job::new(world_size, job_id, token, on_failure);
        let served = Arc::clone(&job);
        let thread = thread::Builder::new()
            .name("store-server".into())
            .spawn(move || {
                if let Err(error) = runtime.block_on(serve(listener, served)) {
                    tracing::error!(%error, "the store's server ended");
                }
            })
            .map_err(failed)?;
        Ok(StoreServer {
            job,
            address,
            thread: Some(thread),
        })
    }

    /// Returns the address that the store listens on, with its true port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reports a failure to every rank; the first one wins.
    pub fn fail(&self, failure: PeerFailure) {
        self.job.members(|all| all.accuse(&failure));
    }

    /// Returns the job's first failure.
    pub fn first_failure(&self) -> Option<PeerFailure> {
        self.job.first_failure()
    }

    /// Returns the ranks that have not registered.
    pub fn missing_ranks(&self) -> Vec<usize> {
        self.job.members(|all| all.missing())
    }

    /// Returns what has gone over the store's connections so far.
    pub fn traffic(&self) -> StoreTraffic {
        *self.job.traffic.lock()
    }

    /// Returns whether a launcher of a further node has left before any failure.
    pub(in crate::launch) fn is_any_launcher_done(&self) -> bool {
        self.job.members(|all| all.is_any_launcher_done())
    }

    /// Notes that a rank's process has ended on this host, for those that wait for it to register.
    pub(in crate::launch) fn process_ended(&self, rank: usize, what: &str) {
        self.job.members(|all| all.process_ended(rank, "localhost", what));
    }

    /// Sets a key for others to find should things go wrong.
    ///
    /// # Errors
    /// The store is full.
    pub(in crate::launch) fn leave_note(&self, key: &str) -> Result<(), String> {
        self.job.set(key, vec![]).map_err(|error| error.to_string())
    }

    /// Returns whether a key is set.
    pub(in crate::launch) fn has_note(&self, key: &str) -> bool {
        self.job.has_key(key)
    }

    /// Waits until every registered rank and launcher has left, at most for `limit`.
    pub(in crate::launch) fn wait_until_empty(&self, limit: Duration) {
        self.job.wait_until_empty(limit);
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.job.closing.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // Bounded by `FLUSH_LIMIT`; its panic, if any, was printed when it happened.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for StoreServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StoreServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Accepts connections until the job is closing.
async fn serve(listener: TcpListener, job: Arc<Job>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // A rank needs two connections, sometimes a few more at a time; the rest is room for others.
    let limit = 4 * job.world_size + 64;
    let mut closing = job.closing.subscribe();
    let mut connections = JoinSet::new();
    let pending_handshakes = PendingHandshakes::default();
    let mut next_id = 0;
    loop {
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // At the limit, the stranger that has dawdled longest makes room: ranks are never shut out by
                    // half-open connections.
                    if connections.len() >= limit {
                        if !pending_handshakes.evict_oldest() {
                            continue;
                        }
                        // Until it has: accepting goes faster than ending, so a crowd would pile up otherwise. This
                        // also lets those that are there be heard before they are pushed out.
                        connections.join_next().await;
                    }
                    if let Err(error) = set_socket_options(&stream) {
                        tracing::debug!(%error, "store: connection closed at once");
                        continue;
                    }
                    next_id += 1;
                    let pending = pending_handshakes.hold(next_id);
                    let handle = connections.spawn(connection::serve(stream, Arc::clone(&job), pending));
                    // The task has not run yet: this thread is the only one of the runtime.
                    pending_handshakes.add(next_id, handle);
                }
                Err(error) => {
                    // Out of file descriptors, or a connection that closed too early: neither lasts.
                    tracing::debug!(%error, "store: cannot accept a connection");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
    let flush = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(FLUSH_LIMIT, flush).await; // those that do not listen are cut off
    Ok(())
}
