//! The update of a module by a [`ShardedOptimizer`](super::ShardedOptimizer): bucket by bucket, whatever is sharded.

use std::collections::HashMap;

use burn::module::Module;
use burn::optim::{LearningRate, Optimizer};
use burn::tensor::{DType, Device, Tensor};

use super::ShardedOptimizer;
use crate::collectives::has_device_memory;
use crate::data_parallel::{
    BucketForm, DistributedDataParallel, ElementWise, GradientEntry, PendingParameters, ReducedGradients,
};
use crate::device_memory::{allocate_exactly, give_back};
use crate::optimizer::OptimizerError;
use crate::optimizer::bucket_state::BucketState;
use crate::optimizer::directions::DirectionMaker;
use crate::optimizer::factored_update::FactoredUpdate;
use crate::optimizer::piece::Update;
use crate::precision::is_half;

/// The new values of a bucket's pieces, in the module's type.
pub(in crate::optimizer) type Fresh<'a> = Vec<(&'a GradientEntry, Tensor<1>)>;

impl<O: Optimizer> ShardedOptimizer<O> {
    pub(super) fn update<M>(
        &mut self,
        module: &mut DistributedDataParallel<M>,
        mut update: Update,
    ) -> Result<(), OptimizerError>
    where
        M: Module,
        O: ElementWise,
    {
        if self.offload.is_some() {
            return self.step_offloaded(module, update);
        }
        if let Some(form) = self.bucket_form(update.dtype, &update.device) {
            return self.step_buckets(form, module, update);
        }
        self.spread();
        let maker = DirectionMaker {
            pieces: &mut self.pieces,
            optimizers: &self.optimizers,
            entries: module.trained(),
            context: module.context(),
        };
        update.directions = maker.directions(&update)?;
        self.add_factored_directions(module, &mut update)?;
        if !update.gradients.is_sharded() {
            self.step_whole(module, update)
        } else {
            self.step_sharded(module, update)
        }
    }

    /// Adds the directions of an optimizer whose second moment is in factors.
    fn add_factored_directions<M>(
        &mut self,
        module: &DistributedDataParallel<M>,
        update: &mut Update,
    ) -> Result<(), OptimizerError>
    where
        M: Module,
        O: ElementWise,
    {
        if self
            .optimizers
            .iter()
            .all(|optimizer| optimizer.factored_form().is_none())
        {
            return Ok(());
        }
        let factored = FactoredUpdate {
            pieces: &mut self.pieces,
            optimizers: &self.optimizers,
            entries: module.trained(),
            context: module.context(),
        };
        let directions = factored.directions(update)?;
        update.directions.extend(directions);
        // Values are read once more, from their beginning.
        Ok(update.values.expect(&in_forward_order(update).collect::<Vec<_>>())?)
    }

    /// Begins an update of the module: looks at its parameters, and clips the gradients.
    pub(super) fn begin<M>(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<M>,
        mut gradients: ReducedGradients,
    ) -> Result<Update, OptimizerError>
    where
        M: Module,
    {
        module.wait_for_parameters()?;
        if self.records_loaded == module.records_loaded() {
            self.check_parameters(module)?
        } else {
            self.take_parameters(module)?
        }
        let clipping_of = |entry: &GradientEntry| self.clippings[self.pieces[entry.number].group].as_ref();
        gradients.clip_each_by(clipping_of, module.context())?;
        module.count_step(learning_rate);
        let update = Update {
            learning_rate,
            dtype: module.dtype(),
            device: module.inner_device(),
            values: module.owned_values(),
            gradients,
            directions: HashMap::new(),
        };
        update.values.expect(&in_forward_order(&update).collect::<Vec<_>>())?;
        Ok(update)
    }

    /// Returns how whole buckets are updated at once: on devices, where there are main values.
    ///
    /// Other parameters are the module's own, which an update by the caller replaces one by one.
    fn bucket_form(&self, dtype: DType, device: &Device) -> Option<BucketForm<O>>
    where
        O: ElementWise,
    {
        let mut forms = self.optimizers.iter().map(ElementWise::bucket_form);
        let first = forms
            .next()
            .flatten()
            .filter(|_| has_device_memory(device) && is_half(dtype))?;
        forms.all(|form| form.is_some()).then_some(first)
    }

    /// Each bucket is updated at once; where gradients are sharded, its parameters are gathered then.
    pub(super) fn step_buckets<M>(
        &mut self,
        form: BucketForm<O>,
        module: &mut DistributedDataParallel<M>,
        mut update: Update,
    ) -> Result<(), OptimizerError>
    where
        M: Module,
        O: ElementWise,
    {
        // Main values are what is updated.
        update.values.clear();
        let entries = module.trained().to_vec();
        let is_first = self.buckets.is_empty();
        for bucket in in_forward_order(&update) {
            let values = self.update_bucket(form, bucket, &entries, &update);
            if module.has_sharded_parameters() {
                let of_bucket = entries.iter().filter(|entry| entry.bucket() == bucket);
                let pieces = of_bucket
                    .filter(|entry| update.gradients.is_present(entry) && !update.gradients.owned(entry).is_empty());
                let pieces = pieces.map(|entry| (entry.number, update.gradients.of_own_part(&values, entry)));
                module.replace_pieces(bucket, pieces.collect())?;
                continue;
            }
            if update.gradients.is_sharded() {
                let pending = update.gradients.gather_shard_start(bucket, values);
                self.deliver(pending, module, &update)?;
                continue;
            }
            module.replace(|number| {
                let entry = &entries[number];
                let is_moving = entry.bucket() == bucket && update.gradients.is_present(entry);
                is_moving.then(|| update.gradients.of_bucket(&values, entry))
            })?;
        }
        if is_first {
            give_back(&update.device);
        }
        Ok(())
    }

