//! [`Timeline`]: what this rank did when, measured.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::schedule::Direction;
use crate::collectives::{CollectiveError, ProcessGroup, ReduceOp};

#[cfg(test)]
mod tests;

/// What a rank can be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// A chunk's forward pass.
    Forward,
    /// A chunk's backward pass, with the recomputation that belongs to it.
    Backward,
    /// Blocked: something that is needed next has not come.
    Wait,
    /// A message on its way out, from the call until it is handed over. At the same time as what is computed.
    Send,
    /// A message on its way in, from the moment at which it is asked for. At the same time as what is computed.
    Receive,
    /// Gradients and loss are reduced and finalised, with the wait for the ranks that are not there yet.
    Reduction,
    /// The optimizer updates the parameters.
    Optimizer,
}

impl Activity {
    /// All of them.
    pub const ALL: [Activity; 7] = [
        Activity::Forward,
        Activity::Backward,
        Activity::Wait,
        Activity::Send,
        Activity::Receive,
        Activity::Reduction,
        Activity::Optimizer,
    ];

    /// Its name in pictures and files.
    pub fn name(self) -> &'static str {
        match self {
            Activity::Forward => "forward",
            Activity::Backward => "backward",
            Activity::Wait => "wait",
            Activity::Send => "send",
            Activity::Receive => "receive",
            Activity::Reduction => "reduction",
            Activity::Optimizer => "optimizer",
        }
    }

    /// Returns whether it runs concurrently with the rank's compute.
    pub fn is_transfer(self) -> bool {
        matches!(self, Activity::Send | Activity::Receive)
    }
}

/// A stretch of a rank's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineEvent {
    /// What the rank was at.
    pub activity: Activity,
    /// The optimiser step, counted from 1.
    pub step: u64,
    /// The micro-batch, where there is one.
    pub micro_batch: Option<usize>,
    /// The chunk of the stage, where there is one; of a transfer, the chunk that made what is sent.
    pub chunk: Option<usize>,
    /// Which way a transfer goes.
    pub direction: Option<Direction>,
    /// The rank at the other end of a transfer.
    pub peer: Option<usize>,
    /// Seconds since the timeline's zero.
    pub start: f64,
    /// Seconds since the timeline's zero.
    pub end: f64,
}

/// Which micro-batch and chunk something belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineLabel {
    /// The micro-batch.
    pub micro_batch: Option<usize>,
    /// The chunk; of a transfer, the one that made what is sent.
    pub chunk: Option<usize>,
    /// Which way a transfer goes.
    pub direction: Option<Direction>,
    /// The rank at the other end of a transfer.
    pub peer: Option<usize>,
}

/// What is shown everything that a rank does, whether or not it is recorded: timers, or a profiler's ranges.
pub trait TimelineObserver: Debug + Send + Sync {
    /// Something begins, on this thread. Of waits and transfers only the end is shown.
    fn begins(&self, activity: Activity, label: TimelineLabel);

    /// Something has ended after a time; what has begun on this thread ends there.
    fn ends(&self, activity: Activity, label: TimelineLabel, time: Duration);
}

/// A recording of this rank's time; off until it is [started](Self::start). Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    inner: Arc<Mutex<Inner>>,
    observer: Option<Arc<dyn TimelineObserver>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The common zero of all ranks; none while off.
    zero: Option<Instant>,
    step: u64,
    events: Vec<TimelineEvent>,
}

