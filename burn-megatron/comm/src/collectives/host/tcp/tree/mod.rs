//! Calls of many ranks over a tree: how all ranks meet, with what few bytes they bring.
//!
//! Each rank waits for its children, sends its parent what has come with its own, and gets the result from it. The root
//! has the contributions of all ranks in rank order and combines them as every rank does in a small group, to the same
//! bits: it takes n times what a rank brings, every other rank its share of that. A rank has sockets to its parent and
//! to its children, which is O(log n); those on its node it reaches through memory where they share some.
//!
//! Calls are compared by the root, which hands all ranks the calls of all if they differ, so that all say the same.
//! A rank that has waited for a while says for whom, up and down, and a rank whose time is up ends the call everywhere:
//! so all name the ranks that are missing, wherever these are.

mod absence;
mod frame;
mod near;
mod payload;
mod shape;
#[cfg(test)]
mod tests;

use super::exchange::Exchange;
use super::links::Channel;
use super::{POLL_SLICE, TcpEngine, readiness};
use crate::collectives::call::CallDescriptor;
use crate::collectives::error::CollectiveError;
use frame::{FrameReader, Kind, Run, Taken};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use near::Near;
pub(super) use near::NodeMemory;
pub(super) use payload::Payload;
pub(super) use shape::{ARITY, Shape};

/// Groups of more ranks have a tree even if none of them share memory.
pub(super) const TREE_ABOVE: usize = 16;
/// What all ranks together bring or get at most over the tree, other than what is reduced.
pub(super) const MOST_BYTES: usize = 1024 * 1024;
/// What a rank brings at most that is reduced over the tree.
pub(super) const MOST_REDUCED_BYTES: usize = 8 * 1024;

/// How long children have to connect before this rank looks for them, and how long one look at one takes at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The longest sleep while a ring is full: there may be others.
const FULL_SLICE: Duration = Duration::from_millis(1);
/// The longest sleep while a child has not connected yet, which no socket tells of.
const CONNECTING_SLICE: Duration = Duration::from_millis(2);

impl TcpEngine {
    /// Brings all ranks together, which must make the same call: carries what each brings, `own`, and returns what this
    /// one gets.
    ///
    /// # Errors
    /// When the calls differ; when a connection breaks, the time runs out or a rank fails.
    pub(super) fn over_tree(
        &self,
        shape: &Shape,
        call: &CallDescriptor,
        payload: Payload,
        own: &[u8],
    ) -> Result<Vec<u8>, CollectiveError> {
        Meeting::new(self, shape, call, payload).hold(own)
    }
}

/// A rank that this one has a link to.
struct Neighbour<'a> {
    /// Its group index.
    peer: usize,
    /// Its memory, if it shares some with this rank; a socket otherwise.
    near: Option<Near<'a>>,
    reader: FrameReader,
    /// Whether the socket, if there is one, may have something.
    may_read: bool,
    /// Whom it waits for, as it last said.
    absent: Option<Vec<usize>>,
    /// Whom this rank waits for, as it last said to the neighbour.
    said: Option<Vec<usize>>,
}

/// What a child brings of the ranks that it stands for.
struct Brought {
    runs: Vec<Run>,
    contributions: Vec<u8>,
}

/// What the root makes of it.
enum Outcome {
    Result(Vec<u8>),
    Differ(Vec<Run>),
}

/// One call on its way over the tree.
struct Meeting<'a> {
    engine: &'a TcpEngine,
    call: &'a CallDescriptor,
    payload: Payload,
    shape: &'a Shape,
    exchange: Exchange<'a>,
    /// The children in rank order, then the parent.
    neighbours: Vec<Neighbour<'a>>,
    /// Of each child.
    brought: Vec<Option<Brought>>,
    /// What the parent has sent.
    outcome: Option<Outcome>,
    /// Ranks that a neighbour once waited for, and later no more.
    come: BTreeSet<usize>,
    since: Instant,
    said_at: Option<Instant>,
    /// When it last looked for children that have not connected.
    looked_at: Instant,
}

impl<'a> Meeting<'a> {
    fn new(engine: &'a TcpEngine, shape: &'a Shape, call: &'a CallDescriptor, payload: Payload) -> Self {
        let size = engine.health.label.size();
        let of_parent = shape.parent.map(|parent| (parent, size));
        let of_children = shape.children.iter().map(|child| (child.start, child.len()));
        let neighbour = |(peer, ranks): (usize, usize)| Neighbour {
            peer,
            near: engine.node.as_ref().and_then(|node| node.neighbour(peer)),
            // Another call may bring more than this one, but no more than any may.
            reader: FrameReader::new(frame::longest_calls(ranks, MOST_BYTES.max(ranks * MOST_REDUCED_BYTES))),
            may_read: true,
            absent: None,
            said: None,
        };
        Self {
            engine,
            call,
            payload,
            shape,
            exchange: Exchange::new(engine, call),
            neighbours: of_children.chain(of_parent).map(neighbour).collect(),
            brought: shape.children.iter().map(|_| None).collect(),
            outcome: None,
            come: BTreeSet::new(),
            since: Instant::now(),
            said_at: None,
            looked_at: Instant::now(),
        }
    }

