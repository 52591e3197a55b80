//! [`Timeline`]: what this rank did when, measured.
//!
//! Written by the executor and by the trainer while it is on, collected over all ranks by programs, which draw it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::collectives::{CollectiveError, ProcessGroup, ReduceOp};

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
    /// Gradients are reduced and finalised.
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

    /// Whether it goes on beside what the rank computes.
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
    /// The chunk of the stage, where there is one.
    pub chunk: Option<usize>,
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
    /// The chunk.
    pub chunk: Option<usize>,
    /// The rank at the other end of a transfer.
    pub peer: Option<usize>,
}

/// A recording of this rank's time; off until it is [started](Self::start). Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The common zero of all ranks; none while off.
    zero: Option<Instant>,
    step: u64,
    events: Vec<TimelineEvent>,
}

impl Timeline {
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
        let mut inner = self.lock();
        inner.zero.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Stops to record; what there is stays.
    pub fn stop(&self) {
        self.lock().zero = None;
    }

    /// Whether it records.
    pub fn is_on(&self) -> bool {
        self.lock().zero.is_some()
    }

    /// Says that what follows belongs to a step, counted from 1.
    pub fn set_step(&self, step: u64) {
        self.lock().step = step;
    }

    /// Runs something and records how long it took.
    pub fn measure<T>(&self, activity: Activity, label: TimelineLabel, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = run();
        self.record(activity, label, start, Instant::now());
        result
    }

    /// Records a stretch of time.
    pub fn record(&self, activity: Activity, label: TimelineLabel, start: Instant, end: Instant) {
        let mut inner = self.lock();
        let Some(zero) = inner.zero else {
            return;
        };
        let event = TimelineEvent {
            activity,
            step: inner.step,
            micro_batch: label.micro_batch,
            chunk: label.chunk,
            peer: label.peer,
            start: start.saturating_duration_since(zero).as_secs_f64(),
            end: end.saturating_duration_since(zero).as_secs_f64(),
        };
        inner.events.push(event);
    }

    /// Takes what was recorded, in order of its end.
    pub fn take(&self) -> Vec<TimelineEvent> {
        std::mem::take(&mut self.lock().events)
    }

    /// Takes what all ranks have recorded, a list per rank, on every rank.
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
        Ok(all.chunks_exact(longest).map(parse).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_recorded_while_it_is_off() {
        let (timeline, world) = (Timeline::default(), ProcessGroup::single());
        timeline.measure(Activity::Forward, TimelineLabel::default(), || ());
        timeline.start(&world).unwrap();
        timeline.set_step(3);
        let label = TimelineLabel {
            micro_batch: Some(1),
            chunk: Some(0),
            peer: None,
        };
        assert_eq!(timeline.measure(Activity::Backward, label, || 7), 7);
        timeline.stop();
        timeline.measure(Activity::Forward, TimelineLabel::default(), || ());
        let ranks = timeline.gather(&world).unwrap();
        assert_eq!(ranks.len(), 1);
        let [event] = ranks[0].as_slice() else {
            panic!("{ranks:?}");
        };
        assert_eq!(
            (event.activity, event.step, event.micro_batch),
            (Activity::Backward, 3, Some(1))
        );
        assert!(0.0 <= event.start && event.start <= event.end);
        assert!(timeline.take().is_empty());
    }
}
