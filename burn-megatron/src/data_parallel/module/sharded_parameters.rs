//! A wrapped module of which each data-parallel rank keeps its shards of the parameters only: stage 3 of ZeRO.
//!
//! The module has a parameter as one whose value is made when it is first read: that gathers its bucket. A pass runs
//! on a clone of the module, with which its values go; a model that runs in segments has a clone for each.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;

use super::replace::{read_parameters, shard_parameters};
use super::wrapper::DistributedDataParallel;
use crate::collectives::CollectiveError;
use crate::data_parallel::buckets::flat::part;
use crate::data_parallel::error::DataParallelError;
use crate::data_parallel::replicas::undrawn::Undrawn;
use crate::data_parallel::shards::owned_values::OwnedValues;
use crate::data_parallel::shards::parameter_offload::ShardStore;
use crate::data_parallel::shards::parameter_shards::ParameterShards;
use crate::offload::OffloadError;

impl<M: Module> DistributedDataParallel<M> {
    /// Takes this rank's shards of the parameters, which all ranks have, and leaves the rest; draws its shards of those
    /// that no rank has.
    pub(in crate::data_parallel) fn shard_parameters(&mut self, undrawn: &Undrawn) -> Result<(), DataParallelError> {
        let binding = &self.binding;
        let layout = &binding.layout;
        let lengths = (0..layout.lengths().len()).map(|bucket| layout.shard_length(bucket));
        let (rank, dtype, device) = (self.context.rank(), binding.dtype, self.inner_device());
        let store = ShardStore::new(&self.offload_parameters, rank, lengths.collect(), dtype, &device)?;
        let values = read_parameters(self.module_in_flight(), binding, undrawn);
        let shards = ParameterShards::new(
            binding.layout.clone(),
            |number, owned| match &values[number] {
                Some(value) => part(value.clone(), owned),
                None => {
                    let drawn = undrawn.draw(binding.entries[number].id, owned, dtype, &device);
                    drawn.expect("what has no value is undrawn")
                }
            },
            store,
            self.context.shard_group().clone(),
            dtype,
            &device,
            self.options.gathers_ahead,
        )?;
        self.binding.shards = Some(Arc::new(shards));
        self.release_parameters()
    }

    /// Frees the parameters that have been gathered, and where the module itself has got values forgets these.
    pub(in crate::data_parallel) fn release_parameters(&mut self) -> Result<(), DataParallelError> {
        if let Some(shards) = &self.binding.shards {
            shards.free()?;
        }
        match self.forget_values() {
            Some(name) => Err(DataParallelError::TransformedParameter { name }),
            None => Ok(()),
        }
    }

    /// Makes the sharded parameters ones that are gathered when they are read next, whatever a clone has made of them:
    /// burn's clones share values that come late. Returns the path of one that burn transforms, if there is one.
    fn forget_values(&mut self) -> Option<String> {
        let shards = self.binding.shards.clone()?;
        let (module, transformed) = shard_parameters(self.module.take()?, &self.binding, &shards);
        self.module = Some(module);
        transformed
    }

    /// Ends a pass: what it has gathered is freed, and the next expects its order.
    pub(in crate::data_parallel) fn end_gathering(&self) -> Result<(), CollectiveError> {
        match &self.binding.shards {
            Some(shards) => shards.end_pass(),
            None => Ok(()),
        }
    }

    /// Frees what has been gathered outside a pass; the next pass is expected to be as the last one.
    pub(crate) fn free_gathered(&self) -> Result<(), CollectiveError> {
        match &self.binding.shards {
            Some(shards) => shards.free(),
            None => Ok(()),
        }
    }

    /// Returns this rank's elements of the trained parameters, which its optimizer updates.
    pub(crate) fn owned_values(&self) -> OwnedValues {
        if let Some(shards) = &self.binding.shards {
            return OwnedValues::Sharded(shards.clone());
        }
        let values = read_parameters(self.module(), &self.binding, &Undrawn::default());
        let pieces = values.into_iter().zip(self.trained()).map(|(value, entry)| {
            let owned = self.owned(entry);
            value.filter(|_| !owned.is_empty()).map(|value| part(value, owned))
        });
        OwnedValues::Held(pieces.collect())
    }

    /// Replaces this rank's elements of some of a bucket's parameters, by number.
    ///
    /// # Errors
    /// When they are in a file that cannot be read or written.
    ///
    /// # Panics
    /// When each rank has all parameters.
    pub(crate) fn replace_pieces(
        &mut self,
        bucket: usize,
        pieces: Vec<(usize, Tensor<1>)>,
    ) -> Result<(), OffloadError> {
        let shards = self.binding.shards.as_ref().expect("parameters are sharded");
        shards.replace(bucket, pieces)
    }

    /// Ends an update, in which [`replace_pieces`](Self::replace_pieces) may have changed shards that are in a file.
    ///
    /// # Errors
    /// When one cannot be written.
    pub(crate) fn end_update(&mut self) -> Result<(), OffloadError> {
        // Refused when the module was wrapped, if there is one.
        let _transformed = self.forget_values();
        match &self.binding.shards {
            Some(shards) => shards.expect_pass(),
            None => Ok(()),
        }
    }

    /// Returns whether each rank keeps its shards of the parameters only.
    pub(crate) fn has_sharded_parameters(&self) -> bool {
        self.binding.shards.is_some()
    }
}