    fn hold(mut self, own: &[u8]) -> Result<Vec<u8>, CollectiveError> {
        self.wait_until(|meeting| meeting.brought.iter().all(Option::is_some))?;
        let (runs, contributions) = self.merge(own);
        let size = self.engine.health.label.size();
        let outcome = match self.shape.parent {
            None if runs.len() == 1 => Outcome::Result(self.payload.combined(self.call, size, contributions)),
            None => Outcome::Differ(runs),
            Some(parent) => {
                self.engine.count_bytes(contributions.len());
                let index = self.brought.len();
                self.send(index, Kind::Calls, &[&frame::encode_runs(&runs), &contributions]);
                self.wait_until(|meeting| meeting.outcome.is_some())?;
                match self.outcome.take() {
                    Some(Outcome::Result(_)) if runs.len() > 1 => {
                        return Err(self
                            .engine
                            .lost(self.call, parent, &"it sent a result of different calls"));
                    }
                    Some(Outcome::Result(returned)) => {
                        Outcome::Result(self.payload.completed(&self.shape.own, contributions, returned))
                    }
                    Some(differ) => differ,
                    None => unreachable!("the wait was for it"),
                }
            }
        };
        self.hand_down(&outcome);
        self.finish_near()?;
        let (engine, call, shape) = (self.engine, self.call, self.shape);
        self.exchange.finish()?;
        match outcome {
            Outcome::Result(result) => Ok(result),
            Outcome::Differ(runs) => {
                let calls = runs.iter().flat_map(|run| std::iter::repeat_n(run.call, run.ranks));
                engine.health.label.compare_calls(&calls.collect::<Vec<_>>())?;
                let sender = shape.parent.unwrap_or(shape.own.start);
                Err(engine.lost(call, sender, &"it sent calls that are the same as different ones"))
            }
        }
    }

    /// Returns the calls of this rank and those below, and what they contribute if all make the same call.
    fn merge(&mut self, own: &[u8]) -> (Vec<Run>, Vec<u8>) {
        let call = *self.call;
        let mut runs = vec![Run { ranks: 1, call }];
        let mut contributions = own.to_vec();
        for brought in self.brought.iter_mut().flatten() {
            frame::extend(&mut runs, &brought.runs);
            contributions.append(&mut brought.contributions);
        }
        if runs.len() > 1 {
            contributions.clear();
        }
        (runs, contributions)
    }

    fn hand_down(&mut self, outcome: &Outcome) {
        for (index, child) in self.shape.children.iter().enumerate() {
            match outcome {
                Outcome::Result(result) => {
                    let parts = self.payload.parts_for(&self.shape.own, child, result);
                    self.engine.count_bytes(parts.iter().map(|part| part.len()).sum());
                    self.send(index, Kind::Result, &parts);
                }
                Outcome::Differ(runs) => self.send(index, Kind::Differ, &[&frame::encode_runs(runs)]),
            }
        }
    }

    /// Sends a frame to a neighbour.
    fn send(&mut self, index: usize, kind: Kind, parts: &[&[u8]]) {
        let frame = frame::encode(kind, parts);
        let Neighbour { peer, near, .. } = &mut self.neighbours[index];
        match near {
            Some(near) => near.queue(&frame),
            None => self.exchange.queue(*peer, &frame),
        }
    }

    /// Returns whether there is a link to a neighbour.
    fn has_link(&self, index: usize) -> bool {
        let Neighbour { peer, near, .. } = &self.neighbours[index];
        near.is_some() || self.engine.links.made(Channel::Collectives, *peer).is_some()
    }

    fn write(&mut self) -> bool {
        let near = self
            .neighbours
            .iter_mut()
            .filter_map(|neighbour| neighbour.near.as_mut());
        let has_moved = near.fold(false, |has_moved, near| near.write() | has_moved);
        self.exchange.write() | has_moved
    }

