//! `Reducer`: adds gradients to their buckets as they come, and reduces each bucket once it is full: in the last
//! micro-batch or, where each rank keeps its shards only, in every one.
//!
//! Fed by the hooks during the backward pass, drained by
//! [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) after it.

mod state;

use std::collections::HashMap;
use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Device, FloatDType, Int, Tensor};
use cubecl_kernels::accumulate::vectors::VectorSink;
use cubecl_kernels::accumulate::{GradientSums, VectorSums};
use cubecl_kernels::embedding::TokenRange;
use cubecl_kernels::linear::destination::WeightSink;
use cubecl_kernels::linear::multiplies_in_library;
use parking_lot::Mutex;

use super::bucket::BucketLayout;
use super::flat::{FlatBuffer, NonFinite, main_type};
use crate::autodiff::GradientSink;
use crate::collectives::{CollectiveError, ProcessGroup, ReduceOp, has_device_memory, unwrap_or_unwind};
use crate::data_parallel::progress::{Progress, Stated};
use crate::data_parallel::sharding_strategy::ShardingStrategy;
use crate::device_memory::allocate_exactly;
use state::{Bucket, State};

/// The buckets of a module's gradients. Shared by the wrapper and by the backward steps of one forward pass.
///
/// Calls are started under the lock, which their order needs. The time that the host takes for one holds up no other
/// thread: a rank's passes, its wrapper and its optimizer run on one.
#[derive(Debug)]
pub(in crate::data_parallel) struct Reducer {
    state: Mutex<State>,
}

/// How buckets are reduced.
#[derive(Clone, Debug)]
pub(in crate::data_parallel) struct Reduction {
    /// Those that share out what is sharded.
    pub(in crate::data_parallel) group: ProcessGroup,
    /// All data-parallel ranks.
    pub(in crate::data_parallel) data_group: ProcessGroup,
    pub(in crate::data_parallel) op: ReduceOp,
    pub(in crate::data_parallel) sharding: ShardingStrategy,
    /// `true` if a bucket is reduced as soon as it is full, during the backward pass. Where each rank keeps its shards
    /// only, whether the backward pass continues meanwhile: buckets are reduced during it in any case.
    pub(in crate::data_parallel) overlaps: bool,
}

/// A step's gradients, reduced.
pub(in crate::data_parallel) struct Reduced {
    pub(in crate::data_parallel) buckets: Vec<FlatBuffer>,
    /// By parameter: whether some data-parallel rank has received a gradient of it.
    pub(in crate::data_parallel) present: Vec<bool>,
    /// True if all data-parallel ranks have made the same steps and updates, and state the same.
    pub(in crate::data_parallel) is_in_step: bool,
    /// The parameters that received a gradient on this rank, before any reduction, that is not finite.
    pub(in crate::data_parallel) non_finite: NonFinite,
}

impl Reducer {
    /// Returns empty buckets, allocated once and used in every step. Collective over the group.
    ///
    /// # Errors
    /// When the ranks do not allocate the same.
    pub(in crate::data_parallel) fn new(
        layout: BucketLayout,
        dtype: DType,
        device: &Device,
        reduction: Reduction,
    ) -> Result<Self, CollectiveError> {
        let num_buckets = layout.lengths().len();
        let keeps_shards = reduction.sharding.shards_gradients();
        if has_device_memory(device) && !keeps_shards {
            let lengths = (0..layout.lengths().len()).map(|bucket| layout.padded_length(bucket));
            allocate_exactly(lengths, main_type(dtype), device);
        }
        let buckets = (0..num_buckets)
            .map(|bucket| {
                if keeps_shards {
                    return Ok(Bucket::Empty);
                }
                let length = layout.padded_length(bucket);
                FlatBuffer::allocate(length, dtype, &reduction.group, device).map(Bucket::Filling)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            state: Mutex::new(State {
                non_finite: NonFinite::none(layout.slots().len()),
                received: vec![false; layout.slots().len()],
                written: vec![false; layout.slots().len()],
                multiplied: vec![false; layout.slots().len()],
                completed: vec![false; layout.slots().len()],
                missing: layout.parameters_per_bucket(),
                layout,
                dtype,
                device: device.clone(),
                reduction,
                buckets,
                shards: (0..num_buckets).map(|_| None).collect(),
                reused: HashMap::new(),
                is_last_micro_batch: false,
                launched: 0,
                folded: 0,
                presence: None,
            }),
        })
    }

    /// Returns whether the buckets are laid out like this.
    pub(in crate::data_parallel) fn is_for(&self, layout: &BucketLayout, dtype: DType, device: &Device) -> bool {
        let state = self.state.lock();
        (&state.layout, state.dtype, &state.device) == (layout, dtype, device)
    }

    /// The slots and shards, and what the ranks share out.
    pub(in crate::data_parallel) fn layout(&self) -> (BucketLayout, ShardingStrategy) {
        let state = self.state.lock();
        (state.layout.clone(), state.reduction.sharding)
    }

