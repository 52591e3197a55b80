//! [`GroupLinks`]: the connections of one rank to the others of a group, as far as there are any.

use super::claim::RankClaim;
use super::slots::{Place, Slots};
use parking_lot::{Condvar, Mutex};
use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

/// Connections between two ranks: one for collectives, one for transfers.
pub(in super::super) const CHANNELS: usize = 2;

/// Shared by the group's engine and the listener of the process.
#[derive(Debug)]
pub(super) struct GroupLinks {
    pub digest: [u8; 32],
    rank: usize,
    /// By channel and group index.
    made: [Vec<OnceLock<TcpStream>>; CHANNELS],
    slots: Mutex<Slots>,
    /// Notified when a slot has changed.
    changed: Condvar,
}

impl GroupLinks {
    pub fn new(digest: [u8; 32], (rank, size): (usize, usize)) -> Self {
        Self {
            digest,
            rank,
            made: std::array::from_fn(|_| (0..size).map(|_| OnceLock::new()).collect()),
            slots: Mutex::new(Slots::new(rank)),
            changed: Condvar::new(),
        }
    }

    /// Returns a connection if it exists.
    pub fn made(&self, (channel, peer): Place) -> Option<&TcpStream> {
        self.made[usize::from(channel)].get(peer)?.get()
    }

    /// Returns all connections of a channel.
    pub fn all(&self, channel: u8) -> impl Iterator<Item = &TcpStream> {
        self.made[usize::from(channel)].iter().filter_map(OnceLock::get)
    }

    /// Returns the claim of a connection that this rank makes.
    pub fn claim(&self, (channel, peer): Place) -> RankClaim {
        RankClaim {
            group: self.digest,
            from: self.rank as u32,
            to: peer as u32,
            channel,
        }
    }

    /// Returns whether a connection of this kind can be: the claim is not proved yet.
    pub fn expects(&self, claim: &RankClaim) -> bool {
        let (from, to) = (claim.from as usize, claim.to as usize);
        let places = self.made.get(usize::from(claim.channel));
        to == self.rank && from != self.rank && places.is_some_and(|places| from < places.len())
    }

    /// As [`Slots::initiate`].
    pub fn initiate(&self, place: Place) -> bool {
        let mut slots = self.slots.lock();
        self.made(place).is_none() && slots.initiate(place)
    }

    /// As [`Slots::give_up`].
    pub fn give_up(&self, place: Place) {
        self.slots.lock().give_up(place);
    }

    /// Returns whether a connection that the other rank makes has come, or is about to.
    pub fn is_coming(&self, place: Place) -> bool {
        let slots = self.slots.lock();
        self.made(place).is_some() || slots.is_accepting(place)
    }

    /// Takes what this rank has made for the connection.
    pub fn keep(&self, place: Place, stream: TcpStream) {
        let mut slots = self.slots.lock();
        slots.made(place);
        if slots.has_left() {
            // As all connections when this rank left: the other one is to see that.
            let _ = stream.shutdown(Shutdown::Write);
        }
        self.put(place, stream);
        drop(slots);
        self.changed.notify_all();
    }

    /// As [`Slots::welcome`].
    pub fn welcome(&self, claim: &RankClaim) -> Result<(), &'static str> {
        let mut slots = self.slots.lock();
        if self.made(place(claim)).is_some() {
            return Err("this rank has the connection already");
        }
        slots.welcome(place(claim))
    }

    /// As [`Slots::dismiss`].
    pub fn dismiss(&self, claim: &RankClaim) {
        self.slots.lock().dismiss(place(claim));
        self.changed.notify_all();
    }

    /// Takes a candidate whose last word has come for the connection.
    pub fn accept(&self, claim: &RankClaim, stream: TcpStream) {
        let mut slots = self.slots.lock();
        if slots.accept(place(claim)) {
            self.put(place(claim), stream);
        }
        drop(slots);
        self.changed.notify_all();
    }

    /// With the slots locked: a connection is either in the slots or made.
    fn put(&self, (channel, peer): Place, stream: TcpStream) {
        let kept = self.made[usize::from(channel)][peer].set(stream);
        debug_assert!(kept.is_ok(), "two connections to rank {peer}");
    }

    /// Waits until a slot has changed, for `limit` at most.
    pub fn wait(&self, place: Place, limit: Duration) {
        let mut slots = self.slots.lock();
        if self.made(place).is_none() {
            self.changed.wait_for(&mut slots, limit);
        }
    }

    /// Refuses further connections.
    pub fn leave(&self) {
        self.slots.lock().leave();
    }
}

fn place(claim: &RankClaim) -> Place {
    (claim.channel, claim.from as usize)
}
