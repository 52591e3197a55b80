//! [`ShardingStrategy`]: what data-parallel ranks share out among themselves.

/// What data-parallel ranks share out among themselves, instead of each holding all of it: the stages of ZeRO, named as
/// Megatron-FSDP names them.
///
/// # Reference
/// Rajbhandari et al. 2020, arXiv:1910.02054, section 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardingStrategy {
    /// Nothing: stage 0.
    #[default]
    NoShard,
    /// The optimizer's state, and its main parameters: stage 1. Each rank updates its shard of the parameters.
    Optim,
    /// The gradients, too: stage 2. They are reduced to their shards in the backward pass of every micro-batch.
    OptimGrads,
    /// The parameters, too: stage 3. Each layer's are gathered before its forward pass and before its backward pass,
    /// and freed after each.
    OptimGradsParams,
}

impl ShardingStrategy {
    /// All of them, in the order of their stages.
    pub const ALL: [Self; 4] = [Self::NoShard, Self::Optim, Self::OptimGrads, Self::OptimGradsParams];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoShard => "no_shard",
            Self::Optim => "optim",
            Self::OptimGrads => "optim_grads",
            Self::OptimGradsParams => "optim_grads_params",
        }
    }

    /// The stage of ZeRO.
    pub fn stage(self) -> usize {
        self as usize
    }

    /// Checks that it can be had with this many pipeline stages.
    ///
    /// # Errors
    /// When there are several, and more is shared out than the optimizer's state.
    pub fn check_stages(self, stages: usize) -> Result<(), ShardedStagesError> {
        if stages > 1 && self.shards_gradients() {
            return Err(ShardedStagesError { sharding: self, stages });
        }
        Ok(())
    }

    /// Whether each rank has the optimizer's state of its shards only.
    pub fn shards_optimizer(self) -> bool {
        self >= Self::Optim
    }

    /// Whether each rank keeps the gradients of its shards only.
    pub fn shards_gradients(self) -> bool {
        self >= Self::OptimGrads
    }

    /// Whether each rank keeps its shards of the parameters only.
    pub fn shards_parameters(self) -> bool {
        self == Self::OptimGradsParams
    }
}

/// Gradients or parameters to be shared out, and several pipeline stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ZeRO stage {} needs a model in one pipeline stage, and there are {stages}: a step has many passes there, each of \
     which would reduce all gradients, and in stage 3 gather all parameters; use stage 1, which every layout has",
    sharding.stage()
)]
pub struct ShardedStagesError {
    /// What was to be shared out.
    pub sharding: ShardingStrategy,
    /// The pipeline stages.
    pub stages: usize,
}
