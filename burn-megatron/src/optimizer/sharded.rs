//! `ShardedOptimizer`: any element-wise burn optimizer over flat pieces of the parameters, the whole of each or, where
//! gradients are sharded, this data-parallel rank's.
//!
//! Holds main parameters in f32 where the module's are of 16 bits. Called by the trainer and by programs that train a
//! model of their own.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use burn::module::AutodiffModule;
use burn::optim::{LearningRate, SimpleOptimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, FloatDType, Tensor};

use crate::collectives::{CollectiveBackend, CollectiveError};
use crate::data_parallel::{
    DataParallelError, DistributedDataParallel, GradientEntry, HookBackend, PendingParameters, ReducedGradients,
};

/// Buckets whose parameters are gathered while the next ones are updated.
const BUCKETS_IN_FLIGHT: usize = 2;

/// What can go wrong in an update.
#[derive(Debug, thiserror::Error)]
pub enum OptimizerError {
    /// The parameters could not be gathered: the module is lost.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The module cannot be updated.
    #[error(transparent)]
    DataParallel(#[from] DataParallelError),
    /// Parameters were frozen or thawed, so that those that are trained lie in other shards.
    #[error(
        "this rank's piece of parameter {name} is no longer the one whose state the optimizer holds: other parameters are \
         trained than when it was made; make a new optimizer"
    )]
    PiecesMoved {
        /// The first such parameter.
        name: String,
    },
    /// A parameter of no group.
    #[error("parameter {name} was given to optimizer {group}, but there are {count}")]
    Group {
        /// The parameter.
        name: String,
        /// The number of the optimizer.
        group: usize,
        /// How many there are.
        count: usize,
    },
}

/// Updates the module of a [`DistributedDataParallel`] by any element-wise burn optimizer, such as burn's own `Adam`,
/// `AdamW` and `Sgd`: one that treats each element of a parameter alike, whatever the parameter's shape.
///
/// Where the wrapper shards gradients
/// ([`DataParallelConfig::shard_gradients`](crate::data_parallel::DataParallelConfig)), this is stage 1 of ZeRO: each
/// data-parallel rank holds the optimizer's state of its shard of every bucket, updates it, and all gather the updated
/// parameters; the result has the bits of the unsharded update. Where parameters are of 16 bits the optimizer holds main
/// parameters in f32, from which the module's are rounded.
///
/// Memory per parameter with AdamW on `d` ranks, in bytes, gradients and the module's parameters included: 16 in f32, and
/// 8 + 8/d sharded; 18 in 16 bits, and 6 + 12/d sharded.
///
/// # Examples
/// ```
/// use burn::backend::Autodiff;
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
/// let mut optimizer = ShardedOptimizer::new(&model, AdamConfig::new().build());
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
    group: GroupOf,
    pieces: Vec<Piece<B, O>>,
    overlap_param_gather: bool,
}

/// Says which of the optimizers updates a parameter.
type GroupOf = Box<dyn Fn(&GradientEntry) -> usize + Send>;

/// What the optimizer holds of one trained parameter.
pub(crate) struct Piece<B: Backend, O: SimpleOptimizer<B>> {
    name: String,
    /// Which of the optimizers updates it.
    group: usize,
    /// The elements of this rank's part of the parameter that are updated here.
    pub(crate) range: Range<usize>,
    /// Their main values, where the module's are of 16 bits, `[range]`.
    pub(crate) main: Option<Tensor<B, 1>>,
    /// None before the first update, and where the range is empty.
    pub(crate) state: Option<O::State<1>>,
    /// Updates of the parameter so far, here or on other data-parallel ranks.
    pub(crate) steps: u64,
}

