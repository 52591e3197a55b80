//! `Reducer`: adds gradients to their buckets as they come, and reduces each bucket once it is full.
//!
//! Fed by the hooks during the backward pass, drained by [`DistributedDataParallel`](super::DistributedDataParallel)
//! after it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{DType, Element, TensorData};
use half::{bf16, f16};

use super::bucket::BucketLayout;
use super::flat::{FlatBuffer, PendingFlat};
use super::hook::GradientSink;
use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp};
use crate::mutants::{self, Mutant};

/// The buckets of a module's gradients. Shared by the wrapper and by the backward steps of one forward pass.
#[derive(Debug)]
pub(super) struct Reducer {
    state: Mutex<State>,
}

/// How buckets are reduced.
#[derive(Clone, Debug)]
pub(super) struct Reduction {
    pub(super) group: ProcessGroup,
    pub(super) op: ReduceOp,
    /// Whether each rank needs the reduction of its own shards only.
    pub(super) is_sharded: bool,
    /// Whether a bucket goes as soon as it is full, while the backward pass goes on.
    pub(super) overlaps: bool,
    /// This rank's number in the world.
    pub(super) world_rank: usize,
}

/// A step's gradients, reduced.
pub(super) struct Reduced {
    pub(super) buckets: Vec<FlatBuffer>,
    /// By parameter: whether some data-parallel rank has received a gradient of it.
    pub(super) present: Vec<bool>,
    /// The first parameter that received a gradient on this rank, before any reduction, that is not finite.
    pub(super) non_finite: Option<usize>,
}

struct State {
    layout: BucketLayout,
    dtype: DType,
    reduction: Reduction,
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
    /// Which parameters have received a gradient on some rank; launched behind the buckets.
    presence: Option<Pending<Vec<i32>>>,
    /// The first parameter that received a gradient that is not finite.
    non_finite: Option<usize>,
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
    pub(super) fn new(layout: BucketLayout, dtype: DType, reduction: Reduction) -> Result<Self, CollectiveError> {
        let buckets = (0..layout.lengths().len())
            .map(|bucket| {
                let length = layout.padded_length(bucket);
                FlatBuffer::allocate(length, dtype, &reduction.group).map(Bucket::Filling)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            state: Mutex::new(State {
                received: vec![false; layout.slots().len()],
                completed: vec![false; layout.slots().len()],
                missing: layout.parameters_per_bucket(),
                layout,
                dtype,
                reduction,
                buckets,
                reused: HashMap::new(),
                is_last_micro_batch: false,
                launched: 0,
                presence: None,
                non_finite: None,
            }),
        })
    }

    /// Whether the buckets are laid out like this.
    pub(super) fn is_for(&self, layout: &BucketLayout, dtype: DType) -> bool {
        let state = self.lock();
        (&state.layout, state.dtype) == (layout, dtype)
    }

    /// The slots and shards, and whether each rank gets its own shards only.
    pub(super) fn layout(&self) -> (BucketLayout, bool) {
        let state = self.lock();
        (state.layout.clone(), state.reduction.is_sharded)
    }

    /// Forgets what the step has accumulated; the buckets are kept for the parameters that come instead.
    ///
    /// Buckets on their way are waited for. Those that are out with the last step's gradients come back with them.
    ///
    /// # Errors
    /// When a reduction failed.
    pub(super) fn forget_step(&self) -> Result<(), CollectiveError> {
        let mut state = self.lock();
        if let Some(presence) = state.presence.take() {
            presence.wait()?;
        }
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
        if state.presence.is_none() {
            let received = state.received.iter().map(|&received| i32::from(received)).collect();
            let group = state.reduction.group.labelled("which parameters have gradients");
            state.presence = Some(group.all_reduce_start(received, ReduceOp::Max));
        }
    }

