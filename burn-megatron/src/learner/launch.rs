//! `ParallelLearner`: launches burn-train's supervised training on the ranks of a job.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use burn::optim::ModuleOptimizer;
use burn::train::{
    InferenceStep, Learner, LearnerModel, LearningResult, SupervisedTraining, TrainStep, TrainingStrategy,
};

use super::error::LearnerError;
use super::output::GatherOutput;
use super::sharded::{LearnerState, ShardedUpdate};
use super::silent::{SilentLogger, SilentRenderer};
use super::strategy::{Options, Strategy};
use crate::collectives::CollectiveError;
use crate::context::ParallelContext;
use crate::data_parallel::{DataParallelConfig, ElementWiseOptimizer, ShardingStrategy};
use crate::launch::StopFlag;
use crate::optimizer::StoredOptimizer;

/// Launches burn-train's supervised training on the ranks of a job, data-parallel: gradients are averaged in buckets
/// while the backward pass runs, as by [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel).
///
/// Every rank makes the same model, optimizer and settings, loads its share of each batch
/// ([`shard_loader`](crate::data::shard_loader())), and calls [`launch`](Self::launch). The same on all ranks are:
///
/// - Metrics, progress and the learning rate: outputs are joined on the first rank, sample by sample, so that any
///   metric of burn-train's sees the global batch, and `n` ranks report what one rank reports.
/// - The first rank renders, logs, writes the summary and the checkpoints; the others write nothing. Every rank reads
///   the checkpoint that a run resumes from, and must see the training's folder for that; the number of ranks may
///   change.
/// - Early stopping is decided by the first rank; an interruption asked for on any rank, by its `Interrupter` or a
///   [`StopFlag`], ends all ranks after the same batch.
///
/// One rank trains as burn-train's own `launch` does. A `TrainStep::optimize` of the model's own is called as usual,
/// with the averaged gradients; with an optimizer from [`shard`](Self::shard) it is called once, before the first step,
/// and must call the optimizer's `step`. Gradients are summed over burn-train's gradient accumulation, as on one rank.
/// Gradient checkpointing is a setting of the model's device: that of `SupervisedTraining` is not known here.
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
/// use burn::data::dataloader::batcher::Batcher;
/// use burn::data::dataset::InMemDataset;
/// use burn::module::Module;
/// use burn::nn::loss::{MseLoss, Reduction};
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::AdamWConfig;
/// use burn::tensor::{Device, Tensor, TensorData};
/// use burn::train::metric::LossMetric;
/// use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};
/// use burn_megatron::context::ParallelContext;
/// use burn_megatron::data::shard_loader;
/// use burn_megatron::data_parallel::{DataParallelConfig, ElementWiseOptimizer};
/// use burn_megatron::learner::{ParallelLearner, SilentRenderer};
///
/// #[derive(Module, Debug)]
/// struct Doubler {
///     linear: Linear,
/// }
///
/// impl Doubler {
///     fn output(&self, input: Tensor<2>) -> RegressionOutput {
///         let (output, targets) = (self.linear.forward(input.clone()), input * 2.0);
///         let loss = MseLoss::new().forward(output.clone(), targets.clone(), Reduction::Mean);
///         RegressionOutput::new(loss, output, targets)
///     }
/// }
///
/// impl TrainStep for Doubler {
///     type Input = Tensor<2>;
///     type Output = RegressionOutput;
///     fn step(&self, input: Tensor<2>) -> TrainOutput<RegressionOutput> {
///         let output = self.output(input);
///         TrainOutput::new(self, output.loss.backward(), output)
///     }
/// }
///
/// impl InferenceStep for Doubler {
///     type Input = Tensor<2>;
///     type Output = RegressionOutput;
///     fn step(&self, input: Tensor<2>) -> RegressionOutput {
///         self.output(input)
///     }
/// }
///
/// struct Numbers;
/// impl Batcher<f32, Tensor<2>> for Numbers {
///     fn batch(&self, numbers: Vec<f32>, device: &Device) -> Tensor<2> {
///         let count = numbers.len();
///         Tensor::from_data(TensorData::new(numbers, [count, 1]), device)
///     }
/// }
///
/// let context = ParallelContext::single(0); // in a job, that of this rank
/// let folder = tempfile::tempdir()?;
/// let numbers = || InMemDataset::new((0..32).map(|number| number as f32 / 32.0).collect());
/// let training = SupervisedTraining::new(
///     folder.path(),
///     shard_loader(Numbers, &context).batch_size(8).shuffle(1).build(numbers())?,
///     shard_loader(Numbers, &context).batch_size(8).build(numbers())?,
/// )
/// .metric_train_numeric(LossMetric::new())
/// .metric_valid_numeric(LossMetric::new())
/// .renderer(Box::new(SilentRenderer))
/// .num_epochs(2);
///
/// let model = Doubler { linear: LinearConfig::new(1, 1).init(&Device::flex().autodiff()) };
/// let mut ranks = ParallelLearner::new(&context, DataParallelConfig::new());
/// // Or the optimizer itself, for a state that is whole on each rank.
/// let optimizer = ranks.shard(ElementWiseOptimizer::from(AdamWConfig::new().build()));
/// let result = ranks.launch(training, Learner::new(model, optimizer, 1e-2))?;
/// println!("{}", result.model);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ParallelLearner<M> {
    context: ParallelContext,
    options: Options,
    sharded: Option<Arc<dyn ShardedUpdate<M>>>,
}

impl<M> ParallelLearner<M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
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
        }
    }

    /// Lets a signal interrupt the training, as burn-train's `Interrupter` does: on whichever rank it comes.
    pub fn with_stop_flag(mut self, stop_flag: &StopFlag) -> Self {
        self.options.stop_flag = Some(stop_flag.clone());
        self
    }

    /// Shards an optimizer: each data-parallel rank holds its share of the state, see
    /// [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer). Returns what is to be given to `Learner::new` in its
    /// place.
    ///
    /// burn-train's checkpoint of it holds the whole state, and resumes on any number of ranks; the record of an
    /// optimizer that is not sharded is another, and is refused. Outside [`launch`](Self::launch) its first step
    /// panics.
    pub fn shard<S: StoredOptimizer + 'static>(&mut self, optimizer: ElementWiseOptimizer<S>) -> ModuleOptimizer {
        self.options.config.sharding = ShardingStrategy::Optim;
        let state = LearnerState::new(optimizer, &self.context);
        let holder = state.holder();
        self.sharded = Some(Arc::new(state));
        holder
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
    pub fn launch(
        self,
        training: SupervisedTraining<M>,
        learner: Learner<M>,
    ) -> Result<LearningResult<M>, LearnerError> {
        let Self {
            context,
            options,
            sharded,
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
                .renderer(Box::new(SilentRenderer))
                .with_metric_logger(SilentLogger)
                .with_progress_logger(SilentRenderer)
                .with_application_logger(None),
        };
        let strategy = Strategy {
            context,
            options,
            sharded,
        };
        let training = training.with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy)));
        catch_unwind(AssertUnwindSafe(|| training.launch(learner))).map_err(error_of)
    }
}

/// Returns the error that a training was unwound with.
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
