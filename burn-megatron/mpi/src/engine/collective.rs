//! The collectives over MPI.
//!
//! Every call begins with an exchange of descriptors between all ranks, each with a short message right after it.
//! Nothing else is sent before all descriptors have come and are the same.
//!
//! A reduction sends to each rank what that rank reduces, a piece at a time, and adds up what comes in rank order. A
//! large all-reduce gives each rank a segment to reduce; a piece goes out to all as soon as it is reduced, while the
//! next ones come. In a small one every rank reduces everything, which saves a round trip.

use super::progress::Progress;
use super::request::{Receiving, Sending, Words};
use super::stream::{Inbox, Outbox};
use super::{Call, INLINE_BYTES, tags};
use burn_megatron_comm::collectives::external::reduce_in_place;
use burn_megatron_comm::collectives::{CallDescriptor, CollectiveError};
use std::ops::Range;
use std::sync::Arc;

/// The short messages that came with the descriptors, by group index; empty for this rank.
struct Heads<'a> {
    call: Call<'a>,
    words: Vec<Words>,
    /// The same for all ranks that send any.
    length: usize,
}

impl Heads<'_> {
    fn message(&self, peer: usize) -> &[u8] {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words[peer]);
        bytes
            .get(CallDescriptor::BYTES..)
            .map_or(&[], |bytes| &bytes[..self.length])
    }

    fn messages(&self) -> Vec<&[u8]> {
        (0..self.words.len()).map(|peer| self.message(peer)).collect()
    }
}

impl Drop for Heads<'_> {
    fn drop(&mut self) {
        let words = self.words.drain(..).filter(|words| !words.is_empty());
        words.for_each(|words| self.call.engine.heads.give(words));
    }
}

impl<'a> Call<'a> {
    fn rank(&self) -> usize {
        self.engine.health.label.rank
    }

    fn size(&self) -> usize {
        self.engine.health.label.size()
    }

    fn peers(&self) -> impl Iterator<Item = usize> + use<> {
        self.engine.health.label.peers()
    }

    fn reduce(&self, own: &mut [u8], contributions: &[&[u8]]) {
        let descriptor = self.descriptor;
        let op = descriptor.reduction();
        reduce_in_place(descriptor.element_type, op, own, self.rank(), contributions);
    }

    /// Returns when all ranks have come.
    pub(super) fn barrier(self) -> Result<(), CollectiveError> {
        self.exchange(|_| &[], |_| 0).map(drop)
    }

    /// Replaces `buffer` by its reduction over all ranks.
    pub(super) fn all_reduce(self, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        if buffer.len() <= INLINE_BYTES {
            let heads = self.exchange(|_| buffer, |_| buffer.len())?;
            self.reduce(buffer, &heads.messages());
            return Ok(());
        }
        self.exchange(|_| &[], |_| 0)?;
        let segments: Vec<Range<usize>> = (0..self.size()).map(|rank| self.segment(buffer.len(), rank)).collect();
        let own = segments[self.rank()].clone();
        let mut scatter = Scatter::new(self, |peer| segments[peer].len(), own.len());
        let mut gather = Gather::new(self, self.peers().collect(), own.len(), |peer| segments[peer].len());
        let mut progress = Progress::new(self.engine, self.descriptor);
        while !(scatter.is_done() && gather.is_done()) {
            let mut has_moved = scatter.send(|peer| &buffer[segments[peer].clone()])?;
            has_moved |= scatter.reduce(&mut buffer[own.clone()])?;
            has_moved |= gather.send(&buffer[own.clone()], scatter.reduced)?;
            // A piece of another rank's segment comes back only after that rank has had this rank's contribution to
            // it, which has been copied by then.
            has_moved |=
                gather.receive(|peer, place, bytes| buffer[segments[peer].clone()][place].copy_from_slice(bytes))?;
            progress.look_again(has_moved, || {
                scatter.missing().into_iter().chain(gather.missing()).collect()
            })?;
        }
        Ok(())
    }

