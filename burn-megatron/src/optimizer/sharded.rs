//! `ShardedOptimizer`: any element-wise burn optimizer over flat pieces of the parameters, the whole of each or, where
//! gradients are sharded, this data-parallel rank's.
//!
//! Holds main parameters in f32 where the module's are of 16 bits.

use std::collections::HashMap;

use burn::grad_clipping::GradientClipping;
use burn::module::AutodiffModule;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{LearningRate, Optimizer, SimpleOptimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};

use super::bucket_state::BucketState;
use super::error::OptimizerError;
use super::piece::{Piece, Update, main_of};
use crate::autodiff::TrainingBackend;
use crate::collectives::CollectiveBackend;
use crate::data_parallel::{
    BucketForm, DistributedDataParallel, ElementWise, GradientEntry, ModuleOptimizer, PendingParameters,
    ReducedGradients,
};
use crate::device_memory::{allocate_exactly, give_back};

/// Updates the module of a [`DistributedDataParallel`] by any [`ElementWise`] burn optimizer, such as burn's own
/// `Adam`, `AdamW` and `Sgd`, as the `init` of its configuration returns it.
///
/// The optimizer's [gradient clipping](burn::grad_clipping) is done as on one rank, by
/// [`clip_each`](ReducedGradients::clip_each): `Norm` by the norm of each whole parameter. burn's `build` returns an
/// optimizer without its clipping, and is not taken; an optimizer that needs whole matrices, such as burn's `Muon`, is
/// refused when the program is compiled (see [`ElementWise`]).
///
/// Where the wrapper shards gradients
/// ([`DataParallelConfig::shard_gradients`](crate::data_parallel::DataParallelConfig)), this is stage 1 of ZeRO: each
/// data-parallel rank holds the optimizer's state of its shard of every bucket, updates it, and all gather the updated
/// parameters; the result has the bits of the unsharded update. Where parameters are of 16 bits the optimizer holds
/// main parameters in f32, from which the module's are rounded.
///
/// Memory per parameter with AdamW on `d` ranks, in bytes, gradients and the module's parameters included: 16 in f32,
/// and 8 + 8/d sharded; 18 in 16 bits, and 6 + 12/d sharded.
///
/// # Examples
/// ```
/// use burn::backend::Autodiff;
/// use burn::grad_clipping::GradientClippingConfig;
/// use burn::nn::LinearConfig;
/// use burn::optim::AdamConfig;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use burn_megatron::context::ParallelContext;
/// use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
/// use burn_megatron::optimizer::ShardedOptimizer;
///
/// type B = Autodiff<Flex>;
/// let device = Default::default();
/// let context = ParallelContext::single(1);
/// let config = DataParallelConfig::new().with_shard_gradients(true);
/// let mut model = DistributedDataParallel::<B, _>::new(LinearConfig::new(3, 2).init(&device), &context, config)?;
/// let adam = AdamConfig::new().with_grad_clipping(Some(GradientClippingConfig::Norm(1.0)));
/// let mut optimizer = ShardedOptimizer::new(&model, adam.init())?;
///
/// let input = Tensor::<B, 2>::ones([4, 3], &device);
/// model.backward(StepPart::Last, |model| model.forward(input).mean())?;
/// let gradients = model.gradients()?;
/// optimizer.step(1e-3, &mut model, gradients)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Reference
/// Rajbhandari et al. 2020, arXiv:1910.02054, section 5.1 (P_os).
pub struct ShardedOptimizer<B: Backend, O: SimpleOptimizer<B>> {
    optimizers: Vec<O>,
    /// Of each of them.
    clippings: Vec<Option<GradientClipping>>,
    group: GroupOf,
    pieces: Vec<Piece<B, O>>,
    /// By bucket: what is held of its pieces, where one launch updates them.
    buckets: HashMap<usize, BucketState<B, O>>,
    overlap_param_gather: bool,
    /// Records that the module had loaded when main values were last made.
    records_loaded: u32,
}

/// Says which of the optimizers updates a parameter.
type GroupOf = Box<dyn Fn(&GradientEntry) -> usize + Send>;

