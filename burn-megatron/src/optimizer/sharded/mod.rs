//! `ShardedOptimizer`: any element-wise burn optimizer over flat pieces of the parameters, the whole of each or, where
//! gradients are sharded, this data-parallel rank's.
//!
//! Holds main parameters in f32 where the module's are of 16 bits.

mod update;

use std::collections::HashMap;

use burn::grad_clipping::GradientClipping;
use burn::module::Module;
use burn::optim::{LearningRate, Optimizer};

use super::OffloadError;
use super::bucket_state::BucketState;
use super::error::OptimizerError;
use super::matrix::is_matrix;
use super::offload::Offload;
use super::piece::Piece;
use crate::data_parallel::{
    DistributedDataParallel, ElementWise, ElementWiseOptimizer, GradientEntry, ModuleStep, ReducedGradients,
};
pub(super) use update::{Fresh, in_forward_order};

/// Updates the module of a [`DistributedDataParallel`] by any [`ElementWise`] burn optimizer, such as burn's own
/// `Adam`, `AdamW` and `Sgd`, in an [`ElementWiseOptimizer`].
///
/// Its [gradient clipping](burn::grad_clipping) is done as on one rank, by [`clip_each`](ReducedGradients::clip_each):
/// `Norm` by the norm of each whole parameter. Groups of parameters are those of [`with_groups`](Self::with_groups):
/// burn's `ModuleOptimizer` does not tell its own, and goes to
/// [`step_whole_parameters`](DistributedDataParallel::step_whole_parameters).
///
/// An optimizer that needs whole matrices says so, as this project's
/// [`Muon`](super::Muon) does (see [`MatrixForm`](super::MatrixForm)), and one of sums over whole parameters as
/// [`Adafactor`](super::Adafactor) does (see [`FactoredForm`](super::FactoredForm)); burn's `Muon` is refused when the
/// program is compiled (see [`ElementWise`]).
///
/// Where the wrapper shards gradients
/// ([`DataParallelConfig::sharding`](crate::data_parallel::DataParallelConfig)), this is stage 1 of ZeRO: each
/// data-parallel rank holds the optimizer's state of its shard of every bucket, updates it, and all gather the updated
/// parameters; the result has the bits of the unsharded update, but for Adafactor's, whose sums are added up in another
/// order. Where parameters are of 16 bits the optimizer holds
/// main parameters in f32, from which the module's are rounded.
///
/// Memory per parameter with AdamW on `d` ranks, in bytes, gradients and the module's parameters included: 16 in f32,
/// and 8 + 8/d sharded; 18 in 16 bits, and 6 + 12/d sharded.
///
/// # Examples
/// ```
/// use burn::grad_clipping::GradientClipping;
/// use burn::nn::LinearConfig;
/// use burn::optim::AdamConfig;
/// use burn::tensor::{Device, Tensor};
/// use burn_megatron::context::ParallelContext;
/// use burn_megatron::data_parallel::{
///     DataParallelConfig, DistributedDataParallel, ElementWiseOptimizer, ShardingStrategy, StepPart,
/// };
/// use burn_megatron::optimizer::ShardedOptimizer;
///
/// let device = Device::flex().autodiff();
/// let context = ParallelContext::single(1);
/// let config = DataParallelConfig::new().with_sharding(ShardingStrategy::Optim);
/// let mut model = DistributedDataParallel::new(LinearConfig::new(3, 2).init(&device), &context, config)?;
/// let adam = ElementWiseOptimizer::from(AdamConfig::new().build());
/// let mut optimizer = ShardedOptimizer::new(&model, adam.with_grad_clipping(GradientClipping::Norm(1.0)))?;
///
/// let input = Tensor::<2>::ones([4, 3], &device);
/// model.backward(StepPart::Last, |model| model.forward(input).mean())?;
/// let gradients = model.gradients()?;
/// optimizer.step(1e-3, &mut model, gradients)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Reference
/// Rajbhandari et al. 2020, arXiv:1910.02054, section 5.1 (P_os).
pub struct ShardedOptimizer<O: Optimizer> {
    pub(super) optimizers: Vec<O>,
    /// Clipping of each of them.
    clippings: Vec<Option<GradientClipping>>,
    group: GroupOf,
    pub(super) pieces: Vec<Piece<O>>,
    /// State of some pieces that is held elsewhere, if there is some; nothing is held by bucket then.
    pub(super) offload: Option<Offload<O>>,
    /// State by bucket, where one launch updates its pieces.
    buckets: HashMap<usize, BucketState<O>>,
    overlap_param_gather: bool,
    /// Records that the module had loaded when main values were last made.
    records_loaded: u32,
}

