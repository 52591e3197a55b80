//! [`ParallelContext`]: this rank's process groups. [`ParameterScope`]: where a module declares its parameters.
//!
//! A process has one context. It is made by [`ParallelConfig::init`], or by a [`ParallelContextConfig`] that also says
//! the seed or how groups are made. Layers are made in a [`scope`](ParallelContext::scope) of it.

mod scope;

use std::ops::Range;
use std::time::Duration;

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::{BasicOps, Tensor, backend::Backend};
use cubecl_kernels::Kernels;

use crate::collectives::{CollectiveError, GroupConfig, InputError, ProcessGroup, compare_input};
use crate::launch::World;
use crate::parameters::{ParameterEntry, ParameterRegistry, RecordError, collect_mismatches, list_parameters};
use crate::random::{CurrentStep, StepCoordinates};
use crate::topology::{Coordinates, GroupKind, ParallelConfig, RankGrid, TopologyError};

pub use scope::{ParameterScope, ParameterSpec};

/// This rank's process groups and parameter declarations. Clones share them.
#[derive(Clone, Debug)]
pub struct ParallelContext {
    config: ParallelConfig,
    grid: RankGrid,
    rank: usize,
    world: ProcessGroup,
    tensor: ProcessGroup,
    data: ProcessGroup,
    pipeline: ProcessGroup,
    pipeline_backward: ProcessGroup,
    embedding: Option<ProcessGroup>,
    model: ProcessGroup,
    registry: ParameterRegistry,
    seed: u64,
    kernels: Kernels,
    overlap_tensor_reduce: bool,
    step: CurrentStep,
}

/// Configuration of [`ParallelContext`]: the same on every rank, except for the GPU of the groups.
#[derive(Config, Debug, PartialEq, Eq)]
pub struct ParallelContextConfig {
    /// The sizes of the axes.
    pub parallel: ParallelConfig,
    /// The seed of the initialisation of parallel layers.
    #[config(default = 0)]
    pub seed: u64,
    /// How the process groups are made.
    #[config(default = "GroupConfig::new()")]
    pub groups: GroupConfig,
}

/// A world whose groups could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The configuration does not fit the world.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A group could not be connected.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

impl ParallelConfig {
    /// Connects this rank's groups, with seed 0 and the groups' own choice of engines; [`ParallelContextConfig`] says
    /// others.
    ///
    /// ```
    /// use burn_megatron::launch::World;
    /// use burn_megatron::topology::ParallelConfig;
    ///
    /// # let world = World::single();
    /// let context = ParallelConfig::new().init(&world)?;
    /// assert_eq!(context.data_group().size(), world.world_size());
    /// # Ok::<(), burn_megatron::context::ContextError>(())
    /// ```
    ///
    /// # Communication
    /// As [`ParallelContextConfig::init`].
    ///
    /// # Errors
    /// As [`ParallelContextConfig::init`].
    pub fn init(&self, world: &World) -> Result<ParallelContext, ContextError> {
        ParallelContextConfig::new(*self).init(world)
    }
}

impl ParallelContextConfig {
    /// Connects this rank's groups.
    ///
    /// # Communication
    /// A rendezvous of each group's ranks; every rank of the world must call.
    ///
    /// # Errors
    /// When the sizes do not fit the world, or a group does not come together in time.
    pub fn init(&self, world: &World) -> Result<ParallelContext, ContextError> {
        ParallelContext::connect(world, self)
    }
}

impl ParallelContext {
    /// Returns the context of a world of one rank. `seed` is that of the initialisation.
    pub fn single(seed: u64) -> Self {
        let group = ProcessGroup::single();
        let config = ParallelConfig::default();
        Self {
            grid: config.grid(1).expect("one rank fits one rank"),
            config,
            rank: 0,
            world: group.clone(),
            tensor: group.clone(),
            data: group.clone(),
            pipeline: group.clone(),
            pipeline_backward: group.clone(),
            embedding: Some(group.clone()),
            model: group,
            registry: ParameterRegistry::default(),
            seed,
            kernels: Kernels::default(),
            overlap_tensor_reduce: true,
            step: CurrentStep::new(seed),
        }
    }

