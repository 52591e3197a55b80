//! [`ParallelContext`]: this rank's process groups. [`ParameterScope`]: where a module declares its parameters.
//!
//! A process has one context. It is made by [`ParallelConfig::init`], or by a [`ParallelContextConfig`] that also says
//! the seed or how groups are made. Layers are made in a [`scope`](ParallelContext::scope) of it.

mod config;
mod messages;
mod records;
mod scope;
mod tensor_overlap;

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use burn::module::Param;
use burn::tensor::Tensor;
use burn::tensor::kind::Basic;

use crate::collectives::{CollectiveError, InputError, ProcessGroup, compare_input};
use crate::launch::World;
use crate::parameters::ParameterRegistry;
use crate::random::{CurrentStep, StepCoordinates};
use crate::topology::{Coordinates, GroupKind, ParallelConfig, RankGrid, SplitTensorGroups, TopologyError};

pub use config::{ContextError, ParallelContextConfig};
pub(crate) use messages::broadcast_bytes;
#[cfg(any(feature = "checkpoint", feature = "learner"))]
pub(crate) use messages::gather_bytes;
pub use scope::{ParameterScope, ParameterSpec};
pub use tensor_overlap::TensorOverlap;

/// This rank's process groups and parameter declarations. Clones share them.
#[derive(Clone, Debug)]
pub struct ParallelContext {
    config: ParallelConfig,
    grid: RankGrid,
    rank: usize,
    world: ProcessGroup,
    tensor: ProcessGroup,
    data: ProcessGroup,
    shard: ProcessGroup,
    replica: ProcessGroup,
    pipeline: ProcessGroup,
    pipeline_backward: ProcessGroup,
    embedding: Option<ProcessGroup>,
    model: ProcessGroup,
    registry: ParameterRegistry,
    seed: u64,
    is_deterministic: bool,
    overlap_tensor_reduce: bool,
    tensor_overlap: TensorOverlap,
    has_layer_segments: bool,
    offloaded_layers: usize,
    has_lazy_parameters: bool,
    step: CurrentStep,
}

impl ParallelContext {
    /// Returns the context of a world of one rank. `seed` is that of the initialisation.
    pub fn single(seed: u64) -> Self {
        let config = ParallelContextConfig::new(ParallelConfig::new()).with_seed(seed);
        let grid = config.parallel.grid(1).expect("one rank fits one rank");
        let context = Self::of_groups(&config, grid, 0, |_| {
            unreachable!("a group of one rank is not connected")
        });
        context.expect("nothing is connected")
    }

    fn connect(world: &World, config: &ParallelContextConfig) -> Result<Self, ContextError> {
        let grid = config.parallel.grid(world.world_size())?;
        let (instances, data_parallel_size) = (config.num_distributed_optimizer_instances, grid.data_parallel_size());
        if instances == 0 || !data_parallel_size.is_multiple_of(instances) {
            return Err(ContextError::OptimizerInstances {
                instances,
                data_parallel_size,
            });
        }
        if world.rank() == 0
            && !world.is_fake()
            && let Some(split) = SplitTensorGroups::find(&grid, |rank| world.node_of(rank))
        {
            tracing::warn!("{}", split.warning(|rank| world.host_of(rank).ok()));
        }
        let connect = |groups: &[(&str, Vec<usize>)]| ProcessGroup::connect_all(world, groups, &config.groups);
        Ok(Self::of_groups(config, grid, world.rank(), connect)?)
    }