impl<B: Backend, O: SimpleOptimizer<B>> ShardedOptimizer<B, O> {
    /// Returns an optimizer of the trained parameters of a wrapped module.
    pub fn new<A, M>(module: &DistributedDataParallel<A, M>, optimizer: O) -> Self
    where
        A: HookBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        Self::bind(module, vec![optimizer], Box::new(|_| 0))
    }

    /// Returns an optimizer of several groups, such as parameters that decay and those that do not: `group` says which of
    /// the optimizers updates a parameter.
    ///
    /// # Errors
    /// When `group` gives the number of none.
    pub fn with_groups<A, M>(
        module: &DistributedDataParallel<A, M>,
        optimizers: Vec<O>,
        group: impl Fn(&GradientEntry) -> usize + Send + 'static,
    ) -> Result<Self, OptimizerError>
    where
        A: HookBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        let count = optimizers.len();
        let optimizer = Self::bind(module, optimizers, Box::new(group));
        match optimizer.pieces.iter().find(|piece| piece.group >= count) {
            None => Ok(optimizer),
            Some(piece) => Err(OptimizerError::Group {
                name: piece.name.clone(),
                group: piece.group,
                count,
            }),
        }
    }

    fn bind<A, M>(module: &DistributedDataParallel<A, M>, optimizers: Vec<O>, group: GroupOf) -> Self
    where
        A: HookBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        let entries = module.trained().iter().zip(module.values());
        let pieces = entries.map(|(entry, value)| Piece::new(entry, group(entry), value, module.owned(entry)));
        Self {
            pieces: pieces.collect(),
            optimizers,
            group,
            overlap_param_gather: true,
        }
    }

    /// Sets whether updated buckets are gathered while the next ones are updated, as they are unless this says no.
    pub fn with_overlap_param_gather(mut self, overlaps: bool) -> Self {
        self.overlap_param_gather = overlaps;
        self
    }

    /// The optimizers, one for each group: to change what changes from step to step, such as weight decay.
    pub fn optimizers_mut(&mut self) -> &mut [O] {
        &mut self.optimizers
    }

    /// Takes the parameters' values as they are in the module now, after
    /// [`update`](DistributedDataParallel::update) has replaced them: main values of 16-bit parameters are made anew from
    /// them. The optimizer's state stays.
    ///
    /// # Errors
    /// When this rank's pieces of the parameters are not those whose state is held.
    pub fn take_parameters<A, M>(&mut self, module: &DistributedDataParallel<A, M>) -> Result<(), OptimizerError>
    where
        A: HookBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        self.check_parameters(module)?;
        for (piece, value) in self.pieces.iter_mut().zip(module.values()) {
            piece.main = main_of(value, &piece.range);
        }
        Ok(())
    }

    /// What is held of the trained parameter of a number.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn piece(&self, number: usize) -> &Piece<B, O> {
        &self.pieces[number]
    }

    /// What is held of the trained parameter of a number, to be replaced from a checkpoint.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn piece_mut(&mut self, number: usize) -> &mut Piece<B, O> {
        &mut self.pieces[number]
    }

    /// Updates the module with a step's gradients.
    ///
    /// A parameter without a gradient on any data-parallel rank stays as it is, and so does its state.
    ///
    /// # Communication
    /// Where gradients are sharded, one all-gather per bucket over the data-parallel group, in the parameters' type.
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
        A: HookBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        self.check_parameters(module)?;
        module.count_step();
        let values = module.values();
        let update = Update {
            learning_rate,
            dtype: module.dtype(),
            device: values.first().map_or_else(B::Device::default, Tensor::device),
            values: values.into_iter().map(Some).collect(),
            gradients,
        };
        match update.gradients.is_sharded() {
            false => self.step_whole(module, update),
            true => self.step_sharded(module, update),
        }
    }

    /// Each parameter is updated and put into the module in turn, so that old and new are never all there at once.
    fn step_whole<A, M>(
        &mut self,
        module: &mut DistributedDataParallel<A, M>,
        mut update: Update<B>,
    ) -> Result<(), OptimizerError>
    where
        A: HookBackend<InnerBackend = B>,
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
        A: HookBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        let in_flight = if self.overlap_param_gather {
            BUCKETS_IN_FLIGHT
        } else {
            1
        };
        let entries = module.trained().to_vec();
        let mut pending = VecDeque::new();
        for bucket in 0..update.gradients.num_buckets() {
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
            let gathering = update.gradients.gather_parameters_start(bucket, fresh, dtype, device);
            pending.push_back(gathering);
            while pending.len() >= in_flight {
                finish_oldest(module, &entries, &mut update, &mut pending)?;
            }
        }
        while !pending.is_empty() {
            finish_oldest(module, &entries, &mut update, &mut pending)?;
        }
        Ok(())
    }

    /// Checks that the pieces are those of the module; parameters that have come since get new ones, and those that have
    /// gone lose theirs.
    fn check_parameters<A, M>(&mut self, module: &DistributedDataParallel<A, M>) -> Result<(), OptimizerError>
    where
        A: HookBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        let entries = module.trained();
        let fits = |(piece, entry): (&Piece<B, O>, &GradientEntry)| {
            (&piece.name, &piece.range) == (&entry.name, &module.owned(entry))
        };
        if entries.len() == self.pieces.len() && self.pieces.iter().zip(entries).all(fits) {
            return Ok(());
        }
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
            let piece = former.remove(&entry.name);
            piece.unwrap_or_else(|| Piece::new(entry, (self.group)(entry), value, module.owned(entry)))
        });
        self.pieces = pieces.collect();
        Ok(())
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

