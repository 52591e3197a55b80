//! What can go wrong in data-parallel training.

use burn::tensor::DType;

use super::progress::Progress;
use super::sharding_strategy::ShardedStagesError;
use crate::collectives::{CollectiveError, InputError, InputsDiffer};
use crate::offload::OffloadError;
use crate::parameters::{ParameterEntry, RecordError, RegistryError};

/// What can go wrong in data-parallel training.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum DataParallelError {
    /// A collective failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// A parameter's layout is not known, or not what was declared.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A GPU has not done what it was given.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    LostWork(#[from] crate::cuda::LostWork),
    /// Parameters that are offloaded cannot be read or written.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    #[error(
        "parameters are offloaded as shards, in ZeRO stage 3 only: use ShardingStrategy::OptimGradsParams \
         (--zero-stage 3), or leave out offload_parameters (--offload-param)"
    )]
    OffloadOfWhole,
    /// A record is not that of this rank's module.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Ranks that share each layer were given different samples.
    #[error(transparent)]
    InputsDiffer(InputsDiffer),
    #[error(
        "the loss of step {step} is {first_loss} on rank {first} and {other_loss} on rank {other} (group {group}): the \
         ranks of this group share each layer and must compute the same loss of the same samples and targets; choose \
         both by the data-parallel rank, ParallelContext::data_group().rank(), not by the rank in the world; a loss \
         with terms that differ by rank is not compared with DataParallelConfig::with_check_inputs_interval(0)"
    )]
    LossesDiffer {
        /// The step, counted from 1.
        step: u32,
        group: String,
        first: usize,
        first_loss: f64,
        other: usize,
        other_loss: f64,
    },
    #[error(
        "the loss has shape {shape:?}, expected one element: the mean over this rank's samples, as by `loss.mean()`, \
         divided by the number of micro-batches"
    )]
    LossShape { shape: Vec<usize> },
    #[error(
        "the ranks of group {group} do not have the same module: parameter {number} is {first_has} on rank {first} and \
         {other_has} on rank {other}; build, freeze and update the module alike on all ranks of the group"
    )]
    ModulesDiffer {
        group: String,
        /// The number of the parameter in the module's order, counted from 1.
        number: usize,
        first: usize,
        /// Name, shape and type of its parameter.
        first_has: String,
        other: usize,
        /// Name, shape and type of its parameter.
        other_has: String,
    },
    /// Ranks that hold the same parameters have not made the same steps and updates.
    #[error(
        "rank {other} has made {other_made} where rank {first} has made {first_made} (group {group}): every rank of \
         the group must call step and update as often as the others, or their parameters drift apart"
    )]
    OutOfStep {
        group: String,
        first: usize,
        first_made: Progress,
        other: usize,
        other_made: Progress,
    },
    /// Ranks that are in different steps.
    #[error(
        "{what} is {first_value} on rank {first} and {other_value} on rank {other} (group {group}): a rank has left a \
         step out, or runs another program, and gradients of different steps would be averaged; every rank of the \
         group must take part in every step, by pass_without_samples where it has no samples"
    )]
    OtherStep {
        what: &'static str,
        group: String,
        first: usize,
        first_value: String,
        other: usize,
        other_value: String,
    },
    #[error(
        "no parameter of the module is trained: {}; freeze some parameters only, by no_grad of a part of the module, \
         or thaw them with Param::set_require_grad(true); a module that is not to be trained runs without \
         DistributedDataParallel, as `module.valid()`",
        list_untrained(parameters)
    )]
    NothingToTrain {
        /// The paths of its parameters, none of which requires a gradient.
        parameters: Vec<String>,
    },
    #[error(
        "all trained parameters must be on one device: {first} is on {first_device} but {other} is on {other_device}; \
         move the whole module by Module::to_device or fork"
    )]
    MixedDevices {
        first: String,
        first_device: String,
        other: String,
        other_device: String,
    },
    #[error(
        "parameter {name} differs between rank {first} and rank {other}, which should hold the same \
         (group {group}); they were initialised differently, or one of them computed something else"
    )]
    ReplicasDiffer {
        name: String,
        group: String,
        first: usize,
        other: usize,
    },
    /// Found when replicas were compared at an interval of steps.
    #[error("after step {step}: {source}")]
    AfterStep {
        /// The step, counted from 1.
        step: u32,
        source: Box<DataParallelError>,
    },
    /// Tied parameters that only one of the first and the last pipeline stage has.
    #[error(
        "ranks {first} and {other}, the first and the last stage of a pipeline, must declare the same tied parameters; \
         here they are {mine:?}"
    )]
    TiedParametersDiffer {
        mine: Vec<String>,
        first: usize,
        other: usize,
    },
    #[error(
        "the module has burn's Dropout, which drops other elements on each of the {tensor} tensor-parallel ranks; \
         use burn_megatron::random::Dropout, which drops the same in every layout"
    )]
    ForeignDropout { tensor: usize },
    #[error(
        "all trained parameters must have one element type: {first} is {first_dtype:?} but {other} is {other_dtype:?}"
    )]
    MixedTypes {
        first: String,
        first_dtype: DType,
        other: String,
        other_dtype: DType,
    },
    #[error(
        "parameters {first} and {second} are clones of one parameter; hold it once and use it twice, as a tied \
         embedding does, or the second would hide the gradient of the first"
    )]
    SharedParameter { first: String, second: String },
    /// A micro-batch in which a rank has no samples, while the others need its shards of the parameters.
    #[error(
        "this rank has no samples in a micro-batch, and in ZeRO stage 3 the other ranks gather each layer's parameters \
         from it: give every rank samples in every micro-batch, such as by leaving out the last global batch where it \
         is not full, or use stage 2"
    )]
    PassWithoutSamples,
    /// A parameter with a transformation of burn's `ParamMapper`, whose value is to be gathered when it is read.
    #[error(
        "parameter {name} is transformed when it is loaded or saved, which ZeRO stage 3 does not support: remove its \
         load_mapper and save_mapper, or use stage 2"
    )]
    TransformedParameter { name: String },
    /// Several instances of a sharded optimizer, and nothing that is sharded.
    #[error(
        "the context has {instances} instances of a sharded optimizer (num_distributed_optimizer_instances), and \
         nothing is sharded: choose a ShardingStrategy (--zero-stage 1, 2 or 3), or one instance"
    )]
    InstancesOfNothing { instances: usize },
    /// More is shared out than pipeline stages can.
    #[error(transparent)]
    ShardedStages(#[from] ShardedStagesError),
    /// An optimizer that gets whole gradients, and ranks that hold pieces of them.
    #[error(
        "optimizer {optimizer} takes whole gradients, but each data-parallel rank has its shard of them \
         (DataParallelConfig::sharding): update by a ShardedOptimizer, or wrap the module with \
         ShardingStrategy::NoShard"
    )]
    ShardedGradients { optimizer: String },
    /// An optimizer that may look at whole parameters, and ranks that hold parts of them.
    #[error(
        "optimizer {optimizer} may need whole parameters, but each of {tensor} tensor-parallel ranks holds a part of \
         {name}: update by DistributedDataParallel::step with an element-wise optimizer, or by a ShardedOptimizer, \
         which brings together what optimizer::Muon and optimizer::Adafactor need of the other ranks"
    )]
    PartsOfParameters {
        optimizer: String,
        /// The first parameter that is cut.
        name: String,
        tensor: usize,
    },
    #[error(
        "optimizer {optimizer} updates whole matrices, and parameter {name} of shape {shape:?} is none: give it \
         another optimizer, in a group of a ShardedOptimizer with AnyOptimizer"
    )]
    NoMatrix {
        optimizer: String,
        /// The first such parameter.
        name: String,
        shape: Vec<usize>,
    },
    /// A backward pass that reached no parameter on any rank.
    #[error(
        "no parameter received a gradient in this step: the loss must be computed with the module that the closure \
         is given, not with one it captured"
    )]
    NoGradients,
    /// A backward pass between a step's last one and the taking of its gradients.
    #[error("the step's last micro-batch has been through: take its gradients before the next step begins")]
    StepNotTaken,
    #[error(
        "{count} gradients are not of the module's parameters: take them from the same module, as in \
         GradientsParams::from_grads(loss.backward(), &module)"
    )]
    ForeignGradients { count: usize },
}

impl DataParallelError {
    /// What is wrong with a module that has these parameters, none of them trained.
    pub(super) fn nothing_to_train(parameters: &[ParameterEntry]) -> Self {
        Self::NothingToTrain {
            parameters: parameters.iter().map(|parameter| parameter.path.clone()).collect(),
        }
    }
}

impl From<InputError> for DataParallelError {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Differ(difference) => Self::InputsDiffer(difference),
            InputError::Collective(error) => Self::Collective(error),
        }
    }
}

/// `fc.weight, fc.bias and 4 others do not require gradients (…)`.
fn list_untrained(parameters: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = parameters[..parameters.len().min(SHOWN)].join(", ");
    match parameters.len() {
        0 => "it has no float parameter".to_owned(),
        count if count <= SHOWN => format!("{shown}: no gradient is required (by no_grad or set_require_grad(false))"),
        count => format!(
            "{shown} and {} more: no gradient is required (by no_grad or set_require_grad(false))",
            count - SHOWN
        ),
    }
}