    /// Fills `shard` with this rank's part of the reduction of `input`.
    pub(super) fn reduce_scatter(self, input: &[u8], shard: &mut [u8]) -> Result<(), CollectiveError> {
        let length = shard.len();
        let part = |peer: usize| &input[peer * length..(peer + 1) * length];
        shard.copy_from_slice(part(self.rank()));
        if length <= INLINE_BYTES {
            let heads = self.exchange(part, |_| length)?;
            self.reduce(shard, &heads.messages());
            return Ok(());
        }
        self.exchange(|_| &[], |_| 0)?;
        let mut scatter = Scatter::new(self, |_| length, length);
        let mut progress = Progress::new(self.engine, self.descriptor);
        while !scatter.is_done() {
            let mut has_moved = scatter.send(part)?;
            has_moved |= scatter.reduce(shard)?;
            progress.look_again(has_moved, || scatter.missing())?;
        }
        Ok(())
    }

    /// Fills `output` with the shards of all ranks.
    pub(super) fn all_gather(self, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        let length = shard.len();
        output[self.rank() * length..][..length].copy_from_slice(shard);
        if length <= INLINE_BYTES {
            let heads = self.exchange(|_| shard, |_| length)?;
            for peer in self.peers() {
                output[peer * length..][..length].copy_from_slice(heads.message(peer));
            }
            return Ok(());
        }
        self.exchange(|_| &[], |_| 0)?;
        let gather = Gather::new(self, self.peers().collect(), length, |_| length);
        gather.run(shard, |peer, place, bytes| {
            output[peer * length..][place].copy_from_slice(bytes);
        })
    }

    /// Replaces `buffer` by the root's.
    pub(super) fn broadcast(self, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let (root, length) = (self.descriptor.other_side(), buffer.len());
        let is_root = root == self.rank();
        if length <= INLINE_BYTES {
            let message: &[u8] = if is_root { buffer } else { &[] };
            let heads = self.exchange(|_| message, |peer| if peer == root { length } else { 0 })?;
            if !is_root {
                buffer.copy_from_slice(&heads.message(root)[..length]);
            }
            return Ok(());
        }
        self.exchange(|_| &[], |_| 0)?;
        let receivers = if is_root { self.peers().collect() } else { Vec::new() };
        let gather = Gather::new(self, receivers, length, |peer| if peer == root { length } else { 0 });
        if is_root {
            return gather.run(buffer, |_, _, _| {});
        }
        gather.run(&[], |_, place, bytes| buffer[place].copy_from_slice(bytes))
    }

    /// Returns the bytes of an all-reduce that the rank with this group index reduces.
    fn segment(&self, length: usize, rank: usize) -> Range<usize> {
        let element = self.descriptor.element_type.size_bytes();
        let size = (length / element).div_ceil(self.size()) * element;
        (rank * size).min(length)..((rank + 1) * size).min(length)
    }

