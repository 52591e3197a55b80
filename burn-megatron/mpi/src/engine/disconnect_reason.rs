//! DisconnectReasons: a rank that gives a group up sends every other rank the reason.
//!
//! MPI says nothing when a rank no longer calls it. So each rank keeps a receive open for the disconnect reason of
//! every other one, and looks at it when it waits in vain.

use super::request::{Communicator, MpiError, Receiving, Words};
use super::tags;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The longest disconnect reason. Short, so that the library sends it without waiting for the receiver.
const DISCONNECT_REASON_BYTES: usize = 2048;

/// The disconnect reasons of the other ranks, by group index.
pub(super) struct DisconnectReasons {
    slots: Mutex<Vec<Slot>>,
}

enum Slot {
    /// This rank itself.
    Own,
    Open(Receiving),
    Said(Arc<str>),
}

impl DisconnectReasons {
    /// Opens the receives.
    pub fn open(communicator: &Communicator, size: usize, rank: usize) -> Result<Self, MpiError> {
        let slot = |peer: usize| {
            if peer == rank {
                return Ok(Slot::Own);
            }
            let words = vec![0; DISCONNECT_REASON_BYTES / size_of::<u64>()];
            communicator
                .receive(peer, tags::DISCONNECT_REASON, words)
                .map(Slot::Open)
        };
        let slots = (0..size).map(slot).collect::<Result<_, _>>()?;
        Ok(Self {
            slots: Mutex::new(slots),
        })
    }

    /// Returns what a rank said when it gave the group up, if it has.
    pub fn of(&self, peer: usize) -> Option<Arc<str>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut slots[peer];
        // A receive that fails says nothing about the rank; the call itself will fail, too.
        if let Slot::Open(receiving) = slot
            && receiving.is_done().unwrap_or(false)
            && let Slot::Open(receiving) = std::mem::replace(slot, Slot::Own)
        {
            let (words, length) = receiving.into_message();
            let text = String::from_utf8_lossy(&bytemuck::cast_slice(&words)[..length]);
            *slot = Slot::Said(text.into());
        }
        match slot {
            Slot::Said(cause) => Some(cause.clone()),
            _ => None,
        }
    }
}

/// Sends `cause` to the ranks `peers`, without waiting for them.
pub(super) fn send_to_all(communicator: &Communicator, peers: impl Iterator<Item = usize>, cause: &str) {
    let length = cause.floor_char_boundary(DISCONNECT_REASON_BYTES);
    let mut words: Words = vec![0; DISCONNECT_REASON_BYTES / size_of::<u64>()];
    bytemuck::cast_slice_mut(&mut words)[..length].copy_from_slice(&cause.as_bytes()[..length]);
    let words = Arc::new(words);
    for peer in peers {
        // Only makes the others' message better: their waits are bounded anyway.
        if let Err(error) = communicator.send(peer, tags::DISCONNECT_REASON, words.clone(), length) {
            tracing::debug!(peer, %error, "cannot send a disconnect_reason");
        }
    }
}

impl fmt::Debug for DisconnectReasons {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DisconnectReasons")
    }
}
