//! `DistributedDataParallel`: any burn module, trained on several ranks that each see their own samples.
//!
//! Called by the trainer and by programs that train a model of their own.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::config::Config;
use burn::module::AutodiffModule;
use burn::tensor::{DType, Tensor, ops::FloatTensor};

use super::bucket::BucketLayout;
use super::gradients::{GradientEntry, ReducedGradients};
use super::hook::{GradientSink, HookBackend, hook_module};
use super::reducer::Reducer;
use super::replica_check::check_replicas;
use super::sync::{Selection, WeightSync, broadcast_module};
use crate::collectives::{CollectiveError, ReduceOp, catch_collective_error};
use crate::context::ParallelContext;
use crate::mutants::{self, Mutant};
use crate::parameters::{Declaration, Distribution, ParameterEntry, Placement, RegistryError, list_parameters};

/// Configuration of [`DistributedDataParallel`].
#[derive(Config, Debug)]
pub struct DataParallelConfig {
    /// Elements per bucket; Megatron's default, the larger of 40 million and 1 million per data-parallel rank, if not
    /// given.
    pub bucket_size: Option<usize>,
    /// What happens to weights and buffers at wrapping.
    #[config(default = "WeightSync::Broadcast")]
    pub weight_sync: WeightSync,
    /// Whether buffers, such as a batch norm's running mean, are taken from the first rank at the start of each step.
    #[config(default = true)]
    pub broadcast_buffers: bool,
}

/// Which micro-batch of a step a backward pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MicroBatch {
    /// Others follow: gradients are only accumulated.
    More,
    /// The step's last: full buckets are reduced while the backward pass goes on.
    Last,
}

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
}

/// A module whose gradients are accumulated over micro-batches and averaged over the data-parallel group.
///
/// One step: [`backward`](Self::backward) for each micro-batch, [`gradients`](Self::gradients), the optimizer's step in
/// [`update`](Self::update).
#[derive(Debug)]
pub struct DistributedDataParallel<B: HookBackend, M> {
    /// There is always one, save inside `update`.
    module: Option<M>,
    context: ParallelContext,
    config: DataParallelConfig,
    entries: Arc<[GradientEntry]>,
    dtype: DType,
    has_buffers: bool,
    anchors: Vec<FloatTensor<B>>,
    reducer: Arc<Reducer>,
    is_step_begun: bool,
    backend: PhantomData<B>,
}

impl<B: HookBackend, M: AutodiffModule<B>> DistributedDataParallel<B, M> {
    /// Wraps a module. Lazy parameters are initialised.
    ///
    /// # Communication
    /// Over the data-parallel group, one broadcast per parameter or, to verify, as [`check_replicas`].
    ///
    /// # Errors
    /// When a parameter has not declared its layout under sequence parallelism, when parameters differ in type, when
    /// the module has burn's own `Dropout` and tensor-parallel ranks, when replicas differ and were to be verified, or
    /// when a collective fails.
    pub fn new(module: M, context: &ParallelContext, config: DataParallelConfig) -> Result<Self, DataParallelError> {
        refuse_foreign_dropout(&module, context)?;
        let group = context.data_group();
        let parameters = list_parameters::<B, M>(&module);
        let dtype = one_dtype(&parameters)?;
        let module = match config.weight_sync {
            WeightSync::Broadcast => broadcast_module::<B, M>(module, Selection::All, group)?,
            WeightSync::Verify => {
                check_replicas::<B, M>(&module, context)?;
                module
            }
        };
        let trained: Vec<&ParameterEntry> = parameters.iter().filter(|p| p.requires_grad).collect();
        let lengths: Vec<usize> = trained.iter().map(|p| p.len()).collect();
        let bucket_size = config.bucket_size.unwrap_or(40_000_000.max(1_000_000 * group.size()));
        let layout = BucketLayout::new(&lengths, bucket_size);
        let entries = trained
            .iter()
            .zip(layout.slots())
            .map(|(parameter, &slot)| {
                let declaration = declaration_of(parameter, context)?;
                Ok(GradientEntry {
                    id: parameter.id,
                    name: declaration.name,
                    shape: parameter.shape.clone(),
                    placement: declaration.placement,
                    distribution: declaration.distribution,
                    slot,
                })
            })
            .collect::<Result<Arc<[_]>, RegistryError>>()?;
        let op = match mutants::is_active(Mutant::DataParallelSumForMean) {
            true => ReduceOp::Sum,
            false => ReduceOp::Mean,
        };
        let device = module.devices().first().cloned().unwrap_or_default();
        Ok(Self {
            anchors: B::anchors(entries.len(), &device),
            reducer: Arc::new(Reducer::new(layout, dtype, group.clone(), op)),
            has_buffers: parameters.iter().any(|p| !p.requires_grad),
            module: Some(module),
            context: context.clone(),
            config,
            entries,
            dtype,
            is_step_begun: false,
            backend: PhantomData,
        })
    }

    /// The module.
    pub fn module(&self) -> &M {
        self.module.as_ref().expect("absent inside `update` only")
    }

    /// Returns the module.
    pub fn into_module(self) -> M {
        self.module.expect("absent inside `update` only")
    }

