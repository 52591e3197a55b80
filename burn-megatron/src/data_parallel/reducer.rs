//! `Reducer`: adds gradients to their buckets as they come, and reduces each bucket once it is full.
//!
//! Fed by the hooks during the backward pass, drained by [`DistributedDataParallel`](super::DistributedDataParallel)
//! after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::{DType, FloatDType, Int, Shape, Tensor, TensorMetadata, backend::Backend, ops::FloatTensor};
use cubecl_kernels::accumulate::vectors::VectorSink;
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, VectorSums};
use cubecl_kernels::embedding::TokenRange;
use cubecl_kernels::linear::destination::WeightSink;
use cubecl_kernels::tape::float;

use super::bucket::BucketLayout;
use super::flat::{FlatBuffer, NonFinite, PendingFlat, main_type};
use super::progress::Progress;
use crate::autodiff::GradientSink;
use crate::collectives::{CollectiveBackend, CollectiveError, Pending, ProcessGroup, ReduceOp};
use crate::device_memory::allocate_exactly;

/// The buckets of a module's gradients. Shared by the wrapper and by the backward steps of one forward pass.
#[derive(Debug)]
pub(super) struct Reducer<B: Backend> {
    state: Mutex<State<B>>,
}

/// How buckets are reduced.
#[derive(Clone, Debug)]
pub(super) struct Reduction {
    pub(super) group: ProcessGroup,
    pub(super) op: ReduceOp,
    /// Whether each rank needs the reduction of its own shards only.
    pub(super) is_sharded: bool,
    /// Whether a bucket is reduced as soon as it is full, during the backward pass.
    pub(super) overlaps: bool,
}

/// A step's gradients, reduced.
pub(super) struct Reduced<B: Backend> {
    pub(super) buckets: Vec<FlatBuffer<B>>,
    /// By parameter: whether some data-parallel rank has received a gradient of it.
    pub(super) present: Vec<bool>,
    /// Whether all data-parallel ranks have made the same steps and updates.
    pub(super) is_in_step: bool,
    /// The parameters that received a gradient on this rank, before any reduction, that is not finite.
    pub(super) non_finite: NonFinite<B>,
}

struct State<B: Backend> {
    layout: BucketLayout,
    dtype: DType,
    device: B::Device,
    reduction: Reduction,
    buckets: Vec<Bucket<B>>,
    /// What the backward pass at hand gave to reused parameters: a pass may reach one twice, in graphs of its own, and
    /// the sum must have the bits that one graph gives it.
    reused: HashMap<usize, Tensor<B, 1>>,
    /// Whether a parameter has received a gradient in this step.
    received: Vec<bool>,
    /// Whether products, or rows of embeddings, were added to a parameter's gradient in this step.
    multiplied: Vec<bool>,
    /// Whether a parameter has received a gradient of its last micro-batch.
    completed: Vec<bool>,
    /// Parameters that each bucket still waits for in the last micro-batch.
    missing: Vec<usize>,
    is_last_micro_batch: bool,
    /// Buckets are launched in the order of their numbers, the same on every rank.
    launched: usize,
    /// Which parameters have received a gradient on some rank, then the maxima of [`Progress`]; launched after the
    /// buckets.
    presence: Option<Pending<Vec<i32>>>,
    /// Which parameters received a gradient that is not finite.
    non_finite: NonFinite<B>,
}

enum Bucket<B: Backend> {
    Filling(FlatBuffer<B>),
    Reducing(PendingFlat<B>),
    /// Between steps, until parameters that took its memory have come, and for the blink of a state change.
    Away,
}