impl<B: Backend, O: SimpleOptimizer<B>> ShardedOptimizer<B, O> {
    /// Returns an optimizer of the trained parameters of a wrapped module: the given one, and its gradient clipping.
    ///
    /// # Errors
    /// When the given optimizer has state already.
    pub fn new<A, M>(
        module: &DistributedDataParallel<A, M>,
        optimizer: OptimizerAdaptor<O, M, A>,
    ) -> Result<Self, OptimizerError>
    where
        A: TrainingBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
        O: ElementWise<B>,
    {
        Self::with_groups(module, vec![optimizer], |_| 0)
    }

    /// Returns an optimizer of several groups, such as parameters that decay and those that do not: `group` says which
    /// of the optimizers updates a parameter, and clips its gradient.
    ///
    /// # Errors
    /// When `group` gives the number of none, or a given optimizer has state already.
    pub fn with_groups<A, M>(
        module: &DistributedDataParallel<A, M>,
        optimizers: Vec<OptimizerAdaptor<O, M, A>>,
        group: impl Fn(&GradientEntry) -> usize + Send + 'static,
    ) -> Result<Self, OptimizerError>
    where
        A: TrainingBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
        O: ElementWise<B>,
    {
        let with_state = optimizers.iter().map(|optimizer| optimizer.to_record().len());
        if let Some(count) = with_state.max().filter(|&count| count > 0) {
            return Err(OptimizerError::HasState { count });
        }
        let count = optimizers.len();
        let entries = module.trained().iter().zip(module.values());
        let pieces = entries.map(|(entry, value)| new_piece(module, entry, group(entry), value));
        let pieces: Vec<_> = pieces.collect();
        if let Some(piece) = pieces.iter().find(|piece| piece.group >= count) {
            return Err(OptimizerError::Group {
                name: piece.name.clone(),
                group: piece.group,
                count,
            });
        }
        Ok(Self {
            pieces,
            buckets: HashMap::new(),
            clippings: optimizers
                .iter()
                .map(|optimizer| optimizer.grad_clipping().cloned())
                .collect(),
            optimizers: optimizers.iter().map(|optimizer| optimizer.optim().clone()).collect(),
            group: Box::new(group),
            overlap_param_gather: true,
            records_loaded: module.records_loaded(),
        })
    }

    /// Sets whether updated parameters are gathered while the next buckets are updated and the next forward pass runs,
    /// as they are unless this says no: each is then waited for when it is first read. Of a module in a single bucket,
    /// that is when the first layer is reached; of a module with buffers, such as a batch norm's, before the pass.
    pub fn with_overlap_param_gather(mut self, overlaps: bool) -> Self {
        self.overlap_param_gather = overlaps;
        self
    }

    /// The optimizers, one for each group: to change what changes from step to step, such as weight decay.
    pub fn optimizers_mut(&mut self) -> &mut [O] {
        &mut self.optimizers
    }

