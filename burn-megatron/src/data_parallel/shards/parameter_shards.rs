//! `ParameterShards`: this rank's shards of the parameters, and the buckets of them that are whole now: stage 3
//! of ZeRO.
//!
//! A layer's parameters are one bucket, or several where there are many. A bucket is gathered when one of its
//! parameters is read, and freed when one of another bucket is. The first pass learns the order of the buckets, and
//! later passes start to gather each one bucket ahead, so that two at most are whole. All ranks run the same layers in
//! the same order, so they make the same calls.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};
use cubecl_kernels::linear::retained::WeightSource;
use parking_lot::{Mutex, MutexGuard};

use super::parameter_gather::laid_out;
use super::parameter_offload::ShardStore;
use crate::collectives::{self, CollectiveError, PendingTensor, ProcessGroup, TensorCall, unwrap_or_unwind};
use crate::data_parallel::buckets::bucket::BucketLayout;
use crate::data_parallel::buckets::flat::part;
use crate::offload::OffloadError;

/// What this rank has of the parameters of all buckets.
pub(crate) struct ParameterShards {
    layout: BucketLayout,
    group: ProcessGroup,
    dtype: DType,
    device: Device,
    /// `true` if a bucket is gathered while the one before it is in use.
    gathers_ahead: bool,
    state: Mutex<State>,
}

struct State {
    shards: ShardStore,
    /// The bucket in use.
    whole: Option<(usize, Tensor<1>)>,
    /// The bucket that is expected next.
    coming: Option<(usize, PendingTensor)>,
    /// The buckets that this pass has used.
    used: Vec<usize>,
    /// Those of the pass before.
    order: Vec<usize>,
    /// `true` if this pass is like that one so far.
    is_as_before: bool,
}

impl ParameterShards {
    /// Takes this rank's shards of the parameters into an empty store. `values` gives a range of one's elements, by its
    /// number.
    ///
    /// # Errors
    /// When a shard cannot be written to its file.
    pub(in crate::data_parallel) fn new(
        layout: BucketLayout,
        values: impl Fn(usize, Range<usize>) -> Tensor<1>,
        store: ShardStore,
        group: ProcessGroup,
        dtype: DType,
        device: &Device,
        gathers_ahead: bool,
    ) -> Result<Self, OffloadError> {
        let shards = Self {
            state: Mutex::new(State {
                shards: store,
                whole: None,
                coming: None,
                used: Vec::new(),
                order: Vec::new(),
                is_as_before: true,
            }),
            layout,
            group,
            dtype,
            device: device.clone(),
            gathers_ahead,
        };
        let mut numbers = vec![Vec::new(); shards.layout.lengths().len()];
        for (number, slot) in shards.layout.slots().iter().enumerate() {
            if !shards.owned(number).is_empty() {
                numbers[slot.bucket].push(number);
            }
        }
        // A bucket's at a time.
        for (bucket, numbers) in numbers.into_iter().enumerate() {
            let pieces = numbers
                .into_iter()
                .map(|number| (shards.place(number), values(number, shards.owned(number))));
            let shard = shards.laid_out(bucket, pieces.collect());
            // In memory of its own, where it is a part of a parameter.
            let shard = Tensor::from_data(shard.into_data(), (&shards.device, dtype));
            shards.state.lock().shards.put(bucket, shard)?;
        }
        Ok(shards)
    }

    /// Returns a parameter, `[len]`; gathers its bucket, unless that is whole.
    ///
    /// # Errors
    /// When the collective failed.
    pub(in crate::data_parallel) fn parameter(&self, number: usize) -> Result<Tensor<1>, CollectiveError> {
        let slot = self.layout.slots()[number];
        let bucket = self.bucket(slot.bucket)?;
        Ok(part(bucket, slot.range()))
    }

    /// Returns this rank's elements of a parameter, `[owned]`, if there are any.
    ///
    /// # Errors
    /// When they cannot be read from their file.
    pub(in crate::data_parallel) fn piece(&self, number: usize) -> Result<Option<Tensor<1>>, OffloadError> {
        let (bucket, place) = (self.layout.slots()[number].bucket, self.place(number));
        match self.owned(number).len() {
            0 => Ok(None),
            count => self.state.lock().shards.part(bucket, place..place + count).map(Some),
        }
    }

    /// Expects pieces of these buckets to be asked for, or replaced, in their order.
    ///
    /// # Errors
    /// When an earlier write has failed.
    pub(in crate::data_parallel) fn expect(&self, buckets: &[usize]) -> Result<(), OffloadError> {
        self.state.lock().shards.expect(buckets)
    }

    /// Expects a pass as the one before it.
    ///
    /// # Errors
    /// When an earlier write has failed.
    pub(in crate::data_parallel) fn expect_pass(&self) -> Result<(), OffloadError> {
        self.state.lock().expect_pass()
    }

