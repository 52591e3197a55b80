//! The store's server in a build without the feature `tcp`: it cannot be started, so there is none to ask.

use std::net::SocketAddr;
use std::time::Duration;

use super::{StoreServerConfig, StoreTraffic};
use crate::launch::error::LaunchError;
use crate::launch::peer_failure::PeerFailure;

/// A running store: without the feature `tcp` there is none.
#[derive(Debug)]
pub enum StoreServer {}

impl StoreServer {
    /// Refuses to start a store.
    ///
    /// # Errors
    /// Always: the feature `tcp` is off.
    pub fn start(_config: StoreServerConfig) -> Result<StoreServer, LaunchError> {
        Err(LaunchError::WithoutTcp)
    }

    /// Returns the address that the store listens on.
    pub fn address(&self) -> SocketAddr {
        match *self {}
    }

    /// Reports a failure to every rank.
    pub fn fail(&self, _failure: PeerFailure) {
        match *self {}
    }

    /// Returns the job's first failure.
    pub fn first_failure(&self) -> Option<PeerFailure> {
        match *self {}
    }

    /// Returns the ranks that have not registered.
    pub fn missing_ranks(&self) -> Vec<usize> {
        match *self {}
    }

    /// Returns what has gone over the store's connections so far.
    pub fn traffic(&self) -> StoreTraffic {
        match *self {}
    }

    pub(in crate::launch) fn is_any_launcher_done(&self) -> bool {
        match *self {}
    }

    pub(in crate::launch) fn process_ended(&self, _rank: usize, _what: &str) {
        match *self {}
    }

    pub(in crate::launch) fn leave_note(&self, _key: &str) -> Result<(), String> {
        match *self {}
    }

    pub(in crate::launch) fn has_note(&self, _key: &str) -> bool {
        match *self {}
    }

    pub(in crate::launch) fn wait_until_empty(&self, _limit: Duration) {
        match *self {}
    }
}