    /// Takes the parameters' values as they are in the module now, after [`update`](DistributedDataParallel::update)
    /// has replaced them: main values of 16-bit parameters are made from them again. The optimizer's state stays.
    ///
    /// # Errors
    /// When this rank's pieces of the parameters are not those whose state is held.
    pub fn take_parameters<A, M>(&mut self, module: &DistributedDataParallel<A, M>) -> Result<(), OptimizerError>
    where
        A: TrainingBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        self.check_parameters(module)?;
        self.spread();
        for (piece, value) in self.pieces.iter_mut().zip(module.values()) {
            piece.main = main_of(value, &piece.range);
        }
        self.records_loaded = module.records_loaded();
        Ok(())
    }

    /// Returns what is held of the trained parameter of a number.
    #[cfg(any(feature = "checkpoint", feature = "learner"))]
    pub(crate) fn piece(&self, number: usize) -> Piece<B, O> {
        let piece = self.pieces[number].clone();
        match self.buckets.get(&piece.bucket) {
            Some(bucket) if !piece.range.is_empty() => {
                let (main, state) = bucket.piece(&piece);
                let main = Some(main);
                Piece { main, state, ..piece }
            }
            _ => piece,
        }
    }

    /// The optimizer that updates the trained parameter of a number.
    #[cfg(any(feature = "checkpoint", feature = "learner"))]
    pub(crate) fn optimizer_of(&self, number: usize) -> &O {
        &self.optimizers[self.pieces[number].group]
    }

    /// What is held of the trained parameter of a number, to be replaced from a checkpoint.
    #[cfg(any(feature = "checkpoint", feature = "learner"))]
    pub(crate) fn piece_mut(&mut self, number: usize) -> &mut Piece<B, O> {
        self.spread();
        &mut self.pieces[number]
    }

    /// Gives the pieces of all buckets what is held of them.
    fn spread(&mut self) {
        for (number, bucket) in std::mem::take(&mut self.buckets) {
            bucket.spread(self.pieces.iter_mut().filter(|piece| piece.bucket == number));
        }
    }

    /// Updates the module with a step's gradients.
    ///
    /// A parameter without a gradient on any data-parallel rank stays as it is, and so does its state.
    ///
    /// # Communication
    /// If the optimizer clips, that of [`clip_each`](ReducedGradients::clip_each). Where gradients are sharded, one
    /// all-gather per bucket over the data-parallel group, in the parameters' type.
    ///
    /// # Errors
    /// When that fails, or the module's trained parameters are no longer those that the optimizer was made for.
    pub fn step<A, M>(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<A, M>,
        gradients: ReducedGradients<B>,
    ) -> Result<(), OptimizerError>
    where
        A: TrainingBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
        O: ElementWise<B>,
    {
        let update = self.begin(learning_rate, module, gradients)?;
        if let Some(form) = self.bucket_form(update.dtype) {
            return self.step_buckets(form, module, update);
        }
        self.spread();
        if !update.gradients.is_sharded() {
            self.step_whole(module, update)
        } else {
            self.step_sharded(module, update)
        }
    }

    /// Begins an update of the module: looks at its parameters, and clips the gradients.
    fn begin<A, M>(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<A, M>,
        mut gradients: ReducedGradients<B>,
    ) -> Result<Update<B>, OptimizerError>
    where
        B: CollectiveBackend,
        A: TrainingBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        module.wait_for_parameters()?;
        if self.records_loaded == module.records_loaded() {
            self.check_parameters(module)?
        } else {
            self.take_parameters(module)?
        }
        let clipping_of = |entry: &GradientEntry| self.clippings[self.pieces[entry.number].group].as_ref();
        gradients.clip_each_by(clipping_of, module.context())?;
        module.count_step();
        let values = module.values();
        Ok(Update {
            learning_rate,
            dtype: module.dtype(),
            device: values.first().map_or_else(B::Device::default, Tensor::device),
            values: values.into_iter().map(Some).collect(),
            gradients,
        })
    }

    /// How whole buckets are updated at once: on devices, where there are main values.
    ///
    /// Other parameters are the module's own, which an update by the caller replaces one by one.
    fn bucket_form(&self, dtype: DType) -> Option<BucketForm<B, O>>
    where
        B: CollectiveBackend,
        O: ElementWise<B>,
    {
        let is_half = matches!(dtype, DType::BF16 | DType::F16);
        let mut forms = self.optimizers.iter().map(ElementWise::bucket_form);
        let first = forms.next().flatten().filter(|_| B::HAS_DEVICE_MEMORY && is_half)?;
        forms.all(|form| form.is_some()).then_some(first)
    }

    /// Each bucket is updated at once; where gradients are sharded, its parameters are gathered then.
    fn step_buckets<A, M>(
        &mut self,
        form: BucketForm<B, O>,
        module: &mut DistributedDataParallel<A, M>,
        mut update: Update<B>,
    ) -> Result<(), OptimizerError>
    where
        A: TrainingBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
        O: ElementWise<B>,
    {
        // Main values are what is updated.
        update.values.clear();
        let entries = module.trained().to_vec();
        let is_first = self.buckets.is_empty();
        for bucket in in_forward_order(&update) {
            let values = self.update_bucket(form, bucket, &entries, &update);
            if update.gradients.is_sharded() {
                let pending = update.gradients.gather_shard_start(bucket, values);
                self.deliver(pending, module, &update)?;
                continue;
            }
            module.replace(|number| {
                let entry = &entries[number];
                let is_moving = entry.bucket() == bucket && update.gradients.is_present(entry);
                is_moving.then(|| update.gradients.of_bucket(&values, entry))
            });
        }
        if is_first {
            give_back::<B>(&update.device);
        }
        Ok(())
    }

    /// Updates a bucket's parameters, and returns the new values of this rank's part of it.
    fn update_bucket(
        &mut self,
        form: BucketForm<B, O>,
        bucket: usize,
        entries: &[GradientEntry],
        update: &Update<B>,
    ) -> Tensor<B, 1>
    where
        B: CollectiveBackend,
        O: ElementWise<B>,
    {
        let state = self.buckets.remove(&bucket).unwrap_or_else(|| {
            let pieces = self.pieces.iter_mut().filter(|piece| piece.bucket == bucket);
            let length = update.gradients.own_length(bucket);
            make_room::<B>(
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
    fn deliver<A, M>(
        &self,
        pending: PendingParameters<B>,
        module: &mut DistributedDataParallel<A, M>,
        update: &Update<B>,
    ) -> Result<(), OptimizerError>
    where
        A: TrainingBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        module.expect_parameters(update.gradients.in_flight(pending, &update.device))?;
        if !self.overlap_param_gather {
            module.wait_for_parameters()?;
        }
        Ok(())
    }

    /// Each parameter is updated and put into the module in turn, so that old and new are never all there at once.
    fn step_whole<A, M>(
        &mut self,
        module: &mut DistributedDataParallel<A, M>,
        mut update: Update<B>,
    ) -> Result<(), OptimizerError>
    where
        A: TrainingBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        let entries = module.trained().to_vec();
        let Self { optimizers, pieces, .. } = self;
        module.replace(|number| {
            let entry = &entries[number];
            let is_present = update.gradients.is_present(entry);
            let piece = &mut pieces[number];
            piece.steps += u64::from(is_present);
            is_present.then(|| piece.update(&optimizers[piece.group], entry, &mut update))
        });
        Ok(())
    }

    /// This rank's pieces are updated bucket by bucket, and each bucket's parameters gathered.
    fn step_sharded<A, M>(
        &mut self,
        module: &mut DistributedDataParallel<A, M>,
        mut update: Update<B>,
    ) -> Result<(), OptimizerError>
    where
        A: TrainingBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        let entries = module.trained().to_vec();
        for bucket in in_forward_order(&update) {
            let mut fresh = Vec::new();
            for entry in entries.iter().filter(|entry| entry.bucket() == bucket) {
                let piece = &mut self.pieces[entry.number];
                let is_present = update.gradients.is_present(entry);
                piece.steps += u64::from(is_present);
                if is_present && !piece.range.is_empty() {
                    let value = piece.update(&self.optimizers[piece.group], entry, &mut update);
                    fresh.push((entry, value));
                }
                // Nothing needs the old value any more.
                update.values[entry.number] = None;
            }
            let (dtype, device) = (update.dtype, &update.device);
            let pending = update.gradients.gather_parameters_start(bucket, fresh, dtype, device);
            self.deliver(pending, module, &update)?;
        }
        Ok(())
    }

    /// Checks that the pieces are those of the module; parameters that have come since get new ones, and those that
    /// have gone lose theirs.
    fn check_parameters<A, M>(&mut self, module: &DistributedDataParallel<A, M>) -> Result<(), OptimizerError>
    where
        A: TrainingBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        let entries = module.trained();
        let fits = |(piece, entry): (&Piece<B, O>, &GradientEntry)| {
            (&piece.name, &piece.range) == (&entry.name, &module.owned(entry))
        };
        if entries.len() == self.pieces.len() && self.pieces.iter().zip(entries).all(fits) {
            return Ok(());
        }
        self.spread();
        let is_moved = |entry: &&GradientEntry| {
            let mut pieces = self.pieces.iter();
            pieces.any(|piece| piece.name == entry.name && piece.range != module.owned(entry))
        };
        if let Some(moved) = entries.iter().find(is_moved) {
            return Err(OptimizerError::PiecesMoved {
                name: moved.name.clone(),
            });
        }
        let mut former: HashMap<String, Piece<B, O>> = std::mem::take(&mut self.pieces)
            .into_iter()
            .map(|piece| (piece.name.clone(), piece))
            .collect();
        let pieces = entries.iter().zip(module.values()).map(|(entry, value)| {
            let former = former.remove(&entry.name);
            let piece = new_piece(module, entry, (self.group)(entry), value);
            match former {
                // Its bucket may be another.
                Some(former) => Piece {
                    bucket: piece.bucket,
                    place: piece.place,
                    ..former
                },
                None => piece,
            }
        });
        self.pieces = pieces.collect();
        Ok(())
    }
}