    /// Sends each rank the descriptor with a short `message` after it, receives theirs, of `length`, and compares the
    /// descriptors.
    fn exchange<'m>(
        self,
        message: impl Fn(usize) -> &'m [u8],
        length: impl Fn(usize) -> usize,
    ) -> Result<Heads<'a>, CollectiveError> {
        let (engine, label) = (self.engine, &self.engine.health.label);
        let mut receiving: Vec<(usize, Receiving)> = Vec::with_capacity(self.size());
        let mut sending: Vec<(usize, Sending)> = Vec::with_capacity(self.size());
        for peer in self.peers() {
            let started = engine.communicator.receive(peer, tags::HEAD, engine.heads.take());
            receiving.push((peer, started.map_err(|error| self.lost(peer, &error))?));
        }
        for peer in self.peers() {
            let message = message(peer);
            sending.push((peer, self.send_head(peer, tags::HEAD, message)?));
            engine.count_bytes(message.len());
        }
        self.wait_for_heads(&mut receiving, &mut sending)?;
        let words = sending
            .into_iter()
            .filter_map(|(_, sending)| sending.into_words_if_done());
        words.for_each(|words| engine.heads.give(words));

        let mut calls = vec![*self.descriptor; self.size()];
        let mut heads = Heads {
            call: self,
            words: vec![Words::new(); self.size()],
            length: 0,
        };
        let mut lengths = vec![0; self.size()];
        for (peer, receiving) in receiving {
            let (words, received) = receiving.into_message();
            (calls[peer], lengths[peer]) = self.decode(peer, &words, received)?;
            heads.words[peer] = words;
        }
        label.compare_calls(&calls)?;
        for peer in self.peers() {
            let (expected, received) = (length(peer), lengths[peer]);
            if received != expected {
                let what = format!("it sent {received} bytes after its call, expected {expected}");
                return Err(self.lost(peer, &what));
            }
            heads.length = heads.length.max(expected);
        }
        Ok(heads)
    }

    /// Starts to send the descriptor with a short message after it.
    pub(super) fn send_head(&self, peer: usize, tag: super::Tag, message: &[u8]) -> Result<Sending, CollectiveError> {
        let mut words = self.engine.heads.take();
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        bytes[..CallDescriptor::BYTES].copy_from_slice(&self.descriptor.to_bytes());
        bytes[CallDescriptor::BYTES..][..message.len()].copy_from_slice(message);
        let length = CallDescriptor::BYTES + message.len();
        let sending = self.engine.communicator.send(peer, tag, Arc::new(words), length);
        sending.map_err(|error| self.lost(peer, &error))
    }

    /// Waits until all heads have come and gone. One to a rank that has left need not go: its own has come, and the
    /// comparison says why it left.
    fn wait_for_heads(
        &self,
        receiving: &mut [(usize, Receiving)],
        sending: &mut [(usize, Sending)],
    ) -> Result<(), CollectiveError> {
        let mut progress = Progress::new(self.engine, self.descriptor);
        let mut before = usize::MAX;
        loop {
            let mut missing = Vec::new();
            for (peer, receiving) in receiving.iter_mut() {
                if !receiving.is_done().map_err(|error| self.lost(*peer, &error))? {
                    missing.push(*peer);
                }
            }
            let all_have_come = missing.is_empty();
            for (peer, sending) in sending.iter_mut() {
                let is_done = sending.is_done().map_err(|error| self.lost(*peer, &error))?;
                let is_vain = || all_have_come && self.engine.disconnect_reasons.of(*peer).is_some();
                if !is_done && !is_vain() {
                    missing.push(*peer);
                }
            }
            if missing.is_empty() {
                return Ok(());
            }
            let has_moved = missing.len() < before;
            before = missing.len();
            progress.look_again(has_moved, || {
                let mut missing = missing.clone();
                missing.sort_unstable();
                missing.dedup();
                missing
            })?;
        }
    }
}

/// The first half of a reduction: each rank's part goes to it, this rank's comes and is reduced.
struct Scatter<'a> {
    call: Call<'a>,
    outboxes: Vec<(usize, Outbox)>,
    inboxes: Vec<Inbox>,
    /// Bytes of this rank's part that are reduced.
    reduced: usize,
    length: usize,
}

impl<'a> Scatter<'a> {
    /// `length_of` gives the length of each rank's part, `length` that of this rank's.
    fn new(call: Call<'a>, length_of: impl Fn(usize) -> usize, length: usize) -> Self {
        let outbox = |peer| (peer, Outbox::new(vec![peer], tags::CONTRIBUTION, length_of(peer)));
        Self {
            call,
            outboxes: call.peers().map(outbox).collect(),
            inboxes: call
                .peers()
                .map(|peer| Inbox::new(peer, tags::CONTRIBUTION, length))
                .collect(),
            reduced: 0,
            length,
        }
    }

