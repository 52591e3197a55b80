//! A long message, cut into pieces: [`Outbox`] sends it, [`Inbox`] receives it.
//!
//! Both ends cut alike, so pieces need no header. A few pieces are on their way at a time, so that one is reduced or
//! copied while the next one comes; that also bounds the memory.

use super::request::{Receiving, Sending, Words};
use super::{Call, Tag};
use burn_megatron_comm::collectives::CollectiveError;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Pieces of a stream that are on their way at a time.
const WINDOW: usize = 3;

/// Returns the bytes of the piece `index` of a message of `length` bytes.
fn piece(length: usize, piece_bytes: usize, index: usize) -> Range<usize> {
    index * piece_bytes..((index + 1) * piece_bytes).min(length)
}

/// Sends one message, the same to each of its peers.
pub(super) struct Outbox {
    peers: Vec<usize>,
    tag: Tag,
    length: usize,
    /// Bytes handed to MPI.
    sent: usize,
    in_flight: VecDeque<Vec<(usize, Sending)>>,
}

impl Outbox {
    pub fn new(peers: Vec<usize>, tag: Tag, length: usize) -> Self {
        Self {
            length: if peers.is_empty() { 0 } else { length },
            peers,
            tag,
            sent: 0,
            in_flight: VecDeque::new(),
        }
    }

    /// Sends what it can of the first `available` bytes of `message`; returns whether anything has moved.
    pub fn step(&mut self, call: &Call<'_>, message: &[u8], available: usize) -> Result<bool, CollectiveError> {
        let mut has_moved = false;
        while let Some(front) = self.in_flight.front_mut() {
            let mut is_gone = true;
            for (peer, sending) in front {
                is_gone &= sending.is_done().map_err(|error| call.lost(*peer, &error))?;
            }
            if !is_gone {
                break;
            }
            let done = self.in_flight.pop_front().unwrap_or_default();
            let words = done.into_iter().filter_map(|(_, sending)| sending.into_words_if_done());
            words.for_each(|words| call.engine.pieces.give(words));
            has_moved = true;
        }
        while self.sent < self.length && self.in_flight.len() < WINDOW {
            let piece = piece(
                self.length,
                call.engine.piece_bytes,
                self.sent / call.engine.piece_bytes,
            );
            if piece.end > available {
                break;
            }
            let mut words = call.engine.pieces.take();
            bytemuck::cast_slice_mut(&mut words)[..piece.len()].copy_from_slice(&message[piece.clone()]);
            let words = Arc::new(words);
            let send = |&peer: &usize| {
                let sending = call
                    .engine
                    .communicator
                    .send(peer, self.tag, words.clone(), piece.len());
                Ok((peer, sending.map_err(|error| call.lost(peer, &error))?))
            };
            let sendings = self.peers.iter().map(send).collect::<Result<_, _>>()?;
            // Now only the messages hold the words, and the last one gives them back.
            drop(words);
            self.in_flight.push_back(sendings);
            call.engine.count_bytes(piece.len() * self.peers.len());
            self.sent = piece.end;
            has_moved = true;
        }
        Ok(has_moved)
    }

    pub fn is_done(&self) -> bool {
        self.sent == self.length && self.in_flight.is_empty()
    }

    /// Returns the ranks that have not taken everything.
    pub fn missing(&mut self) -> Vec<usize> {
        match self.in_flight.front_mut() {
            Some(front) => front
                .iter_mut()
                .filter_map(|(peer, sending)| (!sending.is_done().unwrap_or(false)).then_some(*peer))
                .collect(),
            None => Vec::new(),
        }
    }
}

/// Receives one message.
pub(super) struct Inbox {
    pub peer: usize,
    tag: Tag,
    length: usize,
    /// Bytes for which a receive has been started.
    asked: usize,
    /// Bytes of the pieces that were taken.
    taken: usize,
    in_flight: VecDeque<Receiving>,
}

impl Inbox {
    pub fn new(peer: usize, tag: Tag, length: usize) -> Self {
        Self {
            peer,
            tag,
            length,
            asked: 0,
            taken: 0,
            in_flight: VecDeque::new(),
        }
    }

    /// Starts receives ahead; returns whether the next piece has come.
    pub fn has_piece(&mut self, call: &Call<'_>) -> Result<bool, CollectiveError> {
        let engine = call.engine;
        while self.asked < self.length && self.in_flight.len() < WINDOW {
            let receiving = engine.communicator.receive(self.peer, self.tag, engine.pieces.take());
            self.in_flight
                .push_back(receiving.map_err(|error| call.lost(self.peer, &error))?);
            self.asked = piece(self.length, engine.piece_bytes, self.asked / engine.piece_bytes).end;
        }
        match self.in_flight.front_mut() {
            Some(front) => front.is_done().map_err(|error| call.lost(self.peer, &error)),
            None => Ok(false),
        }
    }

    /// Takes the next piece, which has come: its place in the message and its words, to be given back.
    pub fn take_piece(&mut self, call: &Call<'_>) -> Result<(Range<usize>, Words), CollectiveError> {
        let receiving = self.in_flight.pop_front().expect("the next piece has come");
        let place = piece(
            self.length,
            call.engine.piece_bytes,
            self.taken / call.engine.piece_bytes,
        );
        let (words, length) = receiving.into_message();
        if length != place.len() {
            let what = format!("it sent a piece of {length} bytes, expected {}", place.len());
            return Err(call.lost(self.peer, &what));
        }
        self.taken = place.end;
        Ok((place, words))
    }

    pub fn is_done(&self) -> bool {
        self.taken == self.length
    }

    /// Whether the next piece has not come.
    pub fn is_awaited(&mut self) -> bool {
        !self.is_done()
            && self
                .in_flight
                .front_mut()
                .is_none_or(|front| !front.is_done().unwrap_or(false))
    }
}
