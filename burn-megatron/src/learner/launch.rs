//! `ParallelLearner`: launches burn-train's supervised training on the ranks of a job.

use std::any::Any;
use std::fmt::Display;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::lr_scheduler::LrScheduler;
use burn::train::{InferenceStep, Learner, LearningResult, SupervisedTraining, TrainStep, TrainingStrategy};

use super::components::Components;
use super::error::LearnerError;
use super::output::GatherOutput;
use super::sharded::{ShardedLearnerOptimizer, ShardedUpdate};
use super::silent::{SilentLogger, SilentRenderer};
use super::strategy::{Options, Strategy};
use crate::autodiff::TrainingBackend;
use crate::collectives::CollectiveError;
use crate::context::ParallelContext;
use crate::data_parallel::{DataParallelConfig, ShardingStrategy};
use crate::launch::StopFlag;
use crate::optimizer::StoredOptimizer;

/// Launches burn-train's supervised training on the ranks of a job, data-parallel: gradients are averaged in buckets
/// while the backward pass runs, as by [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel).
///
/// What every rank does: it makes the same model, optimizer and settings, loads its share of each batch
/// ([`shard_loader`](crate::data::shard_loader())), and calls [`launch`](Self::launch). What is the same on all ranks:
///
/// - Metrics, progress and the learning rate: outputs are joined on the first rank, sample by sample, so that any
///   metric of burn-train's sees the global batch, and `n` ranks report what one rank reports.
/// - The first rank renders, logs, writes the summary and the checkpoints; the others write nothing. Every rank reads
///   the checkpoint that a run resumes from, and must see the training's folder for that; the number of ranks may
///   change.
/// - A resumed run logs its first epoch by its own number: after the checkpoint of epoch 3 comes epoch 4.
///   burn-train's own `launch` logs it as epoch 1, over what the first run has logged there.
/// - Early stopping is decided by the first rank; an interruption asked for on any rank, by its `Interrupter` or a
///   [`StopFlag`], ends all ranks after the same batch.
///
/// One rank trains as burn-train's own `launch` does. A `TrainStep::optimize` of the model's own is called as usual,
/// with the averaged gradients; with an optimizer from [`shard`](Self::shard) it sees no gradients, and with parameters
/// of 16 bits what it does to them is undone by the main values of the next step. Gradients are summed over
/// burn-train's gradient accumulation, as on one rank.
///
/// The loss in `TrainStep::step` is a mean over samples: where ranks have different numbers of samples in a batch,
/// their gradients are weighted accordingly, and a rank without samples takes part with gradients of zero. A loader
/// gives such shares with [`LastBatch::Uneven`](crate::data::LastBatch::Uneven), and refuses them otherwise.
///
/// # Dropout
/// The dropout of a converted module, such as
/// [`ParallelTransformerEncoder`](crate::tensor_parallel::ParallelTransformerEncoder), needs to know the step. `launch`
/// names it by [`set_step`](ParallelContext::set_step) before each `TrainStep::step`: the iteration is the number of
/// the epoch, and the samples are the places of this rank's samples in the epoch's order, so that the same elements are
/// dropped on any number of ranks. The module is made with the context that is given to [`new`](Self::new).
///
/// A model whose modules see another number of rows than the batch has samples, or run twice in a step, names the step
/// itself, in place of `launch`: items and batches hold the samples' numbers, the model holds a clone of the context in
/// a field with `#[module(skip)]`, and `TrainStep::step` calls `set_step` before each forward pass, each time with
/// another iteration or other samples. The epoch is the `iteration` of
/// [`step_coordinates`](ParallelContext::step_coordinates).
///
/// # Examples
/// ```
/// use burn::backend::Autodiff;
/// use burn::data::dataloader::batcher::Batcher;
/// use burn::data::dataset::InMemDataset;
/// use burn::module::Module;
/// use burn::nn::loss::{MseLoss, Reduction};
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::AdamWConfig;
/// use burn::tensor::backend::{AutodiffBackend, Backend};
/// use burn::tensor::{Tensor, TensorData};
/// use burn::train::metric::LossMetric;
/// use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};
/// use burn_flex::Flex;
/// use burn_megatron::context::ParallelContext;
/// use burn_megatron::data::shard_loader;
/// use burn_megatron::data_parallel::DataParallelConfig;
/// use burn_megatron::learner::{ParallelLearner, SilentRenderer};
///
/// #[derive(Module, Debug)]
/// struct Doubler<B: Backend> {
///     linear: Linear<B>,
/// }
///
/// impl<B: Backend> Doubler<B> {
///     fn output(&self, input: Tensor<B, 2>) -> RegressionOutput<B> {
///         let (output, targets) = (self.linear.forward(input.clone()), input * 2.0);
///         let loss = MseLoss::new().forward(output.clone(), targets.clone(), Reduction::Mean);
///         RegressionOutput::new(loss, output, targets)
///     }
/// }
///
/// impl<B: AutodiffBackend> TrainStep for Doubler<B> {
///     type Input = Tensor<B, 2>;
///     type Output = RegressionOutput<B>;
///     fn step(&self, input: Tensor<B, 2>) -> TrainOutput<RegressionOutput<B>> {
///         let output = self.output(input);
///         TrainOutput::new(self, output.loss.backward(), output)
///     }
/// }
///
/// impl<B: Backend> InferenceStep for Doubler<B> {
///     type Input = Tensor<B, 2>;
///     type Output = RegressionOutput<B>;
///     fn step(&self, input: Tensor<B, 2>) -> RegressionOutput<B> {
///         self.output(input)
///     }
/// }
///
/// struct Numbers;
/// impl<B: Backend> Batcher<B, f32, Tensor<B, 2>> for Numbers {
///     fn batch(&self, numbers: Vec<f32>, device: &B::Device) -> Tensor<B, 2> {
///         let count = numbers.len();
///         Tensor::from_data(TensorData::new(numbers, [count, 1]), device)
///     }
/// }
///
/// type B = Autodiff<Flex>;
/// let context = ParallelContext::single(0); // in a job, that of this rank
/// let folder = tempfile::tempdir()?;
/// let numbers = || InMemDataset::new((0..32).map(|number| number as f32 / 32.0).collect());
/// let training = SupervisedTraining::new(
///     folder.path(),
///     shard_loader::<B, _, _>(Numbers, &context).batch_size(8).shuffle(1).build(numbers())?,
///     shard_loader::<Flex, _, _>(Numbers, &context).batch_size(8).build(numbers())?,
/// )
/// .metric_train_numeric(LossMetric::new())
/// .metric_valid_numeric(LossMetric::new())
/// .renderer(SilentRenderer)
/// .num_epochs(2);
///
/// let model = Doubler::<B> { linear: LinearConfig::new(1, 1).init(&Default::default()) };
/// let mut ranks = ParallelLearner::new(&context, DataParallelConfig::new());
/// // Or the optimizer itself, for a state that is whole on each rank.
/// let optimizer = ranks.shard(AdamWConfig::new().init());
/// let result = ranks.launch(training, Learner::new(model, optimizer, 1e-2))?;
/// println!("{}", result.model);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ParallelLearner<B: TrainingBackend, M> {
    context: ParallelContext,
    options: Options,
    sharded: Option<Arc<dyn ShardedUpdate<B, M>>>,
    model: PhantomData<M>,
}