    /// Forgets what the step has accumulated; the buckets are kept for the parameters that come instead.
    ///
    /// Buckets on their way are waited for. Those that are out with the last step's gradients come back with them.
    ///
    /// # Errors
    /// When a reduction failed.
    pub(in crate::data_parallel) fn forget_step(&self) -> Result<(), CollectiveError> {
        let mut state = self.state.lock();
        if let Some(presence) = state.presence.take() {
            presence.wait()?;
        }
        if state.keeps_shards() {
            state.fold(0)?;
            state.buckets.fill_with(|| Bucket::Empty);
            state.begin_step();
            return Ok(());
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
    pub(in crate::data_parallel) fn expect_last_micro_batch(&self, is_last: bool) {
        self.state.lock().is_last_micro_batch = is_last;
    }

    /// Ends a backward pass. Where each rank keeps its shards only, launches what has not been launched of it.
    ///
    /// # Panics
    /// When a reduction failed, with that error.
    pub(in crate::data_parallel) fn end_pass(&self) {
        let mut state = self.state.lock();
        state.add_reused();
        if state.keeps_shards() {
            unwrap_or_unwind(state.reduce_pass());
        }
    }

    /// Returns whether the step's buckets have been launched and not yet been given back.
    pub(in crate::data_parallel) fn is_launched(&self) -> bool {
        let state = self.state.lock();
        if state.keeps_shards() {
            // Those of its passes have.
            state.presence.is_some()
        } else {
            state.launched > 0
        }
    }

    /// Launches what has not been launched, zero-filling parameters without a gradient. `progress` and what is `stated`
    /// are compared with those of the other ranks, in a call that is made anyway.
    pub(in crate::data_parallel) fn launch_rest(&self, progress: Progress, stated: Stated) {
        let mut state = self.state.lock();
        if state.keeps_shards() {
            // Every rank has had the same passes.
            if state.shards.iter().any(Option::is_none) {
                unwrap_or_unwind(state.reduce_pass());
            }
        } else {
            state.add_reused();
            state.clear_missing();
            while state.launched < state.buckets.len() {
                state.launch_next();
            }
        }
        if state.presence.is_none() {
            let received = state.received.iter().map(|&received| i32::from(received));
            let received = received.chain(progress.to_maxima(stated)).collect();
            let group = state.reduction.data_group.labelled("which parameters have gradients");
            state.presence = Some(group.all_reduce_start(received, ReduceOp::Max));
        }
    }

    /// Waits for all buckets, launching those that have not been.
    ///
    /// # Errors
    /// When a reduction failed.
    pub(in crate::data_parallel) fn finish(
        &self,
        progress: Progress,
        stated: Stated,
    ) -> Result<Reduced, CollectiveError> {
        self.launch_rest(progress, stated);
        let mut state = self.state.lock();
        let presence = state.presence.take();
        // Wait for every one before the first error is returned: none may be left running.
        let buckets = if state.keeps_shards() {
            state.take_shards()
        } else {
            state.take_buckets()
        };
        let maxima = presence.expect("launched with the rest").wait();
        let buckets = buckets?;
        let maxima = maxima?;
        let (present, progress) = maxima.split_at(maxima.len() - Progress::NUM_MAXIMA);
        Ok(Reduced {
            buckets,
            present: present.iter().map(|&received| received > 0).collect(),
            is_in_step: Progress::is_equal(progress),
            non_finite: state.take_non_finite(),
        })
    }

    /// Takes the buckets back for the next step, except those that are [given back](Self::give_back) by others. Shards
    /// are freed: those of the next step come with its passes.
    pub(in crate::data_parallel) fn restart(&self, buckets: Vec<Option<FlatBuffer>>) {
        let mut state = self.state.lock();
        if state.keeps_shards() {
            state.begin_step();
            return;
        }
        for (number, buffer) in buckets.into_iter().enumerate() {
            if let Some(buffer) = buffer {
                state.take_back(number, buffer);
            }
        }
        state.begin_step();
    }

    /// Takes a bucket back for the next step, which may have begun, but not come to its gradients.
    pub(in crate::data_parallel) fn give_back(&self, number: usize, buffer: FlatBuffer) {
        self.state.lock().take_back(number, buffer);
    }
}

impl GradientSink for Reducer {
    fn receive(&self, index: usize, gradient: DispatchTensor) {
        let gradient = Tensor::<1>::from_dispatch(gradient);
        let mut state = self.state.lock();
        let slot = state.layout.slots()[index];
        let length = gradient.shape().num_elements();
        if state.written[index] && length == 1 && slot.len > 1 {
            // The zero that stands for what was added already.
            state.complete(index);
            return;
        }
        assert_eq!(
            length, slot.len,
            "a gradient of {length} elements for parameter {index} of {}",
            slot.len
        );
        let gradient = gradient.reshape([length]);
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

    fn product_sink(self: Arc<Self>, index: usize) -> Option<Arc<dyn WeightSink>> {
        let is_taken = {
            let state = self.state.lock();
            state.takes_products(index) && multiplies_in_library(&state.device)
        };
        is_taken.then(|| Arc::new(ProductSink { reducer: self, index }) as Arc<dyn WeightSink>)
    }

    fn vector_sink(self: Arc<Self>, index: usize) -> Option<Arc<dyn VectorSink>> {
        let is_taken = self.state.lock().takes_products(index);
        is_taken.then_some(self as Arc<dyn VectorSink>)
    }
}

impl VectorSink for Reducer {
    fn lends(&self, parameters: &[usize]) -> bool {
        let state = self.state.lock();
        let bucket_of = |index: &usize| state.layout.slots()[*index].bucket;
        parameters
            .windows(2)
            .all(|pair| bucket_of(&pair[0]) == bucket_of(&pair[1]))
    }

    fn lend(&self, parameters: &[usize], add: &mut dyn FnMut(VectorSums) -> GradientSums) {
        self.state.lock().lend(parameters, add);
    }
}

/// Adds products, and rows of embeddings, to a parameter's gradient.
#[derive(Debug)]
struct ProductSink {
    reducer: Arc<Reducer>,
    index: usize,
}

impl WeightSink for ProductSink {
    fn add_product(&self, a: Tensor<2>, b: Tensor<2>) {
        self.reducer.state.lock().add_product(self.index, a, b);
    }

    fn add_rows(&self, tokens: Tensor<1, Int>, gradient: Tensor<2>, range: TokenRange) {
        self.reducer.state.lock().add_rows(self.index, tokens, gradient, range);
    }
}