    /// Replaces this rank's elements of some of a bucket's parameters, by number.
    ///
    /// # Errors
    /// When the others cannot be read from their file, or the shard not be written.
    pub(in crate::data_parallel) fn replace(
        &self,
        bucket: usize,
        mut pieces: Vec<(usize, Tensor<1>)>,
    ) -> Result<(), OffloadError> {
        for number in 0..self.layout.slots().len() {
            let stays = pieces.iter().all(|(replaced, _)| *replaced != number);
            if self.layout.slots()[number].bucket == bucket && stays {
                pieces.extend(self.piece(number)?.map(|piece| (number, piece)));
            }
        }
        let placed = pieces.into_iter().map(|(number, piece)| (self.place(number), piece));
        let shard = self.laid_out(bucket, placed.collect());
        self.state.lock().shards.put(bucket, shard)
    }

    /// Frees what is whole at the end of a pass, whose order is that of the next one.
    ///
    /// # Errors
    /// When a collective failed.
    pub(in crate::data_parallel) fn end_pass(&self) -> Result<(), CollectiveError> {
        let mut state = self.state.lock();
        state.order = std::mem::take(&mut state.used);
        self.free_in(state)
    }

    /// Frees what is whole, such as after an update.
    ///
    /// # Errors
    /// When a collective failed.
    pub(in crate::data_parallel) fn free(&self) -> Result<(), CollectiveError> {
        let state = self.state.lock();
        // What is expected next is being read already.
        if state.is_free() { Ok(()) } else { self.free_in(state) }
    }

    fn free_in(&self, mut state: MutexGuard<'_, State>) -> Result<(), CollectiveError> {
        state.free()?;
        let first = state.order.first().copied().unwrap_or(0);
        state.expect_pass().map_err(|error| self.no_input(first, &error))
    }

    fn laid_out(&self, bucket: usize, pieces: Vec<(usize, Tensor<1>)>) -> Tensor<1> {
        laid_out(pieces, self.layout.shard_length(bucket), self.dtype, &self.device)
    }

    fn owned(&self, number: usize) -> Range<usize> {
        self.layout.piece(number, self.group.rank())
    }

    /// Returns where in this rank's shard its elements of a parameter begin.
    fn place(&self, number: usize) -> usize {
        let slot = self.layout.slots()[number];
        let shard = self.group.rank() * self.layout.shard_length(slot.bucket);
        (slot.offset + self.owned(number).start).saturating_sub(shard)
    }

    fn bucket(&self, number: usize) -> Result<Tensor<1>, CollectiveError> {
        let mut state = self.state.lock();
        if let Some((_, whole)) = state.whole.as_ref().filter(|(whole, _)| *whole == number) {
            return Ok(whole.clone());
        }
        // Freed before another comes.
        state.whole = None;
        let pending = match state.coming.take() {
            Some((coming, pending)) if coming == number => pending,
            other => {
                if let Some((_, unused)) = other {
                    unused.wait()?;
                }
                self.start(&mut state, number)?
            }
        };
        let whole: Tensor<1> = pending.tensor()?;
        state.whole = Some((number, whole.clone()));
        if let Some(next) = state.after(number).filter(|_| self.gathers_ahead) {
            state.coming = Some((next, self.start(&mut state, next)?));
        }
        Ok(whole)
    }

    fn start(&self, state: &mut State, number: usize) -> Result<PendingTensor, CollectiveError> {
        let shard = state
            .shards
            .shard(number)
            .map_err(|error| self.no_input(number, &error))?;
        let group = self.group.labelled(&format!("parameters of bucket {number}"));
        Ok(collectives::start(shard, TensorCall::AllGather, &group))
    }

    /// A gather to which this rank cannot add its shard.
    fn no_input(&self, bucket: usize, error: &OffloadError) -> CollectiveError {
        CollectiveError::NoInput {
            group: self.group.name().to_owned(),
            call: format!("all_gather of the parameters of bucket {bucket}"),
            why: error.to_string(),
        }
    }
}

impl State {
    /// Notes the use of a bucket, and returns the one that the pass before used after it.
    fn after(&mut self, number: usize) -> Option<usize> {
        self.is_as_before &= self.order.get(self.used.len()) == Some(&number);
        self.used.push(number);
        let next = self.order.get(self.used.len()).copied();
        next.filter(|_| self.is_as_before)
    }

    /// Returns whether nothing is gathered, and nothing was in this pass.
    fn is_free(&self) -> bool {
        self.whole.is_none() && self.coming.is_none() && self.used.is_empty()
    }

    fn expect_pass(&mut self) -> Result<(), OffloadError> {
        let Self { shards, order, .. } = self;
        shards.expect(order)
    }

    fn free(&mut self) -> Result<(), CollectiveError> {
        self.used.clear();
        self.is_as_before = true;
        self.whole = None;
        match self.coming.take() {
            // The other ranks need this one for it.
            Some((_, unused)) => unused.wait().map(drop),
            None => Ok(()),
        }
    }
}

/// A matrix that a graph gets from the shards for its backward pass.
pub(in crate::data_parallel) struct ShardedWeight {
    pub(in crate::data_parallel) shards: Arc<ParameterShards>,
    pub(in crate::data_parallel) number: usize,
    pub(in crate::data_parallel) dims: [usize; 2],
}

impl WeightSource for ShardedWeight {
    fn fetch(&self) -> Tensor<2> {
        unwrap_or_unwind(self.shards.parameter(self.number)).reshape(self.dims)
    }
}

impl fmt::Debug for ParameterShards {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ParameterShards")
            .field("buckets", &self.layout.lengths())
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ShardedWeight {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ShardedWeight")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
