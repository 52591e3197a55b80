//! `Reducer`: adds gradients to their buckets as they come, and reduces each bucket once it is full.
//!
//! Fed by the hooks during the backward pass, drained by [`DistributedDataParallel`](super::DistributedDataParallel)
//! after it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{DType, TensorData};

use super::bucket::BucketLayout;
use super::flat::{FlatBuffer, PendingFlat};
use super::hook::GradientSink;
use crate::collectives::{CollectiveError, ProcessGroup, ReduceOp};

/// The buckets of a module's gradients. Shared by the wrapper and by the backward steps of one forward pass.
#[derive(Debug)]
pub(super) struct Reducer {
    state: Mutex<State>,
}

struct State {
    layout: BucketLayout,
    dtype: DType,
    group: ProcessGroup,
    op: ReduceOp,
    buckets: Vec<Bucket>,
    /// What the backward pass at hand gave to reused parameters: a pass may reach one twice, in graphs of its own, and the
    /// sum must have the bits that one graph gives it.
    reused: HashMap<usize, TensorData>,
    /// Whether a parameter has received a gradient in this step.
    received: Vec<bool>,
    /// Whether a parameter has received a gradient of its last micro-batch.
    completed: Vec<bool>,
    /// Parameters that each bucket still waits for in the last micro-batch.
    missing: Vec<usize>,
    is_last_micro_batch: bool,
    /// Buckets are launched in the order of their numbers, the same on every rank.
    launched: usize,
}

enum Bucket {
    Filling(FlatBuffer),
    Reducing(PendingFlat),
    /// Between steps, and for the blink of a state change.
    Away,
}

