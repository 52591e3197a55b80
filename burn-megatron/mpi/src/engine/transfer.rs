//! Send and receive over MPI.
//!
//! What one rank sends to another is a sequence of descriptors, each with a short message right after it or a long one
//! in pieces after it. Only the sender's lane writes one direction, and only the receiver's reads it.

use super::progress::Progress;
use super::stream::{Inbox, Outbox};
use super::{Call, INLINE_BYTES, tags};
use burn_megatron_comm::collectives::{CallDescriptor, CollectiveError};

impl Call<'_> {
    /// Sends a message to the rank `call.peer`; returns when MPI needs the words no longer.
    pub(super) fn send(self, buffer: &[u8]) -> Result<(), CollectiveError> {
        let (engine, peer) = (self.engine, self.descriptor.other_side());
        let (short, long): (&[u8], &[u8]) = if buffer.len() <= INLINE_BYTES {
            (buffer, &[])
        } else {
            (&[], buffer)
        };
        let mut head = self.send_head(peer, tags::TRANSFER, short)?;
        engine.count_bytes(short.len());
        let mut outbox = Outbox::new(vec![peer], tags::TRANSFER, long.len());
        let mut progress = Progress::new(engine, self.descriptor);
        loop {
            let has_moved = outbox.step(&self, long, long.len())?;
            let head_is_gone = head.is_done().map_err(|error| self.lost(peer, &error))?;
            if head_is_gone && outbox.is_done() {
                break;
            }
            progress.look_again(has_moved, || vec![peer])?;
        }
        if let Some(words) = head.into_words_if_done() {
            engine.heads.give(words);
        }
        Ok(())
    }

    /// Receives the next message of the rank `call.peer`.
    pub(super) fn receive(self, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let (engine, peer) = (self.engine, self.descriptor.other_side());
        let label = &engine.health.label;
        let started = engine.communicator.receive(peer, tags::TRANSFER, engine.heads.take());
        let mut head = started.map_err(|error| self.lost(peer, &error))?;
        let mut progress = Progress::new(engine, self.descriptor);
        while !head.is_done().map_err(|error| self.lost(peer, &error))? {
            progress.look_again(false, || vec![peer])?;
        }
        let (words, length) = head.into_message();
        let (sent, length) = self.decode(peer, &words, length)?;
        label.compare_transfer((peer, &sent), (label.rank, self.descriptor))?;
        let is_short = buffer.len() <= INLINE_BYTES;
        let expected = if is_short { buffer.len() } else { 0 };
        if length != expected {
            let what = format!("it sent {length} bytes after its call, expected {expected}");
            return Err(self.lost(peer, &what));
        }
        if is_short {
            buffer.copy_from_slice(&bytemuck::cast_slice(&words)[CallDescriptor::BYTES..][..length]);
        }
        engine.heads.give(words);
        if is_short {
            return Ok(());
        }
        let mut inbox = Inbox::new(peer, tags::TRANSFER, buffer.len());
        let mut progress = Progress::new(engine, self.descriptor);
        while !inbox.is_done() {
            let has_piece = inbox.has_piece(&self)?;
            if has_piece {
                let (place, words) = inbox.take_piece(&self)?;
                let length = place.len();
                buffer[place].copy_from_slice(&bytemuck::cast_slice(&words)[..length]);
                engine.pieces.give(words);
            }
            progress.look_again(has_piece, || vec![peer])?;
        }
        Ok(())
    }
}
