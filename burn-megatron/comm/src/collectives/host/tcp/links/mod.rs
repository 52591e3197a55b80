//! Connections between two ranks of a group, made when they are first used.
//!
//! A group has the sockets that its algorithms use. Each process has one [`Listener`] for all its groups, and a
//! `claim` says what a connection is for, which both ends prove. Either end makes a connection, and waits for nothing
//! but the other's listener; `slots` decides which one is kept if both do.

mod claim;
mod group_links;
mod listener;
mod slots;

use super::super::super::error::CollectiveError;
use super::super::super::health::{GroupHealth, WaitDeadline};
use super::readiness;
use crate::collectives::rendezvous::Rendezvous;
use crate::launch::{self, BoundedStream, LaunchError, World};
use group_links::GroupLinks;
use listener::Listener;
use slots::Place;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(test)]
pub(super) use claim::RankClaim;
#[cfg(test)]
pub(super) use listener::address_key;

/// How long one attempt to connect takes, the handshake included.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);
/// The pause between attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The longest wait for a connection that the other rank makes before the failure signal and the timeout are looked at.
const ACCEPT_SLICE: Duration = Duration::from_millis(20);

/// What a connection of two ranks carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Collectives,
    /// Send and recv.
    Transfers,
}

/// The connections to the other ranks of a group.
#[derive(Debug)]
pub(super) struct Links {
    group: Arc<GroupLinks>,
    listener: Arc<Listener>,
    rendezvous: Rendezvous,
    ranks: Arc<[usize]>,
}

/// What is known of a rank that no call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Its end of a connection is open.
    Present,
    /// It writes no more.
    Gone,
    /// No connection could be made at once.
    Unknown,
}

impl Links {
    /// Lets the other ranks connect.
    ///
    /// # Errors
    /// When this rank cannot listen.
    pub fn open(world: &World, health: &GroupHealth, rendezvous: &Rendezvous) -> Result<Self, CollectiveError> {
        let listener = world.attachment(|| Listener::start(world));
        let listener = listener.map_err(|source| CollectiveError::Setup {
            group: health.label.to_string(),
            what: "listen for the other ranks".to_owned(),
            source,
        })?;
        let group = Arc::new(GroupLinks::new(rendezvous.digest(), health.label.place()));
        listener.admit(&group);
        Ok(Self {
            group,
            listener,
            rendezvous: rendezvous.clone(),
            ranks: Arc::clone(&health.label.ranks),
        })
    }

    /// Returns the connection to another rank if it has been made.
    pub fn made(&self, channel: Channel, peer: usize) -> Option<&TcpStream> {
        self.group.made((channel as u8, peer))
    }

    /// Returns the connections that have been made.
    pub fn all(&self) -> impl Iterator<Item = &TcpStream> {
        let channels = [Channel::Collectives, Channel::Transfers].into_iter();
        channels.flat_map(|channel| self.group.all(channel as u8))
    }

    /// Returns the connection to another rank, non-blocking; makes it if there is none. Waits for the other's listener,
    /// whatever its program does.
    ///
    /// # Errors
    /// When `deadline` ends the wait; when the other rank has left the group.
    pub fn to(
        &self,
        channel: Channel,
        peer: usize,
        deadline: &WaitDeadline<'_>,
    ) -> Result<&TcpStream, CollectiveError> {
        let place = (channel as u8, peer);
        loop {
            if let Some(stream) = self.group.made(place) {
                return Ok(stream);
            }
            let pause = match self.make(place, deadline.slice(ATTEMPT_LIMIT)) {
                Some(Ok(())) => continue,
                Some(Err(error)) => {
                    self.check_attempt(place, error, deadline)?;
                    RETRY_PAUSE
                }
                None => ACCEPT_SLICE,
            };
            deadline.check(|| vec![peer])?;
            self.group.wait(place, deadline.slice(pause));
        }
    }

    /// Tries once to make a connection to another rank that has not made one, for `limit` at most.
    ///
    /// # Errors
    /// When the other rank has left the group.
    pub fn try_once(
        &self,
        channel: Channel,
        peer: usize,
        limit: Duration,
        deadline: &WaitDeadline<'_>,
    ) -> Result<(), CollectiveError> {
        let place = (channel as u8, peer);
        match self.make(place, deadline.slice(limit)) {
            Some(Err(error)) => self.check_attempt(place, error, deadline),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Returns whether a failed attempt is worth another one.
    fn check_attempt(
        &self,
        place: Place,
        error: AttemptError,
        deadline: &WaitDeadline<'_>,
    ) -> Result<(), CollectiveError> {
        let rank = self.ranks[place.1];
        tracing::debug!(rank, %error, "connecting again");
        match error {
            AttemptError::Connection(source) if readiness::is_out_of_descriptors(&source) => {
                Err(CollectiveError::Setup {
                    group: deadline.health.label.to_string(),
                    what: format!("connect to rank {rank}"),
                    source,
                })
            }
            _ => self.check_left(place, deadline),
        }
    }

    /// Makes a connection, unless one is being made; whether it succeeds or not.
    fn make(&self, place: Place, limit: Duration) -> Option<Result<(), AttemptError>> {
        if !self.group.initiate(place) {
            return None;
        }
        Some(match self.attempt(place, limit) {
            Ok(stream) => {
                self.group.keep(place, stream);
                Ok(())
            }
            Err(error) => {
                self.group.give_up(place);
                Err(error)
            }
        })
    }

    fn check_left(&self, place: Place, deadline: &WaitDeadline<'_>) -> Result<(), CollectiveError> {
        let (_, peer) = place;
        let words = self.rendezvous.disconnect_reason(peer, Duration::ZERO);
        match (deadline.call, words) {
            // It may have made a connection before it left, and sent something: that was welcomed before its words.
            (Some(call), Some(cause)) if !self.group.is_coming(place) => {
                Err(deadline.health.peer_left(call, peer, cause))
            }
            _ => Ok(()),
        }
    }

    fn attempt(&self, place: Place, limit: Duration) -> Result<TcpStream, AttemptError> {
        let end = Instant::now() + limit;
        let address = self.listener.address_of(self.ranks[place.1], limit)?;
        let stream = TcpStream::connect_timeout(&address, limit.max(Duration::from_millis(1)))?;
        stream.set_nodelay(true)?;
        let claim = self.group.claim(place).to_bytes();
        let mut bounded = BoundedStream::until(&stream, end);
        launch::initiate(&mut bounded, &claim, self.listener.token()).map_err(io::Error::other)?;
        bounded.write_all(&[listener::LAST_WORD])?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Returns whether a rank is there; if there is no connection to it, tries to make one, for `limit` at most.
    pub fn presence_of(&self, peer: usize, limit: Duration) -> Presence {
        let channels = [Channel::Transfers, Channel::Collectives];
        let made = || channels.iter().find_map(|&channel| self.made(channel, peer));
        if made().is_none() {
            let _ = self.make((Channel::Transfers as u8, peer), limit);
        }
        match made().map(readiness::has_gone) {
            Some(true) => Presence::Gone,
            Some(false) => Presence::Present,
            None => Presence::Unknown,
        }
    }

    /// Writes no more over any connection, after what was written, and refuses others.
    pub fn leave(&self) {
        self.group.leave();
        for stream in self.all() {
            // A rank that is late still reads what came before.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.group.leave();
        self.listener.dismiss(&self.group.digest);
    }
}

/// Why an attempt has failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error(transparent)]
    Store(#[from] LaunchError),
    #[error(transparent)]
    Connection(#[from] io::Error),
}
