//! [`Traffic`]: the collectives that operations made, counted by operation.

use std::cell::Cell;

use serde::Serialize;

/// The part of a step that an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The forward pass, and what is outside passes.
    Forward,
    /// The backward pass.
    Backward,
    /// Gradients on their way to their parameters' placement.
    Gradients,
}

/// A kind of communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrafficKind {
    /// Terms are put together on every rank.
    AllReduce,
    /// Ranges are put together on every rank.
    AllGather,
    /// Terms are put together, and each rank keeps a range.
    ReduceScatter,
    /// Ranges of one dimension become ranges of another.
    AllToAll,
}

/// A collective that an operation made, or several of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrafficRecord {
    /// The part of the step.
    pub phase: Phase,
    /// The operation of the backend that needed it.
    pub operation: &'static str,
    /// The number of that operation in the step.
    pub number: usize,
    /// The mesh's axis.
    pub axis: usize,
    /// What was done.
    pub kind: TrafficKind,
    /// Bytes of the whole tensor; for [`TrafficKind::AllToAll`], in which no rank has it, of this rank's part.
    pub bytes: usize,
}

/// What is counted of a mesh's communication.
#[derive(Debug, Default)]
pub struct Traffic {
    is_counting: bool,
    operations: usize,
    records: Vec<TrafficRecord>,
}

impl Traffic {
    pub(super) fn start(&mut self) {
        *self = Self {
            is_counting: true,
            ..Self::default()
        };
    }

    pub(super) fn stop(&mut self) -> Vec<TrafficRecord> {
        std::mem::take(self).records
    }

    /// Counts an operation on placed tensors.
    pub(super) fn begin(&mut self) {
        self.operations += 1;
    }

    pub(super) fn add(&mut self, axis: usize, kind: TrafficKind, bytes: usize) {
        if self.is_counting {
            self.records.push(TrafficRecord {
                phase: phase(),
                operation: operation(),
                number: self.operations,
                axis,
                kind,
                bytes,
            });
        }
    }
}

thread_local! {
    static OPERATION: Cell<&'static str> = const { Cell::new("") };
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Forward) };
}

/// The operation that runs on this thread.
pub(super) fn operation() -> &'static str {
    OPERATION.get()
}

pub(super) fn set_operation(name: &'static str) {
    OPERATION.set(name);
}

/// The part of the step that this thread is in.
pub(super) fn phase() -> Phase {
    PHASE.get()
}

/// Runs in a phase, and returns to the one before even if it unwinds.
pub(super) fn in_phase<T>(phase: Phase, run: impl FnOnce() -> T) -> T {
    struct Restore(Phase);
    impl Drop for Restore {
        fn drop(&mut self) {
            PHASE.set(self.0);
        }
    }
    let _restore = Restore(PHASE.replace(phase));
    run()
}