impl Timeline {
    /// Returns the same timeline, which shows an observer what it is asked to measure, even while it is off.
    pub fn with_observer(self, observer: Arc<dyn TimelineObserver>) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    /// Starts to record, from a moment that is the same on every rank up to the time that a barrier takes.
    ///
    /// # Communication
    /// Two barriers over `world`: the first brings the ranks together, the second finds them there.
    ///
    /// # Errors
    /// When they fail.
    pub fn start(&self, world: &ProcessGroup) -> Result<(), CollectiveError> {
        world.barrier()?;
        world.barrier()?;
        let mut inner = self.inner.lock();
        inner.zero.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Stops to record; what there is stays.
    pub fn stop(&self) {
        self.inner.lock().zero = None;
    }

    /// Whether it records.
    pub fn is_on(&self) -> bool {
        self.inner.lock().zero.is_some()
    }

    /// Says that what follows belongs to a step, counted from 1.
    pub fn set_step(&self, step: u64) {
        self.inner.lock().step = step;
    }

    /// Runs something and records how long it took.
    pub fn measure<T>(&self, activity: Activity, label: TimelineLabel, run: impl FnOnce() -> T) -> T {
        if let Some(observer) = &self.observer {
            observer.begins(activity, label);
        }
        let start = Instant::now();
        let result = run();
        self.record(activity, label, start, Instant::now());
        result
    }

    /// Records a stretch of time.
    pub fn record(&self, activity: Activity, label: TimelineLabel, start: Instant, end: Instant) {
        if let Some(observer) = &self.observer {
            observer.ends(activity, label, end.saturating_duration_since(start));
        }
        let mut inner = self.inner.lock();
        let Some(zero) = inner.zero else {
            return;
        };
        let event = TimelineEvent {
            activity,
            step: inner.step,
            micro_batch: label.micro_batch,
            chunk: label.chunk,
            direction: label.direction,
            peer: label.peer,
            start: start.saturating_duration_since(zero).as_secs_f64(),
            end: end.saturating_duration_since(zero).as_secs_f64(),
        };
        inner.events.push(event);
    }

    /// Takes what was recorded, in order of its end.
    pub fn take(&self) -> Vec<TimelineEvent> {
        std::mem::take(&mut self.inner.lock().events)
    }

    /// Takes what all ranks have recorded, a list per rank, on every rank. Here a receive begins when it has been asked
    /// for and its sender has begun too: receives are asked for long before.
    ///
    /// # Communication
    /// One all-reduce of one number and one all-gather of all events over `world`.
    ///
    /// # Errors
    /// When they fail.
    pub fn gather(&self, world: &ProcessGroup) -> Result<Vec<Vec<TimelineEvent>>, CollectiveError> {
        let mut mine = serde_json::to_vec(&self.take()).expect("events are plain data");
        let mut longest = [mine.len() as i64];
        world.all_reduce(&mut longest, ReduceOp::Max)?;
        let longest = longest[0] as usize;
        // JSON may end in blanks.
        mine.resize(longest, b' ');
        let mut all = vec![0u8; longest * world.size()];
        world.all_gather(&mine, &mut all)?;
        let parse = |bytes: &[u8]| serde_json::from_slice(bytes).expect("what a rank of this program wrote");
        let mut ranks: Vec<Vec<TimelineEvent>> = all.chunks_exact(longest).map(parse).collect();
        begin_receives_with_sends(&mut ranks);
        Ok(ranks)
    }
}

/// Moves the start of each receive to that of the send that it belongs to, if it is earlier.
fn begin_receives_with_sends(ranks: &mut [Vec<TimelineEvent>]) {
    let key = |event: &TimelineEvent, from: usize, to: usize| {
        let what = (event.direction, event.micro_batch, event.chunk);
        (event.step, from, to, what)
    };
    let mut sends = HashMap::new();
    for (rank, events) in ranks.iter().enumerate() {
        for event in events.iter().filter(|event| event.activity == Activity::Send) {
            if let Some(peer) = event.peer {
                sends.insert(key(event, rank, peer), event.start);
            }
        }
    }
    for (rank, events) in ranks.iter_mut().enumerate() {
        for event in events.iter_mut().filter(|event| event.activity == Activity::Receive) {
            let sent = event.peer.and_then(|peer| sends.get(&key(event, peer, rank)));
            if let Some(&sent) = sent {
                // Clocks of several machines differ by what a barrier takes.
                event.start = event.start.max(sent).min(event.end);
            }
        }
    }
}