    /// Updates a bucket's parameters, and returns the new values of this rank's part of it.
    fn update_bucket(
        &mut self,
        form: BucketForm<O>,
        bucket: usize,
        entries: &[GradientEntry],
        update: &Update,
    ) -> Tensor<1>
    where
        O: ElementWise,
    {
        let state = self.buckets.remove(&bucket).unwrap_or_else(|| {
            let pieces = self.pieces.iter_mut().filter(|piece| piece.bucket == bucket);
            let length = update.gradients.own_length(bucket);
            make_room(
                [length, update.gradients.padded_length(bucket)],
                update.dtype,
                &update.device,
            );
            BucketState::of_pieces(form, pieces, length, &update.device)
        });
        let moving = entries.iter().filter(|entry| entry.bucket() == bucket);
        let moving = moving.filter(|entry| update.gradients.is_present(entry));
        let numbers: Vec<usize> = moving.map(|entry| entry.number).collect();
        for &number in &numbers {
            self.pieces[number].steps += 1;
        }
        let pieces = numbers.iter().map(|&number| &self.pieces[number]);
        let (state, values) = state.update(&self.optimizers, pieces, bucket, update);
        self.buckets.insert(bucket, state);
        values
    }

    /// Gives the module a bucket's parameters, which are waited for when they are read, or now.
    fn deliver<M>(
        &self,
        pending: PendingParameters,
        module: &mut DistributedDataParallel<M>,
        update: &Update,
    ) -> Result<(), OptimizerError>
    where
        M: Module,
    {
        module.expect_parameters(update.gradients.in_flight(pending, &update.device))?;
        if !self.overlap_param_gather {
            module.wait_for_parameters()?;
        }
        Ok(())
    }

    /// Each parameter is updated and put into the module in turn, so that old and new are never all there at once.
    fn step_whole<M>(
        &mut self,
        module: &mut DistributedDataParallel<M>,
        mut update: Update,
    ) -> Result<(), OptimizerError>
    where
        M: Module,
    {
        let entries = module.trained().to_vec();
        let Self { optimizers, pieces, .. } = self;
        module.replace(|number| {
            let entry = &entries[number];
            let is_present = update.gradients.is_present(entry);
            let piece = &mut pieces[number];
            piece.steps += u64::from(is_present);
            let updated = is_present.then(|| piece.update(&optimizers[piece.group], entry, &mut update));
            updated.map(|value| value.expect("old values are held where each rank has all parameters"))
        })?;
        Ok(())
    }

    /// This rank's pieces are updated bucket by bucket, and each bucket's parameters gathered.
    fn step_sharded<M>(
        &mut self,
        module: &mut DistributedDataParallel<M>,
        mut update: Update,
    ) -> Result<(), OptimizerError>
    where
        M: Module,
    {
        let entries = module.trained().to_vec();
        for bucket in in_forward_order(&update) {
            let mut fresh = Vec::new();
            for entry in entries.iter().filter(|entry| entry.bucket() == bucket) {
                let piece = &mut self.pieces[entry.number];
                let is_present = update.gradients.is_present(entry);
                piece.steps += u64::from(is_present);
                if is_present && !piece.range.is_empty() {
                    let value = piece.update(&self.optimizers[piece.group], entry, &mut update)?;
                    fresh.push((entry, value));
                }
                // Nothing needs the old value any more.
                update.values.forget(entry.number);
            }
            self.give(module, bucket, fresh, &mut update)?;
        }
        Ok(())
    }

    /// Gives the module the new values of a bucket's pieces.
    pub(in crate::optimizer) fn give<M>(
        &self,
        module: &mut DistributedDataParallel<M>,
        bucket: usize,
        fresh: Fresh<'_>,
        update: &mut Update,
    ) -> Result<(), OptimizerError>
    where
        M: Module,
    {
        let by_number = |(entry, value): (&GradientEntry, Tensor<1>)| (entry.number, value);
        if module.has_sharded_parameters() {
            return Ok(module.replace_pieces(bucket, fresh.into_iter().map(by_number).collect())?);
        }
        if !update.gradients.is_sharded() {
            let mut fresh: HashMap<usize, Tensor<1>> = fresh.into_iter().map(by_number).collect();
            return Ok(module.replace(|number| fresh.remove(&number))?);
        }
        let (dtype, device) = (update.dtype, &update.device);
        let pending = update.gradients.gather_parameters_start(bucket, fresh, dtype, device);
        self.deliver(pending, module, update)
    }
}

/// The buckets, those whose parameters a forward pass reads first before the others: in the order of their numbers they
/// are reduced, from the output of the model to its input.
pub(in crate::optimizer) fn in_forward_order(update: &Update) -> impl Iterator<Item = usize> + use<> {
    (0..update.gradients.num_buckets()).rev()
}

/// Makes room for a bucket's state and its gathered parameters, which stay: gives back the memory of the first step's
/// activations, and of what the buckets before it were made of.
fn make_room([state, parameters]: [usize; 2], dtype: DType, device: &Device) {
    give_back(device);
    allocate_exactly([state], DType::F32, device);
    allocate_exactly([state, parameters], dtype, device);
}