/// Says which of the optimizers updates a parameter.
type GroupOf = Box<dyn Fn(&GradientEntry) -> usize + Send>;

impl<O: Optimizer> ShardedOptimizer<O> {
    /// Returns an optimizer of the trained parameters of a wrapped module: the given one, and its gradient clipping.
    ///
    /// # Errors
    /// When the given optimizer has state already.
    pub fn new<M>(
        module: &DistributedDataParallel<M>,
        optimizer: ElementWiseOptimizer<O>,
    ) -> Result<Self, OptimizerError>
    where
        M: Module,
        O: ElementWise,
    {
        Self::with_groups(module, vec![optimizer], |_| 0)
    }

    /// Returns an optimizer of several groups, such as parameters that decay and those that do not: `group` says which
    /// of the optimizers updates a parameter, and clips its gradient.
    ///
    /// # Errors
    /// When `group` gives the number of none, or that of an optimizer of matrices for what is none, or a given
    /// optimizer has state already.
    pub fn with_groups<M>(
        module: &DistributedDataParallel<M>,
        optimizers: Vec<ElementWiseOptimizer<O>>,
        group: impl Fn(&GradientEntry) -> usize + Send + 'static,
    ) -> Result<Self, OptimizerError>
    where
        M: Module,
        O: ElementWise,
    {
        Self::build(module, optimizers, group, None)
    }