impl<B, M> ParallelLearner<B, M>
where
    B: TrainingBackend,
    M: TrainStep<Output: GatherOutput> + AutodiffModule<B> + Display + 'static,
    M::InnerModule: InferenceStep<Output: GatherOutput>,
{
    /// Returns what launches trainings on the ranks of a context, whose models are wrapped as `config` says.
    pub fn new(context: &ParallelContext, config: DataParallelConfig) -> Self {
        Self {
            context: context.clone(),
            options: Options {
                config,
                stop_flag: None,
            },
            sharded: None,
            model: PhantomData,
        }
    }

    /// Lets a signal interrupt the training, as burn-train's `Interrupter` does: on whichever rank it comes.
    pub fn with_stop_flag(mut self, stop_flag: &StopFlag) -> Self {
        self.options.stop_flag = Some(stop_flag.clone());
        self
    }

    /// Returns an optimizer to be given to `Learner::new`, of which each data-parallel rank holds its share of the
    /// state: see [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer).
    pub fn shard<S>(&mut self, optimizer: OptimizerAdaptor<S, M, B>) -> ShardedLearnerOptimizer<B, M, S>
    where
        S: StoredOptimizer<B::InnerBackend> + 'static,
    {
        self.options.config.sharding = ShardingStrategy::Optim;
        let sharded = ShardedLearnerOptimizer::new(optimizer, &self.context);
        self.sharded = Some(sharded.update());
        sharded
    }

    /// Trains, as burn-train's `SupervisedTraining::launch`. Every rank of the context calls it, on one thread.
    ///
    /// # Communication
    /// That of [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel); for each batch an all-gather
    /// of 32 bytes over the world, and the outputs of each data-parallel rank to the first; a broadcast of 4 bytes per
    /// epoch; and with a sharded optimizer and checkpoints, once per epoch its state to the first rank.
    ///
    /// # Errors
    /// When the model cannot be wrapped, ranks were given different settings or the same samples, or a collective
    /// fails.
    ///
    /// # Panics
    /// When burn-train does, such as for a checkpoint that cannot be read.
    pub fn launch<LR, O>(
        self,
        training: SupervisedTraining<Components<B, LR, M, O>>,
        learner: Learner<Components<B, LR, M, O>>,
    ) -> Result<LearningResult<M::InnerModule>, LearnerError>
    where
        LR: LrScheduler + 'static,
        O: Optimizer<M, B> + 'static,
    {
        let Self {
            context,
            options,
            sharded,
            ..
        } = self;
        let stages = context.config().pipeline_parallel_size;
        if stages > 1 {
            return Err(LearnerError::Pipeline { stages });
        }
        if options.config.sharding.shards_optimizer() && sharded.is_none() {
            return Err(LearnerError::NotSharded);
        }
        let ranks = context.config().tensor_parallel_size;
        if ranks > 1 && sharded.is_none() {
            return Err(LearnerError::TensorOptimizer { ranks });
        }
        let training = match context.rank() {
            0 => training,
            _ => training
                .renderer(SilentRenderer)
                .with_metric_logger(SilentLogger)
                .with_application_logger(None),
        };
        let strategy = Strategy {
            context,
            options,
            sharded: sharded.clone(),
        };
        let training = training.with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy)));
        let set_launched = |is_launched| sharded.iter().for_each(|sharded| sharded.set_launched(is_launched));
        set_launched(true);
        let result = catch_unwind(AssertUnwindSafe(|| training.launch(learner)));
        set_launched(false);
        result.map_err(error_of)
    }
}

/// The error that a training was unwound with.
///
/// # Panics
/// Passes every other panic on.
fn error_of(payload: Box<dyn Any + Send>) -> LearnerError {
    let payload = match payload.downcast::<LearnerError>() {
        Ok(error) => return *error,
        Err(other) => other,
    };
    match payload.downcast::<CollectiveError>() {
        Ok(error) => LearnerError::Collective(*error),
        Err(other) => resume_unwind(other),
    }
}