    /// Returns the context of a rank, whose groups of several ranks `connect` makes, all at once, from their names and
    /// ranks.
    fn of_groups(
        config: &ParallelContextConfig,
        grid: RankGrid,
        rank: usize,
        connect: impl FnOnce(&[(&str, Vec<usize>)]) -> Result<Vec<ProcessGroup>, CollectiveError>,
    ) -> Result<Self, CollectiveError> {
        let of_kind = |kind: GroupKind| Some((kind.name(), grid.group(kind, rank)?));
        let mut members: Vec<(&str, Vec<usize>)> = GroupKind::ALL.into_iter().filter_map(of_kind).collect();
        let ranks_of = |kind| grid.group(kind, rank).expect("every rank has one");
        members.push(("pipeline-backward", ranks_of(GroupKind::Pipeline)));
        let instances = config.num_distributed_optimizer_instances;
        if instances > 1 {
            let ranks = ranks_of(GroupKind::Data);
            let each = ranks.len() / instances;
            let own = ranks.binary_search(&rank).expect("a rank is in its group");
            let (first, place) = (own - own % each, own % each);
            members.push(("shard", ranks[first..first + each].to_vec()));
            members.push(("replica", ranks.into_iter().skip(place).step_by(each).collect()));
        }
        members.retain(|(_, ranks)| ranks.len() > 1);
        let made = if members.is_empty() { vec![] } else { connect(&members)? };
        let made: HashMap<&str, ProcessGroup> = members.iter().map(|(name, _)| *name).zip(made).collect();
        // A group that is not among them has this rank alone.
        let named = |name: &str| made.get(name).cloned().unwrap_or_else(ProcessGroup::single);
        let of_kind = |kind: GroupKind| named(kind.name());
        let data = of_kind(GroupKind::Data);
        let has_embedding = grid.group(GroupKind::Embedding, rank).is_some();
        Ok(Self {
            pipeline_backward: named("pipeline-backward"),
            world: of_kind(GroupKind::World),
            tensor: of_kind(GroupKind::Tensor),
            shard: if instances == 1 { data.clone() } else { named("shard") },
            replica: named("replica"),
            data,
            pipeline: of_kind(GroupKind::Pipeline),
            embedding: has_embedding.then(|| of_kind(GroupKind::Embedding)),
            model: of_kind(GroupKind::Model),
            config: config.parallel,
            grid,
            rank,
            registry: ParameterRegistry::default(),
            seed: config.seed,
            is_deterministic: false,
            overlap_tensor_reduce: true,
            tensor_overlap: TensorOverlap::default(),
            has_layer_segments: false,
            offloaded_layers: 0,
            has_lazy_parameters: false,
            step: CurrentStep::new(config.seed),
        })
    }

    /// Returns the context of the same ranks for a model whose parameters are cut over the data-parallel ranks, too:
    /// all ranks are in the tensor-parallel group, that of ranks with different parts, and none is a replica. For
    /// [`PlacedDataParallel`](crate::sharded::PlacedDataParallel) with a plan of
    /// [`fully_shard`](crate::sharded::Plan::fully_shard), alone: the mesh and loaders of samples are made of this
    /// context, whose data-parallel ranks they know.
    ///
    /// # Errors
    /// When there are pipeline stages.
    pub fn fully_sharded(&self) -> Result<Self, ContextError> {
        let stages = self.pipeline.size();
        if stages > 1 {
            return Err(ContextError::FullyShardedStages(stages));
        }
        let config = self.config.with_tensor_parallel_size(self.world.size());
        Ok(Self {
            grid: config.grid(self.world.size())?,
            config,
            tensor: self.world.clone(),
            data: ProcessGroup::single(),
            shard: ProcessGroup::single(),
            replica: ProcessGroup::single(),
            model: self.world.clone(),
            ..self.clone()
        })
    }

    /// Returns the same context for models that run each layer as a [segment](crate::pipeline_parallel::PipelineStage)
    /// of its own, or not, as at first. With sharded parameters those of a segment are freed after it.
    pub fn with_layer_segments(self, has_layer_segments: bool) -> Self {
        Self {
            has_layer_segments,
            ..self
        }
    }

    /// Whether models run each layer as a segment of its own, as they do too where some are
    /// [offloaded](Self::with_offloaded_layers).
    pub fn has_layer_segments(&self) -> bool {
        self.has_layer_segments || self.offloaded_layers > 0
    }

    /// Returns the same context for models of which the first `offloaded_layers` layers of each chunk have their
    /// activations in host memory between forward and backward pass: see
    /// [`is_offloaded`](crate::pipeline_parallel::PipelineStage::is_offloaded). None at first.
    pub fn with_offloaded_layers(self, offloaded_layers: usize) -> Self {
        Self {
            offloaded_layers,
            ..self
        }
    }

    /// How many layers of each chunk have their activations in host memory.
    pub fn offloaded_layers(&self) -> usize {
        self.offloaded_layers
    }

    /// Returns the same context for layers whose parameters get their values when they are first read, or when they are
    /// made, as at first. A model that no memory holds can be made so, and its parameters counted; or trained with
    /// sharded parameters, of which each rank then draws its shards alone. A parameter without values counts as
    /// trained, whatever its `set_require_grad` was given: to freeze one, read it first, as
    /// [`initialize`](crate::initialize) does.
    pub fn with_lazy_parameters(self, has_lazy_parameters: bool) -> Self {
        Self {
            has_lazy_parameters,
            ..self
        }
    }

    /// Whether parameters get their values when they are first read.
    pub(crate) fn has_lazy_parameters(&self) -> bool {
        self.has_lazy_parameters
    }

    /// Returns the same context for layers whose operations all give the same bits for the same inputs, or not all of
    /// them: where faster ones do not, layers run those unless this says otherwise.
    pub fn with_deterministic(self, is_deterministic: bool) -> Self {
        Self {
            is_deterministic,
            ..self
        }
    }