    pub(super) fn build<M>(
        module: &DistributedDataParallel<M>,
        optimizers: Vec<ElementWiseOptimizer<O>>,
        group: impl Fn(&GradientEntry) -> usize + Send + 'static,
        offload: Option<Offload<O>>,
    ) -> Result<Self, OptimizerError>
    where
        M: Module,
        O: ElementWise,
    {
        let with_state = optimizers.iter().map(|optimizer| optimizer.to_record().len());
        if let Some(count) = with_state.max().filter(|&count| count > 0) {
            return Err(OptimizerError::HasState { count });
        }
        let count = optimizers.len();
        let pieces = module.trained().iter();
        let pieces: Vec<_> = pieces.map(|entry| new_piece(module, entry, group(entry))).collect();
        if let Some(piece) = pieces.iter().find(|piece| piece.group >= count) {
            return Err(OptimizerError::Group {
                name: piece.name.clone(),
                group: piece.group,
                count,
            });
        }
        let needs_matrices = |piece: &Piece<O>| optimizers[piece.group].optimizer().matrix_form().is_some();
        let mut given = pieces.iter().zip(module.trained());
        if let Some((_, entry)) = given.find(|(piece, entry)| needs_matrices(piece) && !is_matrix(entry)) {
            return Err(OptimizerError::NoMatrix {
                name: entry.name.clone(),
                shape: entry.shape.clone(),
            });
        }
        if offload.is_some() && pieces.iter().any(needs_matrices) {
            return Err(OffloadError::WholeMatrices.into());
        }
        let is_factored = |piece: &Piece<O>| optimizers[piece.group].optimizer().factored_form().is_some();
        if offload.is_some() && pieces.iter().any(is_factored) {
            return Err(OffloadError::WholeParameters.into());
        }
        let mut made = Self {
            pieces,
            offload,
            buckets: HashMap::new(),
            clippings: optimizers
                .iter()
                .map(|optimizer| optimizer.grad_clipping().cloned())
                .collect(),
            optimizers: optimizers
                .iter()
                .map(|optimizer| optimizer.optimizer().clone())
                .collect(),
            group: Box::new(group),
            overlap_param_gather: true,
            records_loaded: module.records_loaded(),
        };
        made.hold_offloaded(module.dtype(), &HashMap::new())?;
        made.make_mains(module)?;
        Ok(made)
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
    pub fn take_parameters<M>(&mut self, module: &DistributedDataParallel<M>) -> Result<(), OptimizerError>
    where
        M: Module,
    {
        self.check_parameters(module)?;
        self.spread();
        self.make_mains(module)?;
        self.records_loaded = module.records_loaded();
        Ok(())
    }

    /// Makes the main values of all pieces from the module's.
    fn make_mains<M>(&mut self, module: &DistributedDataParallel<M>) -> Result<(), OptimizerError>
    where
        M: Module,
    {
        let mut values = module.owned_values();
        for number in 0..module.trained().len() {
            self.make_main(number, values.take(number)?)?;
        }
        self.settle()
    }

    /// Returns what is held of the trained parameter of a number, and not offloaded.
    #[cfg(any(feature = "checkpoint", feature = "learner"))]
    pub(crate) fn piece(&self, number: usize) -> Piece<O> {
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

    /// Gives the pieces of all buckets what is held of them.
    pub(super) fn spread(&mut self) {
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
    /// all-gather per bucket over the data-parallel group, in the parameters' type. Where an optimizer needs whole
    /// matrices, in each round of one for each data-parallel rank, a reduce-scatter over these ranks where
    /// gradients are sharded, an all-reduce over the tensor group where matrices are cut, and an all-gather over the
    /// data-parallel ranks. Where one needs sums over whole parameters, two all-reduces over the tensor group where
    /// parameters are cut, and two over the data-parallel ranks where gradients are sharded, of little: the numbers of
    /// rows and columns, and two for each parameter.
    ///
    /// # Errors
    /// When that fails, or the module's trained parameters are no longer those that the optimizer was made for.
    pub fn step<M>(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<M>,
        gradients: ReducedGradients,
    ) -> Result<(), OptimizerError>
    where
        M: Module,
        O: ElementWise,
    {
        let update = self.begin(learning_rate, module, gradients)?;
        self.update(module, update)?;
        Ok(module.end_update()?)
    }

    /// Checks that the pieces are those of the module; parameters that have come since get new ones, and those that
    /// have gone lose theirs.
    fn check_parameters<M>(&mut self, module: &DistributedDataParallel<M>) -> Result<(), OptimizerError>
    where
        M: Module,
    {
        let entries = module.trained();
        let fits = |(piece, entry): (&Piece<O>, &GradientEntry)| {
            (&piece.name, &piece.range) == (&entry.name, &module.owned(entry))
        };
        let are_all = entries.len() == self.pieces.len() && self.pieces.iter().zip(entries).all(fits);
        let has_other_type = !self.offload_fits(module.dtype());
        if are_all && !has_other_type {
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
        let numbers: HashMap<String, usize> = (self.pieces.iter().enumerate())
            .map(|(number, piece)| (piece.name.clone(), number))
            .collect();
        let mut former: HashMap<String, Piece<O>> = std::mem::take(&mut self.pieces)
            .into_iter()
            .map(|piece| (piece.name.clone(), piece))
            .collect();
        let pieces = entries.iter().map(|entry| {
            let piece = new_piece(module, entry, (self.group)(entry));
            match former.remove(&entry.name) {
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
        self.hold_offloaded(module.dtype(), &numbers)?;
        let mut values = module.owned_values();
        let is_new = |entry: &&GradientEntry| has_other_type || !numbers.contains_key(&entry.name);
        for entry in entries.iter().filter(is_new) {
            self.make_main(entry.number, values.take(entry.number)?)?;
        }
        self.settle()
    }
}

impl<M, O> ModuleStep<M> for ShardedOptimizer<O>
where
    M: Module,
    O: ElementWise,
{
    type Error = OptimizerError;

    fn step_module(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<M>,
        gradients: ReducedGradients,
    ) -> Result<(), OptimizerError> {
        self.step(learning_rate, module, gradients)
    }
}

impl<O: Optimizer + std::fmt::Debug> std::fmt::Debug for ShardedOptimizer<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardedOptimizer")
            .field("optimizers", &self.optimizers)
            .field("pieces", &self.pieces)
            .finish_non_exhaustive()
    }
}

/// Returns the state of a trained parameter before its main values are made.
fn new_piece<M, O>(module: &DistributedDataParallel<M>, entry: &GradientEntry, group: usize) -> Piece<O>
where
    M: Module,
    O: Optimizer,
{
    Piece::new(entry, group, module.owned(entry), module.owned_place(entry))
}

#[cfg(test)]
mod tests;