impl Reducer {
    /// Returns empty buckets, allocated once and used in every step. Collective over the group.
    ///
    /// # Errors
    /// When the ranks do not allocate the same.
    pub(super) fn new(
        layout: BucketLayout,
        dtype: DType,
        group: ProcessGroup,
        op: ReduceOp,
    ) -> Result<Self, CollectiveError> {
        let buckets = layout
            .lengths_with_flags()
            .into_iter()
            .map(|len| FlatBuffer::allocate(len, dtype, &group).map(Bucket::Filling))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            state: Mutex::new(State {
                received: vec![false; layout.slots().len()],
                completed: vec![false; layout.slots().len()],
                missing: layout.parameters_per_bucket(),
                layout,
                dtype,
                group,
                op,
                buckets,
                reused: HashMap::new(),
                is_last_micro_batch: false,
                launched: 0,
            }),
        })
    }

    /// Whether the buckets are laid out like this.
    pub(super) fn is_for(&self, layout: &BucketLayout, dtype: DType) -> bool {
        let state = self.lock();
        (&state.layout, state.dtype) == (layout, dtype)
    }

    /// Forgets what the step has accumulated; the buckets are kept for the parameters that come instead.
    ///
    /// Buckets on their way are waited for. Those that are out with the last step's gradients come back with them.
    ///
    /// # Errors
    /// When a reduction failed.
    pub(super) fn forget_step(&self) -> Result<(), CollectiveError> {
        let mut state = self.lock();
        for bucket in &mut state.buckets {
            *bucket = match std::mem::replace(bucket, Bucket::Away) {
                Bucket::Reducing(pending) => Bucket::Filling(pending.wait()?),
                other => other,
            };
        }
        if state.buckets.iter().all(|bucket| matches!(bucket, Bucket::Filling(_))) {
            state.begin_step();
        }
        Ok(())
    }

    /// Says whether the backward pass that comes is the step's last for the parameters that it reaches, so that full
    /// buckets may go.
    pub(super) fn expect_last_micro_batch(&self, is_last: bool) {
        self.lock().is_last_micro_batch = is_last;
    }

    /// Ends a backward pass.
    pub(super) fn end_pass(&self) {
        self.lock().add_reused();
    }

    /// Whether the step's buckets have been launched and not yet been given back.
    pub(super) fn is_launched(&self) -> bool {
        self.lock().launched > 0
    }

    /// Launches what has not been launched, zero-filling parameters without a gradient.
    pub(super) fn launch_rest(&self) {
        let mut state = self.lock();
        state.add_reused();
        state.clear_missing();
        while state.launched < state.buckets.len() {
            state.launch_next();
        }
    }

    /// Waits for all buckets, launching those that have not been.
    ///
    /// # Errors
    /// When a reduction failed.
    pub(super) fn finish(&self) -> Result<Vec<FlatBuffer>, CollectiveError> {
        self.launch_rest();
        let mut state = self.lock();
        let pending: Vec<PendingFlat> = state
            .buckets
            .iter_mut()
            .map(|bucket| match std::mem::replace(bucket, Bucket::Away) {
                Bucket::Reducing(pending) => pending,
                _ => unreachable!("every bucket was launched"),
            })
            .collect();
        // Wait for every one before the first error is returned: none may be left running.
        let results: Vec<_> = pending.into_iter().map(PendingFlat::wait).collect();
        results.into_iter().collect()
    }

    /// Takes the buckets back for the next step.
    pub(super) fn restart(&self, buckets: Vec<FlatBuffer>) {
        let mut state = self.lock();
        state.buckets = buckets.into_iter().map(Bucket::Filling).collect();
        state.begin_step();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A step that panicked is lost, and `restart` begins a whole new one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GradientSink for Reducer {
    fn receive(&self, index: usize, gradient: TensorData) {
        let mut state = self.lock();
        let slot = state.layout.slots()[index];
        assert_eq!(
            gradient.num_elements(),
            slot.len,
            "a gradient of {} elements for parameter {index} of {}",
            gradient.num_elements(),
            slot.len
        );
        if slot.bucket >= state.layout.num_early() {
            let sum = match state.reused.remove(&index) {
                None => gradient,
                Some(other) => {
                    let mut sum = FlatBuffer::zeros(slot.len, state.dtype);
                    sum.accumulate(0, &other, true);
                    sum.accumulate(0, &gradient, false);
                    sum.tensor_data(0, vec![slot.len])
                }
            };
            state.reused.insert(index, sum);
            return;
        }
        state.add(index, &gradient);
        if state.is_last_micro_batch && !std::mem::replace(&mut state.completed[index], true) {
            state.missing[slot.bucket] -= 1;
            while state.launched < state.layout.num_early() && state.missing[state.launched] == 0 {
                state.launch_next();
            }
        }
    }
}

impl State {
    fn begin_step(&mut self) {
        self.reused.clear();
        self.received.fill(false);
        self.completed.fill(false);
        self.missing = self.layout.parameters_per_bucket();
        self.is_last_micro_batch = false;
        self.launched = 0;
    }

    /// Adds the gradients of the pass at hand to those of reused parameters.
    fn add_reused(&mut self) {
        for (index, gradient) in std::mem::take(&mut self.reused) {
            self.add(index, &gradient);
        }
    }

    fn add(&mut self, index: usize, gradient: &TensorData) {
        let slot = self.layout.slots()[index];
        let first = !std::mem::replace(&mut self.received[index], true);
        let Bucket::Filling(buffer) = &mut self.buckets[slot.bucket] else {
            panic!(
                "a gradient of parameter {index} came after its bucket was reduced: a hooked module serves one forward \
                 pass only, and a parameter that several segments of a stage use must be declared as reused"
            );
        };
        buffer.accumulate(slot.offset, gradient, first);
        buffer.set(slot.flag, 1.0);
    }

    fn launch_next(&mut self) {
        let number = self.launched;
        let Bucket::Filling(buffer) = std::mem::replace(&mut self.buckets[number], Bucket::Away) else {
            unreachable!("a bucket is launched once");
        };
        self.buckets[number] =
            Bucket::Reducing(buffer.all_reduce_start(self.op, &self.group.labelled(&format!("bucket {number}"))));
        self.launched += 1;
    }

    /// Buffers are reused: what received nothing still holds the last step's gradient.
    fn clear_missing(&mut self) {
        for (slot, received) in self.layout.slots().iter().zip(&self.received) {
            if let (false, Bucket::Filling(buffer)) = (received, &mut self.buckets[slot.bucket]) {
                buffer.clear(slot.offset, slot.len);
                buffer.set(slot.flag, 0.0);
            }
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reducer")
            .field("buckets", &self.layout.lengths())
            .field("dtype", &self.dtype)
            .field("group", &self.group)
            .field("launched", &self.launched)
            .finish()
    }
}