impl<B: CollectiveBackend> Reducer<B> {
    /// Returns empty buckets, allocated once and used in every step. Collective over the group.
    ///
    /// # Errors
    /// When the ranks do not allocate the same.
    pub(super) fn new(
        layout: BucketLayout,
        dtype: DType,
        device: &B::Device,
        reduction: Reduction,
    ) -> Result<Self, CollectiveError> {
        if B::HAS_DEVICE_MEMORY {
            let lengths = (0..layout.lengths().len()).map(|bucket| layout.padded_length(bucket));
            allocate_exactly::<B>(lengths, main_type(dtype), device);
        }
        let buckets = (0..layout.lengths().len())
            .map(|bucket| {
                let length = layout.padded_length(bucket);
                FlatBuffer::allocate(length, dtype, &reduction.group, device).map(Bucket::Filling)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            state: Mutex::new(State {
                non_finite: NonFinite::none(layout.slots().len()),
                received: vec![false; layout.slots().len()],
                multiplied: vec![false; layout.slots().len()],
                completed: vec![false; layout.slots().len()],
                missing: layout.parameters_per_bucket(),
                layout,
                dtype,
                device: device.clone(),
                reduction,
                buckets,
                reused: HashMap::new(),
                is_last_micro_batch: false,
                launched: 0,
                presence: None,
            }),
        })
    }