    /// Runs one micro-batch forward and backward, and returns its loss.
    ///
    /// `forward` gets a clone of the module, good for this pass only, and returns a loss of one element: the mean over
    /// this rank's part of the step, divided by the number of micro-batches. The gradient is added to the step's.
    ///
    /// # Communication
    /// What `forward` does; on the last micro-batch the start of one all-reduce (mean) per full bucket over the
    /// data-parallel group. On the first of a step, one broadcast per buffer of the module.
    ///
    /// # Errors
    /// When a collective fails. The step is lost.
    ///
    /// # Panics
    /// When `forward` does.
    pub fn backward(
        &mut self,
        micro_batch: MicroBatch,
        forward: impl FnOnce(M) -> Tensor<B, 1>,
    ) -> Result<Tensor<B::InnerBackend, 1>, DataParallelError> {
        if !self.is_step_begun {
            self.is_step_begun = true;
            self.sync_buffers()?;
        }
        if micro_batch == MicroBatch::Last {
            self.reducer.expect_last_micro_batch();
        }
        let sink: Arc<dyn GradientSink> = self.reducer.clone();
        let hooked = hook_module::<B, M>(self.module().clone(), &self.anchors, &sink);
        Ok(catch_collective_error(|| {
            let loss = forward(hooked);
            let value = loss.clone().inner();
            loss.backward();
            value
        })?)
    }

    /// Waits for the reductions and returns the step's gradients: averaged over the data-parallel group, partial ones
    /// summed over the tensor group. Parameters that got no gradient have zeros.
    ///
    /// # Communication
    /// The rest of the buckets over the data-parallel group; under sequence parallelism one all-reduce of the partial
    /// gradients over the tensor group.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn gradients(&mut self) -> Result<ReducedGradients, DataParallelError> {
        self.is_step_begun = false;
        let buckets = self.reducer.finish()?;
        Ok(ReducedGradients::new(
            self.entries.clone(),
            buckets,
            self.reducer.clone(),
            &self.context,
            self.dtype,
        )?)
    }

    /// Replaces the module by what `update` makes of it, such as an optimizer's step.
    pub fn update(&mut self, update: impl FnOnce(M) -> M) {
        self.module = self.module.take().map(update);
    }

    /// Compares the replicas of the module: see [`check_replicas`].
    ///
    /// # Errors
    /// As [`check_replicas`].
    pub fn check_replicas(&self) -> Result<(), DataParallelError> {
        check_replicas::<B, M>(self.module(), &self.context)
    }

    fn sync_buffers(&mut self) -> Result<(), DataParallelError> {
        if !self.has_buffers || !self.config.broadcast_buffers {
            return Ok(());
        }
        let module = self.module.take().expect("absent inside `update` only");
        // A record takes in what the last forward pass left pending in a batch norm's running state.
        drop(module.clone().into_record());
        let group = self.context.data_group();
        self.module = Some(broadcast_module::<B, M>(module, Selection::Buffers, group)?);
        Ok(())
    }
}

/// Refuses a module that shows burn's `Dropout` when printed, the only place where it can be seen from outside.
fn refuse_foreign_dropout<M: std::fmt::Debug>(module: &M, context: &ParallelContext) -> Result<(), DataParallelError> {
    let tensor = context.tensor_group().size();
    if tensor == 1 {
        return Ok(());
    }
    let printed = format!("{module:?}");
    let mut probabilities = printed.split("Dropout { prob: ").skip(1);
    match probabilities.any(|rest| !rest.starts_with("0.0 }")) {
        true => Err(DataParallelError::ForeignDropout { tensor }),
        false => Ok(()),
    }
}

/// The one element type of the trained parameters.
fn one_dtype(parameters: &[ParameterEntry]) -> Result<DType, DataParallelError> {
    let mut trained = parameters.iter().filter(|p| p.requires_grad);
    let Some(first) = trained.next() else {
        return Ok(DType::F32);
    };
    match trained.find(|p| p.dtype != first.dtype) {
        None => Ok(first.dtype),
        Some(other) => Err(DataParallelError::MixedTypes {
            first: first.path.clone(),
            first_dtype: first.dtype,
            other: other.path.clone(),
            other_dtype: other.dtype,
        }),
    }
}

/// What a parameter has declared; a parameter of a plain burn layer is taken as replicated, which is right unless
/// the sequence is sharded.
fn declaration_of(parameter: &ParameterEntry, context: &ParallelContext) -> Result<Declaration, RegistryError> {
    match context.registry().declaration(parameter.id) {
        Some(declaration) if declaration.placement.local_len() == parameter.len() => Ok(declaration),
        Some(declaration) => Err(RegistryError::ShapeChanged {
            name: declaration.name,
            declared: declaration.placement.local_len(),
            actual: parameter.len(),
        }),
        None if context.is_sequence_parallel() => Err(RegistryError::Undeclared {
            path: parameter.path.clone(),
        }),
        None => Ok(Declaration {
            name: parameter.path.clone(),
            placement: Placement::whole(parameter.shape.clone()),
            distribution: Distribution::Replicated,
        }),
    }
}