impl<A, M, O> ModuleOptimizer<A, M> for ShardedOptimizer<A::InnerBackend, O>
where
    A: TrainingBackend,
    M: AutodiffModule<A>,
    O: ElementWise<A::InnerBackend>,
{
    type Error = OptimizerError;

    fn step_module(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<A, M>,
        gradients: ReducedGradients<A::InnerBackend>,
    ) -> Result<(), OptimizerError> {
        self.step(learning_rate, module, gradients)
    }
}

impl<B: Backend, O: SimpleOptimizer<B> + std::fmt::Debug> std::fmt::Debug for ShardedOptimizer<B, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardedOptimizer")
            .field("optimizers", &self.optimizers)
            .field("pieces", &self.pieces)
            .finish_non_exhaustive()
    }
}

/// What is held of a trained parameter of this value before the first update.
fn new_piece<A, M, O>(
    module: &DistributedDataParallel<A, M>,
    entry: &GradientEntry,
    group: usize,
    value: Tensor<A::InnerBackend, 1>,
) -> Piece<A::InnerBackend, O>
where
    A: TrainingBackend,
    M: AutodiffModule<A>,
    O: SimpleOptimizer<A::InnerBackend>,
{
    Piece::new(entry, group, value, module.owned(entry), module.owned_place(entry))
}