    /// Sends and receives until `is_done`.
    fn wait_until(&mut self, is_done: impl Fn(&Self) -> bool) -> Result<(), CollectiveError> {
        self.exchange.deadline.renew();
        let mut vain_looks = 0;
        loop {
            let has_moved = self.write() | self.read()?;
            if is_done(self) {
                return Ok(());
            }
            if has_moved {
                vain_looks = 0;
                self.engine.health.check(Some(self.call))?;
                self.poll(Duration::ZERO);
                continue;
            }
            // What a neighbour has said before it left has been heard now.
            self.exchange.check_broken()?;
            if self.has_left_something()? {
                continue;
            }
            self.look_for_children()?;
            self.say_who_is_absent();
            let checked = self.exchange.deadline.check(|| self.absent());
            if let Err(CollectiveError::Timeout { .. }) = checked {
                self.end_everywhere(&self.absent());
            }
            checked?;
            vain_looks += 1;
            if vain_looks < self.engine.looks {
                std::thread::yield_now();
                self.poll(Duration::ZERO);
            } else {
                self.poll(POLL_SLICE);
            }
        }
    }

    /// Connects to children that have not connected for a while: one that has left will not.
    fn look_for_children(&mut self) -> Result<(), CollectiveError> {
        if self.looked_at.elapsed() < LOOK_INTERVAL {
            return Ok(());
        }
        for index in 0..self.brought.len() {
            let peer = self.neighbours[index].peer;
            if self.awaits(index) && !self.has_link(index) {
                let links = &self.engine.links;
                links.try_once(Channel::Collectives, peer, LOOK_INTERVAL, &self.exchange.deadline)?;
            }
        }
        self.looked_at = Instant::now();
        Ok(())
    }

    /// Looks for neighbours in memory that have given the group up, of which no end of a stream tells; returns whether
    /// one that has had written something before.
    fn has_left_something(&mut self) -> Result<bool, CollectiveError> {
        for index in 0..self.neighbours.len() {
            let Neighbour { peer, near, .. } = &self.neighbours[index];
            let near = near.as_ref().filter(|_| self.awaits(index));
            let cause = near.and_then(Near::disconnect_reason);
            let (Some(cause), peer) = (cause, *peer) else {
                continue;
            };
            if self.read()? {
                return Ok(true);
            }
            // Where the job knows who failed, that is the better cause.
            self.engine.health.check(Some(self.call))?;
            return Err(self.engine.health.peer_left(self.call, peer, cause));
        }
        Ok(false)
    }

    /// Returns whether the call still waits for a neighbour.
    fn awaits(&self, index: usize) -> bool {
        match self.brought.get(index) {
            Some(brought) => brought.is_none(),
            None => self.outcome.is_none(),
        }
    }

    /// Takes what has come; returns whether it was anything.
    fn read(&mut self) -> Result<bool, CollectiveError> {
        let mut has_moved = false;
        for index in 0..self.neighbours.len() {
            while self.awaits(index) && self.neighbours[index].may_read {
                let neighbour = &mut self.neighbours[index];
                let taken = match (
                    &neighbour.near,
                    self.engine.links.made(Channel::Collectives, neighbour.peer),
                ) {
                    (Some(near), _) => neighbour.reader.take(near.from),
                    (None, Some(stream)) => neighbour.reader.take(stream),
                    (None, None) => break,
                };
                match taken.map_err(|error| self.engine.lost(self.call, neighbour.peer, &error))? {
                    Taken::Nothing if neighbour.near.is_some() => break,
                    Taken::Nothing => neighbour.may_read = false,
                    Taken::Part => {
                        has_moved = true;
                        self.exchange.deadline.renew();
                    }
                    Taken::Frame(kind, body) => {
                        has_moved = true;
                        self.hear(index, kind, &body)?;
                    }
                }
            }
        }
        Ok(has_moved)
    }

    fn hear(&mut self, index: usize, kind: Kind, body: &[u8]) -> Result<(), CollectiveError> {
        let size = self.engine.health.label.size();
        let peer = self.neighbours[index].peer;
        let is_understood = match (kind, self.shape.children.get(index)) {
            (Kind::Calls, Some(ranks)) => frame::decode_runs(body, ranks.len()).map(|(runs, payload)| {
                let is_this_call = matches!(&runs[..], [run] if run.call == *self.call);
                let is_whole = !is_this_call || payload.len() == self.payload.contributed_by(ranks, size);
                self.brought[index] = Some(Brought {
                    runs,
                    contributions: payload.to_vec(),
                });
                is_whole
            }),
            (Kind::Result, None) => {
                self.outcome = Some(Outcome::Result(body.to_vec()));
                Some(body.len() == self.payload.returned_to(&self.shape.own, size))
            }
            (Kind::Differ, None) => frame::decode_runs(body, size).map(|(runs, rest)| {
                self.outcome = Some(Outcome::Differ(runs));
                rest.is_empty()
            }),
            (Kind::Waits, of) => frame::decode_list(body, size).map(|absent| {
                let is_of_sender = |rank| of.is_none_or(|ranks| ranks.contains(rank));
                if !absent.iter().all(is_of_sender) {
                    return false;
                }
                let before = self.neighbours[index]
                    .absent
                    .replace(absent.clone())
                    .unwrap_or_default();
                // Each rank comes once: lists that change to and fro do not make a wait endless.
                for rank in before.into_iter().filter(|rank| !absent.contains(rank)) {
                    if self.come.insert(rank) {
                        self.exchange.deadline.renew();
                    }
                }
                true
            }),
            (Kind::TimedOut, _) => match frame::decode_list(body, size) {
                Some(absent) => {
                    self.end_everywhere(&absent);
                    return Err(self.exchange.deadline.end(&absent));
                }
                None => None,
            },
            _ => None,
        };
        if is_understood != Some(true) {
            return Err(self
                .engine
                .lost(self.call, peer, &"it sent something that is no part of this call"));
        }
        if kind != Kind::Waits {
            self.exchange.deadline.renew();
        }
        Ok(())
    }