/// An update under way.
struct Update<B: CollectiveBackend> {
    learning_rate: LearningRate,
    /// The module's element type.
    dtype: DType,
    device: B::Device,
    /// The module's old values, by number, `[len]`.
    values: Vec<Option<Tensor<B, 1>>>,
    gradients: ReducedGradients<B>,
}

impl<B: Backend, O: SimpleOptimizer<B>> Piece<B, O> {
    /// Returns the piece of a parameter of this value, `[len]`.
    fn new(entry: &GradientEntry, group: usize, value: Tensor<B, 1>, range: Range<usize>) -> Self {
        Self {
            name: entry.name.clone(),
            group,
            main: main_of(value, &range),
            range,
            state: None,
            steps: 0,
        }
    }

    /// Updates the piece and returns its new values, `[range]`, in the module's type.
    fn update(&mut self, optimizer: &O, entry: &GradientEntry, update: &mut Update<B>) -> Tensor<B, 1>
    where
        B: CollectiveBackend,
    {
        let gradient = update.gradients.owned_values(entry, &update.device);
        let main_dtype = gradient.dtype();
        // Nothing needs the old value behind this.
        let value = update.values[entry.number]
            .take()
            .expect("each parameter is updated once");
        let main = self.main.take().unwrap_or_else(|| piece_of(value, &self.range));
        let (main, state) = optimizer.step(update.learning_rate, main, gradient, self.state.take());
        self.state = state;
        if main_dtype == update.dtype {
            return main;
        }
        let value = main.clone().cast(FloatDType::from(update.dtype));
        self.main = Some(main);
        value
    }
}

impl<B: Backend, O: SimpleOptimizer<B>> std::fmt::Debug for Piece<B, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Piece")
            .field("name", &self.name)
            .field("group", &self.group)
            .field("range", &self.range)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

/// The main values of a range, in f32, where the module's have 16 bits.
fn main_of<B: Backend>(value: Tensor<B, 1>, range: &Range<usize>) -> Option<Tensor<B, 1>> {
    let has_main = matches!(value.dtype(), DType::BF16 | DType::F16);
    has_main.then(|| piece_of(value, range).cast(FloatDType::F32))
}

/// The elements of a range.
fn piece_of<B: Backend>(value: Tensor<B, 1>, range: &Range<usize>) -> Tensor<B, 1> {
    match range.len() == value.dims()[0] {
        true => value,
        false => value.slice([range.clone()]),
    }
}

/// Waits for the bucket whose gathering began first, and puts its parameters into the module.
fn finish_oldest<A, M>(
    module: &mut DistributedDataParallel<A, M>,
    entries: &[GradientEntry],
    update: &mut Update<A::InnerBackend>,
    pending: &mut VecDeque<PendingParameters<A::InnerBackend>>,
) -> Result<(), OptimizerError>
where
    A: HookBackend,
    M: AutodiffModule<A>,
{
    let Some(oldest) = pending.pop_front() else {
        return Ok(());
    };
    let gathered = update.gradients.gather_parameters_finish(oldest)?;
    let (gradients, device) = (&update.gradients, &update.device);
    module.replace(|number| {
        let entry = &entries[number];
        match gradients.is_present(entry) {
            true => gradients.gathered(&gathered, entry, device),
            false => None,
        }
    });
    Ok(())
}