/// Makes room for a bucket's state and its gathered parameters, which stay: gives back the memory of the first step's
/// activations, and of what the buckets before it were made of.
fn make_room<B: Backend>([state, parameters]: [usize; 2], dtype: DType, device: &B::Device) {
    give_back::<B>(device);
    allocate_exactly::<B>([state], DType::F32, device);
    allocate_exactly::<B>([state, parameters], dtype, device);
}

/// The buckets, those whose parameters a forward pass reads first before the others: in the order of their numbers they
/// are reduced, from the output of the model to its input.
fn in_forward_order<B: CollectiveBackend>(update: &Update<B>) -> impl Iterator<Item = usize> + use<B> {
    (0..update.gradients.num_buckets()).rev()
}

#[cfg(test)]
mod tests {
    use burn::backend::Autodiff;
    use burn::grad_clipping::GradientClippingConfig;
    use burn::module::{Module, Param};
    use burn::nn::Linear;
    use burn::optim::{AdamConfig, GradientsParams, SgdConfig};
    use burn::tensor::{DType, FloatDType};
    use burn_flex::Flex;

    use super::*;
    use crate::context::ParallelContext;
    use crate::data_parallel::{DataParallelConfig, StepPart};
    use crate::optimizer::{AdamW, AdamWConfig};

    type B = Autodiff<Flex>;
    type Wrapped = DistributedDataParallel<B, Linear<B>>;

    fn wrapped(dtype: FloatDType) -> Wrapped {
        let weight = Tensor::<B, 2>::from_floats([[1.0], [1.0]], &Default::default()).cast(dtype);
        let layer = Linear {
            weight: Param::from_tensor(weight),
            bias: None,
        };
        let config = DataParallelConfig::new().with_shard_gradients(true);
        DistributedDataParallel::new(layer, &ParallelContext::single(1), config).expect("one rank")
    }

    /// A step with the gradient (3, 4) of the weight (1, 1).
    fn step<O: ElementWise<Flex>>(module: &mut Wrapped, optimizer: &mut ShardedOptimizer<Flex, O>) {
        let dtype = FloatDType::from(module.dtype());
        let input = Tensor::<B, 2>::from_floats([[3.0, 4.0]], &Default::default()).cast(dtype);
        module
            .backward(StepPart::Last, |layer| layer.forward(input).sum())
            .expect("one rank");
        let gradients = module.gradients().expect("one rank");
        optimizer.step(1.0, module, gradients).expect("one rank");
    }

