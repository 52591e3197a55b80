//! The server of the rendezvous store, which notices when a rank dies.
//!
//! - [`store_server`]: accepts connections; one task each in [`connection`]; their common state is [`job`].
//! - [`gatherings`]: what the members of groups tell each other.
//! - [`pending_handshakes`]: strangers, kept in check.

#[cfg(feature = "tcp")]
mod connection;
#[cfg(feature = "tcp")]
mod gatherings;
#[cfg(feature = "tcp")]
mod job;
#[cfg(not(feature = "tcp"))]
mod no_server;
#[cfg(feature = "tcp")]
mod pending_handshakes;
#[cfg(feature = "tcp")]
mod store_server;

#[cfg(feature = "fuzzing")]
pub(super) use connection::{accept, answer_requests};
#[cfg(feature = "fuzzing")]
pub(super) use job::Job;
#[cfg(not(feature = "tcp"))]
pub use no_server::StoreServer;
#[cfg(feature = "tcp")]
pub use store_server::StoreServer;

use std::net::SocketAddr;

use super::identity::JobToken;
use super::peer_failure::PeerFailure;

/// Called once with the job's first failure, on the thread that learns of it: it must not block.
pub type FailureCallback = Box<dyn Fn(&PeerFailure) + Send + Sync>;

/// What has gone over a store's connections since it was started, handshakes left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTraffic {
    /// Connections whose handshake was completed.
    pub connections: u64,
    /// What ranks and launchers have asked, heartbeats among it.
    pub requests: u64,
    /// Bytes of these requests.
    pub request_bytes: u64,
    /// What the store has said.
    pub replies: u64,
    /// Bytes of these replies.
    pub reply_bytes: u64,
}

/// How a store is started.
pub struct StoreServerConfig {
    /// Address to listen on; port 0 stands for any free port.
    pub listen: SocketAddr,
    /// The environment variable that chose the port, for messages.
    pub port_variable: &'static str,
    /// Number of ranks.
    pub world_size: usize,
    /// The job's id, handed out to the ranks.
    pub job_id: String,
    /// The job's secret.
    pub token: JobToken,
    /// Called once with the job's first failure, on the server's thread or the one that calls [`StoreServer::fail`].
    pub on_failure: Option<FailureCallback>,
}
