//! Puts the messages into the orders of all stages, so that the lists are free of deadlock even where every send waits
//! for its receiver.
//!
//! # Why the lists are free of deadlock
//!
//! The pass plays the orders through with transfers at which sender and receiver meet, and writes each event, a
//! computation or a transfer, into the lists of the stages that have part in it. So there is one order of all events of
//! which each list is the part that concerns its stage. Whoever carries the lists out can do the first event in that
//! order that is not done yet, for it is the next of all its stages. Joining transfers that are adjacent in a
//! list into one exchange lets each of them start sooner and none later; and so do channels with room.
//!
//! # Where the messages are
//!
//! A message is sent right after it was made. It is received right before the task that takes it, with one exception:
//! when stages wait for each other in a ring, one of those that wait to send gets rid of its message early. That
//! happens in interleaved schedules only, where a stage makes messages of both directions before the next stage has
//! come to either.
//!
//! Which one is chosen matters to whoever waits at the receive rather than at the task. Take the times at which the
//! tasks would run if sends never blocked and a stage waited at the task. A ring always has a message that is made
//! before its receiver starts its next task, and receiving that one early costs no time. Were there none, then along
//! the whole ring each stage's next task would start later than that of the stage it waits for: where it waits for an
//! input, because its task comes after the other's, and where it waits to send, because its next task comes after what
//! made the message, which comes after the start of the receiver's next task.

use std::{collections::HashSet, iter};

use super::order::Order;
use crate::pipeline_parallel::schedule::{
    Action, Costs, Direction, Message, Pass, Schedule, Span, Task,
    geometry::{Geometry, Step, Tag},
};

/// The times of a forward and a backward pass that early receives are chosen by, in any unit.
const COSTS: (f64, f64) = (1.0, 2.0);

/// The lists of all stages with their messages.
///
/// # Panics
/// When the orders themselves make stages wait for each other.
pub(super) fn with_messages(geometry: Geometry, orders: Vec<Order>) -> Vec<Vec<Action>> {
    let stages = times(geometry, &orders).into_iter().map(Stage::new).collect();
    let mut play = Play { geometry, stages };
    while !play.is_over() {
        let mut has_moved = false;
        for stage in 0..geometry.num_stages {
            while play.advance(stage) {
                has_moved = true;
            }
        }
        if !has_moved && !play.is_over() {
            play.transfer_early();
        }
    }
    play.stages.into_iter().map(Stage::into_list).collect()
}

/// When each task would run if sends never blocked.
fn times(geometry: Geometry, orders: &[Order]) -> Vec<Vec<Span>> {
    let list = |(stage, order): (usize, &Order)| {
        let with_send = |&(pass, task): &(Pass, Task)| {
            let send = geometry.output(Step { stage, pass, task }).map(Action::Send);
            iter::once(pass.action(task)).chain(send)
        };
        order.iter().flat_map(with_send).collect()
    };
    let sends_only = Schedule {
        num_chunks: geometry.num_chunks,
        // Not looked at by the simulation.
        num_micro_batches: 0,
        is_forward_only: false,
        stages: orders.iter().enumerate().map(list).collect(),
    };
    let (forward, backward) = COSTS;
    let costs = Costs::equal(geometry.num_virtual_stages(), forward, backward);
    sends_only.simulate(&costs).stages
}

/// One stage at one moment of the play.
struct Stage {
    /// The computations of the stage in order, and their times without waiting.
    spans: Vec<Span>,
    /// The index in `spans` of the next computation.
    next: usize,
    /// The message that is made and not yet sent.
    outbox: Option<Message>,
    /// The messages that are received and not yet used.
    inbox: HashSet<Tag>,
    /// The sends and receives since the last computation.
    transfers: Vec<Action>,
    /// The list of actions up to the last computation.
    list: Vec<Action>,
}

struct Play {
    geometry: Geometry,
    stages: Vec<Stage>,
}

impl Play {
    fn is_over(&self) -> bool {
        let is_over = |stage: &Stage| stage.next == stage.spans.len() && stage.outbox.is_none();
        self.stages.iter().all(is_over)
    }

    fn next_step(&self, stage: usize) -> Option<Step> {
        let state = &self.stages[stage];
        let &Span { pass, task, .. } = state.spans.get(state.next)?;
        Some(Step { stage, pass, task })
    }

    /// The message that a stage lacks for what it computes next.
    fn lacks(&self, stage: usize) -> Option<Message> {
        let input = self.geometry.input(self.next_step(stage)?)?;
        (!self.stages[stage].inbox.contains(&input.tag())).then_some(input)
    }