    #[test]
    fn main_values_of_16_bit_parameters_move_by_clipped_gradients() {
        let mut module = wrapped(FloatDType::BF16);
        let clipping = GradientClippingConfig::Norm(0.001);
        let sgd = SgdConfig::new().with_gradient_clipping(Some(clipping)).init();
        let mut optimizer = ShardedOptimizer::new(&module, sgd).expect("it is new");
        step(&mut module, &mut optimizer);
        let main = optimizer
            .piece(0)
            .main
            .clone()
            .expect("parameters have 16 bits")
            .into_data();
        assert_eq!(main.dtype, DType::F32);
        // In 16 bits neither step would be seen: the next number below 1 is 0.996.
        for (value, expected) in main.iter::<f64>().zip([1.0 - 0.0006, 1.0 - 0.0008]) {
            assert!((value - expected).abs() < 1e-6, "{value} for {expected}");
        }
    }

    #[test]
    fn a_loaded_record_is_not_undone_by_main_values() {
        let mut module = wrapped(FloatDType::BF16);
        let mut optimizer = ShardedOptimizer::new(&module, SgdConfig::new().init()).expect("it is new");
        step(&mut module, &mut optimizer);
        let weight = Tensor::<B, 2>::from_floats([[64.0], [64.0]], &Default::default()).cast(FloatDType::BF16);
        let mut layer = module.module().clone();
        layer.weight = Param::from_tensor(weight);
        module.load_record(layer.into_record()).expect("the same fields");
        step(&mut module, &mut optimizer);
        let values: Vec<f64> = module.module().weight.val().into_data().iter().collect();
        assert_eq!(values, [61.0, 60.0]);
    }

    #[test]
    fn parameters_are_waited_for_when_they_are_read() {
        for overlaps in [true, false] {
            let mut module = wrapped(FloatDType::F32);
            let optimizer = ShardedOptimizer::new(&module, SgdConfig::new().init()).expect("it is new");
            let mut optimizer = optimizer.with_overlap_param_gather(overlaps);
            step(&mut module, &mut optimizer);
            let is_here = |module: &Wrapped| module.module_in_flight().weight.is_initialized();
            assert_eq!(is_here(&module), !overlaps);
            let read_by_a_layer = module.module_in_flight().clone().weight.val().into_data();
            assert_eq!(is_here(&module), !overlaps, "a clone is read by itself");
            assert_eq!(read_by_a_layer.to_vec::<f32>().expect("f32"), [-2.0, -3.0]);
            assert_eq!(module.module().weight.val().into_data(), read_by_a_layer);
            assert!(is_here(&module));
            // Again, from one update to the next without a pass between them.
            let gradients = {
                step(&mut module, &mut optimizer);
                let input = Tensor::<B, 2>::from_floats([[1.0, 0.0]], &Default::default());
                let of_last = module.backward(StepPart::Last, |layer| layer.forward(input).sum());
                of_last.expect("one rank");
                module.gradients().expect("one rank")
            };
            optimizer.step(1.0, &mut module, gradients).expect("one rank");
            let values = module.into_module().weight.val().into_data();
            assert_eq!(values.to_vec::<f32>().expect("f32"), [-6.0, -7.0]);
        }
    }

    #[test]
    fn each_group_clips_by_its_own_optimizer() {
        let mut module = wrapped(FloatDType::F32);
        let sgd = |clipping| SgdConfig::new().with_gradient_clipping(clipping).init();
        let optimizers = vec![sgd(None), sgd(Some(GradientClippingConfig::Value(3.5)))];
        let mut optimizer = ShardedOptimizer::with_groups(&module, optimizers, |_| 1).expect("there are two");
        step(&mut module, &mut optimizer);
        let values = module.module().weight.val().into_data();
        assert_eq!(values.to_vec::<f32>().expect("f32"), [-2.0, -2.5]);
    }

    type Layers = DistributedDataParallel<B, Vec<Linear<B>>>;