    /// Whether every operation gives the same bits for the same inputs.
    pub fn is_deterministic(&self) -> bool {
        self.is_deterministic
    }

    /// Returns the same context for column-parallel layers that compute the gradient of their weight while that of
    /// their input is added up over the tensor group, as fused ones do unless this says otherwise.
    pub fn with_overlap_tensor_reduce(self, overlap_tensor_reduce: bool) -> Self {
        Self {
            overlap_tensor_reduce,
            ..self
        }
    }

    /// Whether they do.
    pub fn overlaps_tensor_reduce(&self) -> bool {
        self.overlap_tensor_reduce
    }

    /// Sets how fused tensor-parallel linear layers overlap their collectives with their matmuls under sequence
    /// parallelism. Layers that share one gathered input are not chunked. Unless `Off`, column-parallel layers also
    /// overlap their reductions, as [`with_overlap_tensor_reduce`](Self::with_overlap_tensor_reduce) says.
    pub fn with_tensor_overlap(self, tensor_overlap: TensorOverlap) -> Self {
        Self { tensor_overlap, ..self }
    }

    /// How linear layers overlap their collectives with their matmuls.
    pub fn tensor_overlap(&self) -> TensorOverlap {
        self.tensor_overlap
    }

    /// The sizes of the axes.
    pub fn config(&self) -> &ParallelConfig {
        &self.config
    }

    /// The grid of ranks.
    pub fn grid(&self) -> &RankGrid {
        &self.grid
    }

    /// This rank's number in the world.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// This rank's place on the axes.
    pub fn coordinates(&self) -> Coordinates {
        self.grid.coordinates(self.rank)
    }

    /// Every rank.
    pub fn world_group(&self) -> &ProcessGroup {
        &self.world
    }

    /// The ranks that share each layer.
    pub fn tensor_group(&self) -> &ProcessGroup {
        &self.tensor
    }

    /// The ranks that hold the same parameters and see different samples.
    pub fn data_group(&self) -> &ProcessGroup {
        &self.data
    }

    /// The data-parallel ranks that share out what a sharded optimizer shares out: all of them, unless there are
    /// several [instances](ParallelContextConfig::num_distributed_optimizer_instances) of it.
    pub fn shard_group(&self) -> &ProcessGroup {
        &self.shard
    }

    /// The data-parallel ranks that have the same shards, one of each instance of a sharded optimizer.
    pub fn replica_group(&self) -> &ProcessGroup {
        &self.replica
    }

    /// Returns which of a global batch's samples this data-parallel rank computes: an equal, contiguous part.
    ///
    /// In [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) the ranks compare in each step
    /// which global batch the training thread has asked for last.
    ///
    /// # Errors
    /// When the data-parallel size does not divide their number.
    pub fn data_shard(&self, samples: Range<usize>) -> Result<Range<usize>, TopologyError> {
        let (rank, size) = (self.data.rank(), self.data.size());
        crate::topology::check_divides("the global batch", samples.len(), "data-parallel size", size)?;
        let share = samples.len() / size;
        self.step.note_batch(&samples);
        Ok(samples.start + rank * share..samples.start + (rank + 1) * share)
    }

    /// The stages of this rank's pipeline.
    pub fn pipeline_group(&self) -> &ProcessGroup {
        &self.pipeline
    }

    /// The stages of this rank's pipeline once more: gradients come back through a group of their own, so that the
    /// order of activations and that of gradients are independent.
    pub fn pipeline_backward_group(&self) -> &ProcessGroup {
        &self.pipeline_backward
    }

    /// The first and the last stage of this rank's pipeline, if this rank is one of them.
    pub fn embedding_group(&self) -> Option<&ProcessGroup> {
        self.embedding.as_ref()
    }

    /// The ranks that together hold one whole model.
    pub fn model_group(&self) -> &ProcessGroup {
        &self.model
    }

    /// This rank's group of a kind, if it is in one.
    pub fn group(&self, kind: GroupKind) -> Option<&ProcessGroup> {
        match kind {
            GroupKind::World => Some(&self.world),
            GroupKind::Tensor => Some(&self.tensor),
            GroupKind::Data => Some(&self.data),
            GroupKind::Pipeline => Some(&self.pipeline),
            GroupKind::Embedding => self.embedding.as_ref(),
            GroupKind::Model => Some(&self.model),
        }
    }

    /// Whether activations between tensor-parallel regions are sharded along the tokens.
    pub fn is_sequence_parallel(&self) -> bool {
        self.config.sequence_parallel
    }

    /// The bytes that this rank has sent to others through its groups so far.
    pub fn bytes_communicated(&self) -> u64 {
        self.groups().map(ProcessGroup::bytes_communicated).sum()
    }