    /// Sleeps until a link takes or gives something, for `limit` at most, and notes which may be read.
    fn poll(&mut self, limit: Duration) {
        let limit = self.wait_for_near(limit);
        let links = &self.engine.links;
        let link = |peer: usize| links.made(Channel::Collectives, peer);
        let is_far = |index: &usize| self.neighbours[*index].near.is_none();
        let all = (0..self.neighbours.len()).filter(is_far);
        let awaited: Vec<usize> = all.filter(|&index| self.awaits(index)).collect();
        let (connected, unconnected): (Vec<_>, Vec<_>) = awaited
            .into_iter()
            .partition(|&index| link(self.neighbours[index].peer).is_some());
        let reads = connected
            .iter()
            .map(|&index| (self.neighbours[index].peer, libc::POLLIN));
        let writes = self.exchange.outgoing.iter().filter(|out| out.wants_to_write());
        let asked = reads.chain(writes.map(|out| (out.peer, libc::POLLOUT)));
        let polls: Vec<_> = asked
            .filter_map(|(peer, events)| Some(readiness::ask(link(peer)?, events)))
            .collect();
        if limit.is_zero() && polls.is_empty() && unconnected.is_empty() {
            return;
        }
        let limit = if unconnected.is_empty() {
            limit
        } else {
            limit.min(CONNECTING_SLICE)
        };
        let polls = readiness::wait_unless_failed(polls, &self.engine.health, self.exchange.deadline.slice(limit));
        for (&index, poll) in connected.iter().zip(&polls) {
            self.neighbours[index].may_read |= poll.revents != 0;
        }
        for index in unconnected {
            self.neighbours[index].may_read = true;
        }
    }

    /// Sleeps, for `limit` at most, until one of the ranks that share memory with this one gives something, if
    /// any is waited for; returns for how long to sleep for sockets. These can wait meanwhile: nothing goes up before
    /// all ranks of the node have come, and what comes down comes to the first of them.
    fn wait_for_near(&mut self, limit: Duration) -> Duration {
        let is_full = self
            .neighbours
            .iter()
            .filter_map(|neighbour| neighbour.near.as_ref())
            .any(|near| !near.has_sent_all());
        let slice = self
            .exchange
            .deadline
            .slice(limit.min(if is_full { FULL_SLICE } else { POLL_SLICE }));
        let awaited = (0..self.neighbours.len()).filter(|&index| self.awaits(index));
        let near = awaited.filter_map(|index| self.neighbours[index].near.as_ref()).next();
        match near {
            None => return limit,
            Some(_) if slice.is_zero() => {}
            // Where ranks outnumber the cores, who yields one waits for all others.
            Some(near) => near.wait_to_read(self.engine.looks > 0, slice),
        }
        Duration::ZERO
    }

    /// Sends what is left to the ranks that share memory with this one.
    fn finish_near(&mut self) -> Result<(), CollectiveError> {
        loop {
            let has_moved = self.write();
            let unsent = self
                .neighbours
                .iter()
                .filter_map(|Neighbour { peer, near, .. }| Some((*peer, near.as_ref()?)));
            let Some((peer, near)) = { unsent }.find(|(_, near)| !near.has_sent_all()) else {
                return Ok(());
            };
            if has_moved {
                self.exchange.deadline.renew();
            }
            self.exchange.deadline.check(|| vec![peer])?;
            if let Some(cause) = near.disconnect_reason() {
                return Err(self.engine.health.peer_left(self.call, peer, cause));
            }
            near.wait_to_write(self.exchange.deadline.slice(FULL_SLICE));
        }
    }
}