    /// Three layers in several buckets, and an optimizer of two groups.
    fn layers(is_sharded: bool) -> (Layers, ShardedOptimizer<Flex, AdamW>) {
        let number = |index: usize| ((index * 37 % 61) as f32 - 30.0) / 16.0;
        let tensor = |first: usize, count: usize| -> Tensor<B, 1> {
            let values: Vec<f32> = (first..first + count).map(number).collect();
            Tensor::from_floats(&values[..], &Default::default()).cast(FloatDType::BF16)
        };
        let layer = |first: usize| Linear {
            weight: Param::from_tensor(tensor(first, 20 * 30).reshape([20, 30])),
            bias: Some(Param::from_tensor(tensor(first + 7, 30))),
        };
        let config = DataParallelConfig::new()
            .with_shard_gradients(is_sharded)
            .with_bucket_size(Some(700));
        let module = vec![layer(0), layer(1), layer(2)];
        let module = DistributedDataParallel::new(module, &ParallelContext::single(1), config).expect("one rank");
        let optimizers = [0.1, 0.0].map(|decay| AdamWConfig::new().with_weight_decay(decay).init());
        let group = |entry: &GradientEntry| usize::from(entry.dimensions() == 1);
        let optimizer = ShardedOptimizer::with_groups(&module, optimizers.into(), group).expect("there are two");
        (module, optimizer)
    }

    /// The gradients of a step; the last layer has none in the first.
    fn gradients(module: &mut Layers, step: usize) -> ReducedGradients<Flex> {
        let input = Tensor::<B, 2>::full([3, 20], 0.25 + step as f64, &Default::default()).cast(FloatDType::BF16);
        let used = if step == 0 { 2 } else { 3 };
        let forward = |layers: Vec<Linear<B>>| {
            let of_layer = |layer: &Linear<B>| layer.forward(input.clone()).sin().sum();
            layers[..used]
                .iter()
                .map(of_layer)
                .reduce(|a, b| a + b)
                .expect("some are used")
        };
        module.backward(StepPart::Last, forward).expect("one rank");
        module.gradients().expect("one rank")
    }

    #[test]
    fn buckets_are_updated_as_parameters_are_one_by_one() {
        for is_sharded in [false, true] {
            let ((mut module, mut optimizer), (mut other, mut at_once)) = (layers(is_sharded), layers(is_sharded));
            for step in 0..5 {
                let of_step = gradients(&mut module, step);
                optimizer.step(0.01, &mut module, of_step).expect("one rank");
                let of_step = gradients(&mut other, step);
                if step == 3 {
                    // As after a checkpoint is loaded.
                    at_once.step(0.01, &mut other, of_step).expect("one rank");
                } else {
                    let form = at_once.optimizers[0].bucket_form().expect("it is AdamW");
                    let update = at_once.begin(0.01, &mut other, of_step).expect("one rank");
                    assert!(update.gradients.num_buckets() > 1);
                    at_once.step_buckets(form, &mut other, update).expect("one rank");
                }
                for (number, (value, other)) in module.values().into_iter().zip(other.values()).enumerate() {
                    assert_eq!(
                        value.into_data(),
                        other.into_data(),
                        "parameter {number} after step {step}"
                    );
                    let [piece, other] = [&optimizer, &at_once].map(|optimizer| optimizer.piece(number));
                    assert_eq!(piece.steps, other.steps);
                    let main = |piece: Piece<Flex, AdamW>| piece.main.expect("parameters have 16 bits").into_data();
                    let moments = |piece: &Piece<Flex, AdamW>| {
                        let state = piece.state.clone();
                        state.map(|state| (state.time, state.moment_1.into_data(), state.moment_2.into_data()))
                    };
                    assert_eq!(moments(&piece), moments(&other), "parameter {number} after step {step}");
                    assert_eq!(main(piece), main(other), "parameter {number} after step {step}");
                }
            }
        }
    }

    #[test]
    fn an_optimizer_with_state_is_refused() {
        let module = wrapped(FloatDType::F32);
        let mut adam = AdamConfig::new().init();
        let layer = module.module().clone();
        let mut gradients = GradientsParams::new();
        gradients.register(layer.weight.id, layer.weight.val().inner());
        adam.step(0.1, layer, gradients);
        let error = ShardedOptimizer::new(&module, adam).err();
        assert!(
            matches!(error, Some(OptimizerError::HasState { count: 1 })),
            "{error:?}"
        );
    }
}