    /// The time that this rank has spent in blocking collectives of its groups, and in waiting for started ones.
    pub fn time_blocked(&self) -> Duration {
        self.groups()
            .filter(|group| group.size() > 1)
            .map(ProcessGroup::time_blocked)
            .sum()
    }

    /// Passes on the collectives of all groups, as [`ProcessGroup::hand_over`] does: to a thread that trains with
    /// groups that this one has connected.
    pub fn hand_over(&self) {
        self.groups().for_each(ProcessGroup::hand_over);
    }

    /// Lets each call on a GPU's memory be waited for on the host, or not, as at first: where kernels may be loaded, no
    /// call may run there that waits for what comes after.
    pub(crate) fn wait_for_gpu_calls(&self, waits: bool) {
        #[cfg(feature = "cuda")]
        for group in self.groups() {
            crate::collectives::wait_for_gpu_calls(group, waits);
        }
        #[cfg(not(feature = "cuda"))]
        let _ = waits;
    }

    /// This rank's groups, one of each kind that it is in, and the pipeline's second.
    fn groups(&self) -> impl Iterator<Item = &ProcessGroup> {
        let of_kinds = GroupKind::ALL.into_iter().filter_map(|kind| self.group(kind));
        of_kinds.chain([&self.pipeline_backward])
    }

    /// What this rank's parameters have declared.
    pub fn registry(&self) -> &ParameterRegistry {
        &self.registry
    }

    /// Returns the scope of a module called `name`: where its layers declare their parameters.
    pub fn scope(&self, name: impl AsRef<str>) -> ParameterScope {
        ParameterScope::new(self.clone(), name.as_ref().to_owned())
    }

    /// Returns the scope of the whole model.
    pub fn root(&self) -> ParameterScope {
        self.scope("")
    }

    /// The seed of the initialisation, and of dropout by coordinates.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Says which step the next forward pass belongs to, and which samples of the whole run this rank gives it: with
    /// these the dropout of a converted module chooses what falls, the same in every layout.
    ///
    /// Called before each forward pass, once for all modules of the model; a module whose dropout is active refuses to
    /// use the same call twice. Not needed without dropout, nor where a module is given its coordinates with its input.
    ///
    /// ```
    /// # let (context, step, batch_size) = (burn_megatron::context::ParallelContext::single(1), 3, 32);
    /// // Of the global batch, this rank's part: the data-parallel ranks see other samples.
    /// let samples = context.data_shard(step * batch_size..(step + 1) * batch_size)?;
    /// context.set_step(step as u64, samples.map(|sample| sample as u64));
    /// # Ok::<(), burn_megatron::topology::TopologyError>(())
    /// ```
    pub fn set_step(&self, iteration: u64, samples: impl IntoIterator<Item = u64>) {
        self.step.set(iteration, samples.into_iter().collect());
    }

    /// Returns the coordinates of the step that [`set_step`](Self::set_step) has named, for samples of `seq_length`
    /// tokens; `None` before its first call.
    pub fn step_coordinates(&self, seq_length: usize) -> Option<StepCoordinates> {
        self.step.coordinates(seq_length)
    }

    /// The step under way, which modules made with this context share.
    pub(crate) fn current_step(&self) -> &CurrentStep {
        &self.step
    }

    /// Checks that all ranks that together hold one model were given the same tensor, such as a batch of samples or
    /// their labels. [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) compares the first
    /// input of a parallel layer by itself, at an interval of steps; this method is for inputs that it does not see.
    ///
    /// # Communication
    /// One all-gather of 16 bytes over the model group; if floats differ, a broadcast of them and another all-gather.
    ///
    /// # Errors
    /// [`InputError::Differ`] on every rank, naming the ranks; when a collective fails.
    pub fn check_same_batch<const D: usize, K: Basic>(&self, batch: &Tensor<D, K>) -> Result<(), InputError> {
        compare_input("the batch", batch, &self.model)
    }

    /// Declares a parameter, declared already, as tied: the model uses it at its start and at its end, as an embedding
    /// that is the output head too. With several pipeline stages the first and the last each have a copy under the same
    /// name; their gradients are summed, and it counts once in the norm.
    ///
    /// # Panics
    /// When the parameter has not been declared.
    pub fn declare_tied<const D: usize>(&self, param: &Param<Tensor<D>>) {
        self.registry.declare_tied(param.id);
    }

    /// Declares that a parameter, declared already, is used by several segments of a pipeline stage (see
    /// [`PipelineStage`](crate::pipeline_parallel::PipelineStage)): a pass gives it several gradients, so its bucket is
    /// reduced after all others.
    ///
    /// # Panics
    /// When the parameter has not been declared.
    pub fn declare_reused<const D: usize>(&self, param: &Param<Tensor<D>>) {
        self.registry.declare_reused(param.id);
    }
}