    /// Lets a stage send to one that lacks the message, or else compute. Returns whether it could.
    fn advance(&mut self, stage: usize) -> bool {
        if let Some(message) = self.stages[stage].outbox {
            let is_lacked = self.lacks(message.peer).is_some_and(|lack| lack.tag() == message.tag());
            if is_lacked {
                self.transfer(stage, message);
            }
            return is_lacked;
        }
        let Some(step) = self.next_step(stage) else {
            return false;
        };
        // Between the chunks of a single stage there is no message: the order alone says what was made before.
        if self.lacks(stage).is_some() {
            return false;
        }
        let input = self.geometry.input(step);
        let output = self.geometry.output(step);
        let state = &mut self.stages[stage];
        if let Some(input) = input {
            state.inbox.remove(&input.tag());
        }
        state.write_transfers();
        state.list.push(step.pass.action(step.task));
        state.outbox = output;
        state.next += 1;
        true
    }

    fn transfer(&mut self, sender: usize, message: Message) {
        let state = &mut self.stages[sender];
        state.outbox = None;
        state.transfers.push(Action::Send(message));
        let receiver = &mut self.stages[message.peer];
        receiver.inbox.insert(message.tag());
        receiver.transfers.push(Action::Recv(Message {
            peer: sender,
            ..message
        }));
    }

    /// Breaks a ring of stages that wait for each other, at the message that is made the longest before its receiver's
    /// next task.
    fn transfer_early(&mut self) {
        let spare = |stage: usize| {
            let message = self.stages[stage].outbox?;
            let receiver = &self.stages[message.peer];
            let next = receiver.spans.get(receiver.next)?;
            let made = self.stages[stage].spans.get(self.stages[stage].next.checked_sub(1)?)?;
            Some((next.start_secs - made.end_secs, stage, message))
        };
        let (_, stage, message) = self
            .ring()
            .into_iter()
            .filter_map(spare)
            .max_by(|(one, ..), (other, ..)| one.total_cmp(other))
            .expect("the order of tasks never makes stages wait for each other");
        self.transfer(stage, message);
    }

    /// Returns the stages of a ring in which each waits for the next; no stage can move.
    fn ring(&self) -> Vec<usize> {
        let waits_for = |stage: usize| match self.stages[stage].outbox {
            Some(message) => Some(message.peer),
            None => self.lacks(stage).map(|message| message.peer),
        };
        let Some(unfinished) = (0..self.stages.len()).find(|&stage| waits_for(stage).is_some()) else {
            return Vec::new();
        };
        // Each waits for one other, so one step per stage leads from any stage into a ring.
        let inside = (0..self.stages.len()).try_fold(unfinished, |stage, _| waits_for(stage));
        iter::successors(inside, |&stage| waits_for(stage).filter(|&next| Some(next) != inside)).collect()
    }
}

impl Stage {
    fn new(spans: Vec<Span>) -> Self {
        Self {
            next: 0,
            outbox: None,
            inbox: HashSet::new(),
            transfers: Vec::new(),
            list: Vec::with_capacity(2 * spans.len()),
            spans,
        }
    }

    fn into_list(mut self) -> Vec<Action> {
        self.write_transfers();
        self.list
    }

    /// Writes the transfers since the last computation: a run of them through different channels that has both sends
    /// and receives as one exchange, all others one by one.
    fn write_transfers(&mut self) {
        let mut run: Vec<Action> = Vec::new();
        for transfer in self.transfers.drain(..) {
            if run.iter().any(|other| channel(other) == channel(&transfer)) {
                write_run(&mut run, &mut self.list);
            }
            run.push(transfer);
        }
        write_run(&mut run, &mut self.list);
    }
}

/// Returns the key of a stage's channel: sent or received, the other stage, the direction.
fn channel(transfer: &Action) -> Option<(bool, usize, Direction)> {
    let is_send = !transfer.sends().is_empty();
    let message = transfer.sends().first().or(transfer.recvs().first())?;
    Some((is_send, message.peer, message.direction))
}

fn write_run(run: &mut Vec<Action>, list: &mut Vec<Action>) {
    let sends: Vec<Message> = run.iter().flat_map(Action::sends).copied().collect();
    let recvs: Vec<Message> = run.iter().flat_map(Action::recvs).copied().collect();
    if sends.is_empty() || recvs.is_empty() {
        list.append(run);
    } else {
        run.clear();
        list.push(Action::Exchange { sends, recvs });
    }
}
