//! What can go wrong in data-parallel training. Raised throughout this room.

use burn::tensor::DType;

use crate::collectives::CollectiveError;
use crate::parameters::RegistryError;

/// What can go wrong in data-parallel training.
#[derive(Debug, thiserror::Error)]
pub enum DataParallelError {
    /// A collective failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// A parameter's layout is not known, or not what was declared.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Ranks that should hold the same do not.
    #[error(
        "parameter {name} differs between rank {first} and rank {other}, which should hold the same \
         (group {group}); they were initialised differently, or one of them computed something else"
    )]
    ReplicasDiffer {
        /// The parameter's name.
        name: String,
        /// The group whose members differ.
        group: String,
        /// The rank compared with.
        first: usize,
        /// The first rank that differs from it.
        other: usize,
    },
    /// Tied parameters that only one of the first and the last pipeline stage has.
    #[error(
        "ranks {first} and {other}, the first and the last stage of a pipeline, must declare the same tied parameters; \
         here they are {mine:?}"
    )]
    TiedParametersDiffer {
        /// What is declared on this rank.
        mine: Vec<String>,
        /// The first stage's rank.
        first: usize,
        /// The last stage's rank.
        other: usize,
    },
    /// burn's own dropout in a tensor-parallel model.
    #[error(
        "the module has burn's Dropout, which drops other elements on each of the {tensor} tensor-parallel ranks; \
         use burn_megatron::random::Dropout, which drops the same in every layout"
    )]
    ForeignDropout {
        /// The tensor-parallel size.
        tensor: usize,
    },
    /// A module of several element types.
    #[error(
        "all trained parameters must have one element type: {first} is {first_dtype:?} but {other} is {other_dtype:?}"
    )]
    MixedTypes {
        /// A parameter's path.
        first: String,
        /// Its type.
        first_dtype: DType,
        /// Another parameter's path.
        other: String,
        /// Its type.
        other_dtype: DType,
    },
    /// One parameter in two places of a module.
    #[error(
        "parameters {first} and {second} are clones of one parameter; hold it once and use it twice, as a tied \
         embedding does, or the second would hide the gradient of the first"
    )]
    SharedParameter {
        /// A parameter's path.
        first: String,
        /// The other's path.
        second: String,
    },
    /// An optimizer that gets whole gradients, and ranks that hold pieces of them.
    #[error(
        "optimizer {optimizer} takes whole gradients, but each data-parallel rank has its shard of them (shard_gradients is \
         on): update by a ShardedOptimizer, or wrap the module without shard_gradients"
    )]
    ShardedGradients {
        /// The optimizer's type.
        optimizer: String,
    },
    /// An optimizer that may look at whole parameters, and ranks that hold parts of them.
    #[error(
        "optimizer {optimizer} may need whole parameters, but each of {tensor} tensor-parallel ranks holds a part of {name}: \
         update by DistributedDataParallel::step with an element-wise optimizer"
    )]
    PartsOfParameters {
        /// The optimizer's type.
        optimizer: String,
        /// The first parameter that is cut.
        name: String,
        /// The tensor-parallel size.
        tensor: usize,
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
}
