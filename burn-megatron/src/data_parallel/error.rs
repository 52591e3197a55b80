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
    /// A backward pass that reached no parameter on any rank.
    #[error(
        "no parameter received a gradient in this step: the loss must be computed with the module that the closure \
         is given, not with one it captured"
    )]
    NoGradients,
    /// A backward pass between a step's last one and the taking of its gradients.
    #[error("the step's last micro-batch has been through: take its gradients before the next step begins")]
    StepNotTaken,
    /// Modules that are not the same on all ranks.
    #[error(
        "rank {rank} averages gradients of another module than rank {first} (group {group}): parameter number {number} \
         differs, which is {mine} on rank {this}"
    )]
    ModulesDiffer {
        /// The group.
        group: String,
        /// The group's first rank.
        first: usize,
        /// The first rank with another parameter.
        rank: usize,
        /// The number of the first parameter that differs, in the module's order.
        number: usize,
        /// This rank.
        this: usize,
        /// Its parameter of this number.
        mine: String,
    },
    /// Gradients that no parameter of the module has.
    #[error(
        "{count} gradients are not of the module's parameters: take them from the same module, as in \
         GradientsParams::from_grads(loss.backward(), &module)"
    )]
    ForeignGradients {
        /// How many.
        count: usize,
    },
}