    fn connect(world: &World, config: &ParallelContextConfig) -> Result<Self, ContextError> {
        let ParallelContextConfig { parallel, seed, groups } = config;
        let grid = parallel.grid(world.world_size())?;
        let connect = |kind: GroupKind| -> Result<Option<ProcessGroup>, CollectiveError> {
            match grid.group(kind, world.rank()) {
                None => Ok(None),
                Some(ranks) if ranks.len() == 1 => Ok(Some(ProcessGroup::single())),
                Some(ranks) => ProcessGroup::connect(world, kind.name(), &ranks, groups).map(Some),
            }
        };
        let backward = match grid.group(GroupKind::Pipeline, world.rank()) {
            Some(ranks) if ranks.len() > 1 => ProcessGroup::connect(world, "pipeline-backward", &ranks, groups)?,
            _ => ProcessGroup::single(),
        };
        let required = |kind| connect(kind).map(|group| group.expect("every rank has one"));
        Ok(Self {
            config: *parallel,
            grid,
            rank: world.rank(),
            world: required(GroupKind::World)?,
            tensor: required(GroupKind::Tensor)?,
            data: required(GroupKind::Data)?,
            pipeline: required(GroupKind::Pipeline)?,
            pipeline_backward: backward,
            embedding: connect(GroupKind::Embedding)?,
            model: required(GroupKind::Model)?,
            registry: ParameterRegistry::default(),
            seed: *seed,
            kernels: Kernels::default(),
            overlap_tensor_reduce: true,
            step: CurrentStep::new(*seed),
        })
    }

    /// Returns the same context for layers that run these operations; fused ones unless this says otherwise.
    pub fn with_kernels(self, kernels: Kernels) -> Self {
        Self { kernels, ..self }
    }