    /// Waits for all buckets, launching those that have not been.
    ///
    /// # Errors
    /// When a reduction failed.
    pub(super) fn finish(&self) -> Result<Reduced, CollectiveError> {
        self.launch_rest();
        let mut state = self.lock();
        let presence = state.presence.take();
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
        let present = presence.map_or(Ok(Vec::new()), Pending::wait);
        Ok(Reduced {
            buckets: results.into_iter().collect::<Result<_, _>>()?,
            present: present?.into_iter().map(|received| received > 0).collect(),
            non_finite: state.non_finite,
        })
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
            if !state.reduction.overlaps {
                return;
            }
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
        self.presence = None;
        self.non_finite = None;
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
        let infinite = mutants::is_active(Mutant::InfiniteGradient(self.reduction.world_rank))
            .then(|| TensorData::new(vec![f32::INFINITY; slot.len], [slot.len]).convert_dtype(gradient.dtype));
        let gradient = infinite.as_ref().unwrap_or(gradient);
        if self.non_finite.is_none() && !is_finite(gradient) {
            self.non_finite = Some(index);
        }
        let Bucket::Filling(buffer) = &mut self.buckets[slot.bucket] else {
            panic!(
                "a gradient of parameter {index} came after its bucket was reduced: a hooked module serves one forward \
                 pass only, and a parameter that several segments of a stage use must be declared as reused"
            );
        };
        buffer.accumulate(slot.offset, gradient, first);
    }

    fn launch_next(&mut self) {
        let number = self.launched;
        let Bucket::Filling(buffer) = std::mem::replace(&mut self.buckets[number], Bucket::Away) else {
            unreachable!("a bucket is launched once");
        };
        let group = self.reduction.group.labelled(&format!("bucket {number}"));
        self.buckets[number] = Bucket::Reducing(match self.reduction.is_sharded {
            true => buffer.reduce_scatter_start(self.reduction.op, &group),
            false => buffer.all_reduce_start(self.reduction.op, &group),
        });
        self.launched += 1;
    }

    /// Buffers are reused: what received nothing still holds the last step's gradient.
    fn clear_missing(&mut self) {
        for (slot, received) in self.layout.slots().iter().zip(&self.received) {
            if let (false, Bucket::Filling(buffer)) = (received, &mut self.buckets[slot.bucket]) {
                buffer.clear(slot.offset, slot.len);
            }
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reducer")
            .field("buckets", &self.layout.lengths())
            .field("dtype", &self.dtype)
            .field("reduction", &self.reduction)
            .field("launched", &self.launched)
            .finish()
    }
}

/// Whether every element is finite: no exponent is all ones.
fn is_finite(gradient: &TensorData) -> bool {
    /// The largest magnitude as bits, of which a comparison is one instruction for many elements.
    fn largest<T: Element, U: Copy + Default + Ord>(gradient: &TensorData, magnitude: impl Fn(T) -> U) -> U {
        let values = gradient.as_slice::<T>().expect("matched on the element type");
        values
            .iter()
            .fold(U::default(), |max, &value| max.max(magnitude(value)))
    }
    match gradient.dtype {
        DType::F64 => largest(gradient, |v: f64| v.to_bits() & (u64::MAX >> 1)) < f64::INFINITY.to_bits(),
        DType::F32 => largest(gradient, |v: f32| v.to_bits() & (u32::MAX >> 1)) < f32::INFINITY.to_bits(),
        DType::F16 => largest(gradient, |v: f16| v.to_bits() & (u16::MAX >> 1)) < f16::INFINITY.to_bits(),
        DType::BF16 => largest(gradient, |v: bf16| v.to_bits() & (u16::MAX >> 1)) < bf16::INFINITY.to_bits(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_seen_in_every_type() {
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
            for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
                let good = TensorData::new(vec![0.0f32, -1.5, 3e4, -3e4, f32::MIN_POSITIVE], [5]).convert_dtype(dtype);
                assert!(is_finite(&good), "{dtype:?}");
                let bad = TensorData::new(vec![0.0f32, bad, 1.0], [3]).convert_dtype(dtype);
                assert!(!is_finite(&bad), "{bad:?}");
            }
        }
    }
}