    fn send<'m>(&mut self, part: impl Fn(usize) -> &'m [u8]) -> Result<bool, CollectiveError> {
        let mut has_moved = false;
        for (peer, outbox) in &mut self.outboxes {
            let part = part(*peer);
            has_moved |= outbox.step(&self.call, part, part.len())?;
        }
        Ok(has_moved)
    }

    /// Reduces the next piece of `own` when all contributions to it have come.
    fn reduce(&mut self, own: &mut [u8]) -> Result<bool, CollectiveError> {
        let mut all_have_come = self.reduced < self.length;
        for inbox in &mut self.inboxes {
            all_have_come &= inbox.has_piece(&self.call)?;
        }
        if !all_have_come {
            return Ok(false);
        }
        let mut place = 0..0;
        let mut pieces = vec![Words::new(); self.call.size()];
        for inbox in &mut self.inboxes {
            (place, pieces[inbox.peer]) = inbox.take_piece(&self.call)?;
        }
        let length = place.len();
        let contributions: Vec<&[u8]> = pieces
            .iter()
            .map(|words| bytemuck::cast_slice::<u64, u8>(words).get(..length).unwrap_or_default())
            .collect();
        self.reduced = place.end;
        self.call.reduce(&mut own[place], &contributions);
        let pieces = pieces.into_iter().filter(|words| !words.is_empty());
        pieces.for_each(|words| self.call.engine.pieces.give(words));
        Ok(true)
    }

    fn is_done(&self) -> bool {
        self.reduced == self.length && self.outboxes.iter().all(|(_, outbox)| outbox.is_done())
    }

    /// Returns the ranks that have not taken their part, or not sent the piece that is reduced next.
    fn missing(&mut self) -> Vec<usize> {
        let outboxes = self.outboxes.iter_mut().flat_map(|(_, outbox)| outbox.missing());
        missing_ranks(outboxes.collect(), &mut self.inboxes)
    }
}

/// What is the same for every receiver: this rank's goes to the others, theirs come.
struct Gather<'a> {
    call: Call<'a>,
    outbox: Outbox,
    inboxes: Vec<Inbox>,
    length: usize,
}

impl<'a> Gather<'a> {
    /// This rank's message is of `length` and goes to `receivers`; `length_of` gives the lengths of the others'.
    fn new(call: Call<'a>, receivers: Vec<usize>, length: usize, length_of: impl Fn(usize) -> usize) -> Self {
        let inbox = |peer| Inbox::new(peer, tags::RESULT, length_of(peer));
        Self {
            call,
            outbox: Outbox::new(receivers, tags::RESULT, length),
            inboxes: call.peers().map(inbox).collect(),
            length,
        }
    }

    /// Does it all.
    fn run(mut self, own: &[u8], mut place: impl FnMut(usize, Range<usize>, &[u8])) -> Result<(), CollectiveError> {
        let mut progress = Progress::new(self.call.engine, self.call.descriptor);
        while !self.is_done() {
            let has_moved = self.send(own, self.length)? | self.receive(&mut place)?;
            progress.look_again(has_moved, || self.missing())?;
        }
        Ok(())
    }

    fn send(&mut self, own: &[u8], available: usize) -> Result<bool, CollectiveError> {
        self.outbox.step(&self.call, own, available)
    }

    fn receive(&mut self, mut place: impl FnMut(usize, Range<usize>, &[u8])) -> Result<bool, CollectiveError> {
        let mut has_moved = false;
        for inbox in &mut self.inboxes {
            while inbox.has_piece(&self.call)? {
                let (range, words) = inbox.take_piece(&self.call)?;
                let length = range.len();
                place(inbox.peer, range, &bytemuck::cast_slice(&words)[..length]);
                self.call.engine.pieces.give(words);
                has_moved = true;
            }
        }
        Ok(has_moved)
    }

    fn is_done(&self) -> bool {
        self.outbox.is_done() && self.inboxes.iter().all(Inbox::is_done)
    }

    fn missing(&mut self) -> Vec<usize> {
        missing_ranks(self.outbox.missing(), &mut self.inboxes)
    }
}

/// The ranks that have not taken what goes to them, and those of which a message is waited for, ascending.
fn missing_ranks(mut missing: Vec<usize>, inboxes: &mut [Inbox]) -> Vec<usize> {
    let waits = inboxes
        .iter_mut()
        .filter_map(|inbox| inbox.is_awaited().then_some(inbox.peer));
    missing.extend(waits);
    missing.sort_unstable();
    missing.dedup();
    missing
}