    /// Whether the buckets are laid out like this.
    pub(super) fn is_for(&self, layout: &BucketLayout, dtype: DType, device: &B::Device) -> bool {
        let state = self.lock();
        (&state.layout, state.dtype, &state.device) == (layout, dtype, device)
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

    /// Launches what has not been launched, zero-filling parameters without a gradient. `progress` is compared with
    /// that of the other ranks, in a call that is made anyway.
    pub(super) fn launch_rest(&self, progress: Progress) {
        let mut state = self.lock();
        state.add_reused();
        state.clear_missing();
        while state.launched < state.buckets.len() {
            state.launch_next();
        }
        if state.presence.is_none() {
            let received = state.received.iter().map(|&received| i32::from(received));
            let received = received.chain(progress.to_maxima()).collect();
            let group = state.reduction.group.labelled("which parameters have gradients");
            state.presence = Some(group.all_reduce_start(received, ReduceOp::Max));
        }
    }

    /// Waits for all buckets, launching those that have not been.
    ///
    /// # Errors
    /// When a reduction failed.
    pub(super) fn finish(&self, progress: Progress) -> Result<Reduced<B>, CollectiveError> {
        self.launch_rest(progress);
        let mut state = self.lock();
        let presence = state.presence.take();
        let pending: Vec<PendingFlat<B>> = state
            .buckets
            .iter_mut()
            .map(|bucket| match std::mem::replace(bucket, Bucket::Away) {
                Bucket::Reducing(pending) => pending,
                _ => unreachable!("every bucket was launched"),
            })
            .collect();
        // Wait for every one before the first error is returned: none may be left running.
        let results: Vec<_> = pending.into_iter().map(PendingFlat::wait).collect();
        let maxima = presence.expect("launched with the rest").wait();
        let buckets = results.into_iter().collect::<Result<_, _>>()?;
        let maxima = maxima?;
        let (present, progress) = maxima.split_at(maxima.len() - Progress::NUM_MAXIMA);
        Ok(Reduced {
            buckets,
            present: present.iter().map(|&received| received > 0).collect(),
            is_in_step: Progress::is_equal(progress),
            non_finite: state.take_non_finite(),
        })
    }

    /// Takes the buckets back for the next step, except those that are [given back](Self::give_back) by others.
    pub(super) fn restart(&self, buckets: Vec<Option<FlatBuffer<B>>>) {
        let mut state = self.lock();
        for (number, buffer) in buckets.into_iter().enumerate() {
            if let Some(buffer) = buffer {
                state.take_back(number, buffer);
            }
        }
        state.begin_step();
    }

    /// Takes a bucket back for the next step, which may have begun, but not come to its gradients.
    pub(super) fn give_back(&self, number: usize, buffer: FlatBuffer<B>) {
        self.lock().take_back(number, buffer);
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        // A step that panicked is lost, and `restart` begins a whole new one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: CollectiveBackend> GradientSink<B> for Reducer<B> {
    fn receive(&self, index: usize, gradient: FloatTensor<B>) {
        let mut state = self.lock();
        let slot = state.layout.slots()[index];
        let length = gradient.shape().num_elements();
        if state.received[index] && length == 1 && slot.len > 1 {
            // The zero that stands for what was added already.
            state.complete(index);
            return;
        }
        assert_eq!(
            length, slot.len,
            "a gradient of {length} elements for parameter {index} of {}",
            slot.len
        );
        let gradient = float(B::float_reshape(gradient, Shape::new([length])));
        if slot.bucket >= state.layout.num_early() {
            let sum = match state.reused.remove(&index) {
                None => gradient,
                Some(other) => {
                    let main = FloatDType::from(main_type(state.dtype));
                    other.cast(main) + gradient.cast(main)
                }
            };
            state.reused.insert(index, sum);
            return;
        }
        state.add(index, gradient);
        state.complete(index);
    }

    fn product_sink(self: Arc<Self>, index: usize) -> Option<Arc<dyn WeightSink<B>>> {
        let is_taken = B::HAS_DEVICE_MEMORY && B::multiplies_in_library() && self.lock().takes_products(index);
        is_taken.then(|| Arc::new(ProductSink { reducer: self, index }) as Arc<dyn WeightSink<B>>)
    }

    fn vector_sink(self: Arc<Self>, index: usize) -> Option<Arc<dyn VectorSink<B>>> {
        let is_taken = B::HAS_DEVICE_MEMORY && self.lock().takes_products(index);
        is_taken.then_some(self as Arc<dyn VectorSink<B>>)
    }
}

impl<B: CollectiveBackend> VectorSink<B> for Reducer<B> {
    fn lends(&self, parameters: &[usize]) -> bool {
        let state = self.lock();
        let bucket_of = |index: &usize| state.layout.slots()[*index].bucket;
        parameters
            .windows(2)
            .all(|pair| bucket_of(&pair[0]) == bucket_of(&pair[1]))
    }

    fn lend(&self, parameters: &[usize], add: &mut dyn FnMut(VectorSums<B>) -> GradientSums<B>) {
        self.lock().lend(parameters, add);
    }
}

/// Adds products, and rows of embeddings, to a parameter's gradient.
#[derive(Debug)]
struct ProductSink<B: Backend> {
    reducer: Arc<Reducer<B>>,
    index: usize,
}

impl<B: CollectiveBackend> WeightSink<B> for ProductSink<B> {
    fn add_product(&self, a: Tensor<B, 2>, b: Tensor<B, 2>) {
        self.reducer.lock().add_product(self.index, a, b);
    }

    fn add_rows(&self, tokens: Tensor<B, 1, Int>, gradient: Tensor<B, 2>, range: TokenRange) {
        self.reducer.lock().add_rows(self.index, tokens, gradient, range);
    }
}

impl<B: CollectiveBackend> State<B> {
    fn begin_step(&mut self) {
        self.reused.clear();
        self.received.fill(false);
        self.multiplied.fill(false);
        self.completed.fill(false);
        self.missing = self.layout.parameters_per_bucket();
        self.is_last_micro_batch = false;
        self.launched = 0;
        self.presence = None;
        self.take_non_finite();
    }

    fn take_back(&mut self, number: usize, mut buffer: FlatBuffer<B>) {
        buffer.forget_step();
        self.buckets[number] = Bucket::Filling(buffer);
    }

    /// Forgets which gradients were not finite, and returns it.
    fn take_non_finite(&mut self) -> NonFinite<B> {
        std::mem::replace(&mut self.non_finite, NonFinite::none(self.received.len()))
    }

    /// Adds the gradients of the pass at hand to those of reused parameters.
    fn add_reused(&mut self) {
        for (index, gradient) in std::mem::take(&mut self.reused) {
            self.add(index, gradient);
        }
    }

    fn add(&mut self, index: usize, gradient: Tensor<B, 1>) {
        let place = self.next_place(index);
        let bucket = self.layout.slots()[index].bucket;
        filling(&mut self.buckets[bucket], index).accumulate(gradient, place, &mut self.non_finite);
    }

    /// Adds a product to the gradient of a parameter that [takes products](Self::takes_products).
    fn add_product(&mut self, index: usize, a: Tensor<B, 2>, b: Tensor<B, 2>) {
        let slot = self.layout.slots()[index];
        let length = a.dims()[0] * b.dims()[1];
        assert_eq!(
            length, slot.len,
            "a product of {length} elements for parameter {index} of {}",
            slot.len
        );
        let place = self.next_place(index);
        self.multiplied[index] = true;
        filling(&mut self.buckets[slot.bucket], index).add_product(a, b, place);
    }

    /// Lends the sums of parameters, all in one bucket, to a kernel that adds to them.
    fn lend(&mut self, parameters: &[usize], add: &mut dyn FnMut(VectorSums<B>) -> GradientSums<B>) {
        let places = parameters.iter().map(|&index| self.next_place(index)).collect();
        let first = parameters[0];
        let bucket = self.layout.slots()[first].bucket;
        filling(&mut self.buckets[bucket], first).lend(places, add, &mut self.non_finite);
    }

    /// Adds the gradients of embeddings to that of their table, a parameter that
    /// [takes products](Self::takes_products).
    fn add_rows(&mut self, index: usize, tokens: Tensor<B, 1, Int>, gradient: Tensor<B, 2>, range: TokenRange) {
        let (slot, place) = (self.layout.slots()[index], self.next_place(index));
        self.multiplied[index] = true;
        let bucket = filling(&mut self.buckets[slot.bucket], index);
        if place.is_first {
            // Rows of tokens that do not come are not written.
            bucket.clear(slot.offset, slot.len);
        }
        bucket.add_rows(slot.offset, tokens, gradient, range);
    }

    /// Whether parts of a parameter's gradient may come before the graph has summed them: not those of a single number,
    /// which looks like the zero that the graph gets in their place.
    fn takes_products(&self, index: usize) -> bool {
        self.layout.slots()[index].len > 1
    }

    /// Where a parameter's next gradient of this step goes.
    fn next_place(&mut self, index: usize) -> GradientPlace {
        GradientPlace {
            offset: self.layout.slots()[index].offset,
            parameter: index,
            is_first: !std::mem::replace(&mut self.received[index], true),
        }
    }

    /// Counts a parameter whose gradient of the pass at hand has come; with the last of the step, launches what is
    /// full.
    fn complete(&mut self, index: usize) {
        let bucket = self.layout.slots()[index].bucket;
        if !self.is_last_micro_batch || std::mem::replace(&mut self.completed[index], true) {
            return;
        }
        self.missing[bucket] -= 1;
        if !self.reduction.overlaps {
            return;
        }
        while self.launched < self.layout.num_early() && self.missing[self.launched] == 0 {
            self.launch_next();
        }
    }

    /// Notes which gradients of a bucket that were added up of products are not finite: nothing has looked at these.
    fn note_products(&mut self, bucket: usize) {
        let slots = self.layout.slots().iter().enumerate();
        let multiplied = slots.filter(|(index, slot)| slot.bucket == bucket && self.multiplied[*index]);
        let (parameters, ranges): (Vec<usize>, Vec<_>) = multiplied.map(|(index, slot)| (index, slot.range())).unzip();
        if let Some(&first) = parameters.first() {
            filling(&mut self.buckets[bucket], first).note(parameters, ranges, &mut self.non_finite);
        }
    }

    fn launch_next(&mut self) {
        let number = self.launched;
        self.note_products(number);
        let Bucket::Filling(buffer) = std::mem::replace(&mut self.buckets[number], Bucket::Away) else {
            unreachable!("a bucket is launched once");
        };
        let group = self.reduction.group.labelled(&format!("bucket {number}"));
        self.buckets[number] = Bucket::Reducing(if self.reduction.is_sharded {
            buffer.reduce_scatter_start(self.reduction.op, &group)
        } else {
            buffer.all_reduce_start(self.reduction.op, &group)
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

/// The bucket of a parameter whose gradient has come.
fn filling<B: Backend>(bucket: &mut Bucket<B>, index: usize) -> &mut FlatBuffer<B> {
    match bucket {
        Bucket::Filling(buffer) => buffer,
        _ => panic!(
            "a gradient of parameter {index} came after its bucket was reduced: a hooked module serves one forward \
             pass only, and a parameter that several segments of a stage use must be declared as reused"
        ),
    }
}

impl<B: Backend> std::fmt::Debug for State<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reducer")
            .field("buckets", &self.layout.lengths())
            .field("dtype", &self.dtype)
            .field("reduction", &self.reduction)
            .field("launched", &self.launched)
            .finish()
    }
}