    /// Which operations layers run.
    pub fn kernels(&self) -> Kernels {
        self.kernels
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

    /// Returns which of a global batch's samples this data-parallel rank computes: an equal, contiguous part.
    ///
    /// # Errors
    /// When the data-parallel size does not divide their number.
    pub fn data_shard(&self, samples: Range<usize>) -> Result<Range<usize>, TopologyError> {
        let (rank, size) = (self.data.rank(), self.data.size());
        crate::topology::check_divides("the global batch", samples.len(), "data-parallel size", size)?;
        let share = samples.len() / size;
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

    /// Returns a module with a record's values, each parameter keeping the declaration of its path.
    ///
    /// burn gives a loaded parameter the identifier that was recorded; what was declared under the old one would be
    /// lost. A record holds one rank's shards: it is loaded by that rank in the same layout.
    ///
    /// # Errors
    /// When the record holds the shards of another rank or of another tensor-parallel size, when it does not say whose
    /// shards it holds and there are tensor-parallel ranks, or when a parameter has another shape in it.
    ///
    /// # Panics
    /// When burn does: the record has more or fewer layers than the module.
    pub fn load_record<B: Backend, M: Module<B>>(&self, module: M, record: M::Record) -> Result<M, RecordError> {
        let (module, unmarked) = self.load_marked::<B, M>(module, record)?;
        match unmarked {
            None => Ok(module),
            Some(error) => Err(error),
        }
    }

    /// As [`load_record`](Self::load_record), for a record that does not say whose shards it holds: one that this very
    /// rank saved in this very layout by a version that did not record it.
    ///
    /// # Errors
    /// As [`load_record`](Self::load_record), except that a record may be silent about its shards.
    ///
    /// # Panics
    /// As [`load_record`](Self::load_record).
    pub fn load_unmarked_record<B: Backend, M: Module<B>>(
        &self,
        module: M,
        record: M::Record,
    ) -> Result<M, RecordError> {
        self.load_marked::<B, M>(module, record).map(|(module, _)| module)
    }

    /// Loads a record; returns also what speaks against it if it does not say whose shards it holds.
    fn load_marked<B: Backend, M: Module<B>>(
        &self,
        module: M,
        record: M::Record,
    ) -> Result<(M, Option<RecordError>), RecordError> {
        let before = list_parameters::<B, M>(&module);
        let (module, other_shard, unmarked) = collect_mismatches(|| module.load_record(record));
        if let Some(error) = other_shard {
            return Err(error);
        }
        let after = list_parameters::<B, M>(&module);
        for old in &before {
            let new = after.iter().find(|new| new.path == old.path);
            if let Some(new) = new.filter(|new| new.shape != old.shape) {
                return Err(RecordError::OtherShape {
                    path: old.path.clone(),
                    recorded: new.shape.clone(),
                    expected: old.shape.clone(),
                });
            }
        }
        self.transfer_declarations(&before, &after);
        Ok((module, unmarked))
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
    pub fn check_same_batch<B: Backend, const D: usize, K: BasicOps<B>>(
        &self,
        batch: &Tensor<B, D, K>,
    ) -> Result<(), InputError> {
        compare_input("the batch", batch, &self.model)
    }

    /// Declares each parameter of `after` that has no declaration as the one of the same path in `before`.
    pub(crate) fn transfer_declarations(&self, before: &[ParameterEntry], after: &[ParameterEntry]) {
        for new in after {
            let old = before.iter().find(|old| old.path == new.path && old.id != new.id);
            let declared = old.and_then(|old| self.registry.declaration(old.id));
            if let (Some(declaration), None) = (declared, self.registry.declaration(new.id)) {
                self.registry.declare(new.id, declaration);
            }
        }
    }

    /// Declares a parameter, declared already, as tied: the model uses it at its start and at its end, as an embedding
    /// that is the output head too. With several pipeline stages the first and the last each have a copy under the same
    /// name; their gradients are summed, and it counts once in the norm.
    ///
    /// # Panics
    /// When the parameter has not been declared.
    pub fn declare_tied<B: Backend, const D: usize>(&self, param: &Param<Tensor<B, D>>) {
        self.registry.declare_tied(param.id);
    }

    /// Declares that a parameter, declared already, is used by several segments of a pipeline stage (see
    /// [`PipelineStage`](crate::pipeline_parallel::PipelineStage)): a pass gives it several gradients, so its bucket is
    /// reduced after all others.
    ///
    /// # Panics
    /// When the parameter has not been declared.
    pub fn declare_reused<B: Backend, const D: usize>(&self, param: &Param<Tensor<B, D>>) {
        self.registry.declare_reused(param.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::EngineChoice;
    use crate::prelude::World;

    #[test]
    fn a_configuration_is_read_as_it_was_written() {
        let config = ParallelContextConfig::new(ParallelConfig::new().with_tensor_parallel_size(2))
            .with_seed(7)
            .with_groups(GroupConfig::new().with_engine(EngineChoice::Tcp));
        let read = ParallelContextConfig::load_binary(config.to_string().as_bytes()).unwrap();
        assert_eq!(read, config);
    }

    #[test]
    fn a_layout_that_does_not_fit_the_world_is_an_error() {
        let error = ParallelConfig::new()
            .with_tensor_parallel_size(2)
            .init(&World::single());
        let message = error.expect_err("one rank is not two").to_string();
        assert!(message.contains("= 2 * 1 = 2, got 1"), "{message}");
    }

    #[test]
    fn the_seed_of_a_configuration_is_that_of_the_initialisation() {
        use crate::tensor_parallel::ColumnParallelLinearConfig;
        use burn_flex::Flex;

        let layer = |context: ParallelContext| {
            let layer = ColumnParallelLinearConfig::new(3, 2).init::<Flex>(&Default::default(), &context.root());
            layer.expect("it fits one rank").weight.val().into_data()
        };
        let config = ParallelContextConfig::new(ParallelConfig::new());
        let seeded = |seed| layer(config.clone().with_seed(seed).init(&World::single()).expect("one rank"));
        assert_eq!(seeded(7), layer(ParallelContext::single(7)));
        assert_ne!(seeded(7), seeded(8));
    }
}
