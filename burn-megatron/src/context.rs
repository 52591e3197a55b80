//! `ParallelContext`: what a layer must know of the ranks around it, and where it declares its parameters.
//!
//! Made once per process and handed to every layer's `init`; it holds this rank's process groups. It is made by
//! [`ParallelConfig::init`], or by a [`ParallelContextConfig`] that also says the seed or how groups are made.

use std::ops::Range;
use std::time::Duration;

use burn::config::Config;
use burn::module::{Module, Param, ParamId, list_param_ids};
use burn::tensor::{BasicOps, Tensor, backend::Backend, get_device_settings};
use cubecl_kernels::Kernels;

use crate::collectives::{CollectiveError, GroupConfig, InputError, ProcessGroup, compare_input};
use crate::launch::World;
use crate::parameters::{
    Declaration, Distribution, ParameterEntry, ParameterInit, ParameterRegistry, Placement, RecordError, RegistryError,
    ShardIdentity, collect_mismatches, list_parameters, refuse_undrawn, tensor_from_host,
};
use crate::random::{CurrentStep, StepCoordinates};
use crate::topology::{Coordinates, GroupKind, ParallelConfig, RankGrid, TopologyError};

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
    scope: String,
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
            scope: String::new(),
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
            scope: String::new(),
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

    /// Returns the same context for the parts of a module called `name`: it goes in front of their parameters' names.
    pub fn scope(&self, name: impl AsRef<str>) -> Self {
        Self {
            scope: self.global_name(name.as_ref()),
            ..self.clone()
        }
    }

    /// Returns the same context without the name of a module.
    pub(crate) fn unscoped(&self) -> Self {
        Self {
            scope: String::new(),
            ..self.clone()
        }
    }

    /// The name of the module that the context is for, as [`scope`](Self::scope) has built it; empty for the whole
    /// model.
    pub fn scope_name(&self) -> &str {
        &self.scope
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

    /// Declares every parameter of a module that has no declaration yet as replicated, by its module path: the layers
    /// around converted modules, which see every token on every tensor rank.
    ///
    /// A layer of its own between two sequence-parallel ones is declared by
    /// [`declare_token_wise`](Self::declare_token_wise) before this call. Parameters without values are drawn first, in
    /// the order of the module.
    ///
    /// # Errors
    /// [`RegistryError::Undrawn`] when a parameter has no values and others have been converted, or this is a pipeline
    /// stage: it would not get those of the whole model.
    pub fn declare_rest_replicated<B: Backend, M: Module<B>>(&self, module: &M) -> Result<(), RegistryError> {
        for entry in self.draw_whole::<B, M>(module)? {
            if self.registry.declaration(entry.id).is_none() {
                let name = self.registry.reserve_name(&self.global_name(&entry.path));
                let placement = Placement::whole(entry.shape);
                self.declare(entry.id, name, placement, Distribution::Replicated);
            }
        }
        Ok(())
    }

    /// Returns a whole model's parameters, and draws those that have no values, in the order of the module.
    ///
    /// # Errors
    /// [`RegistryError::Undrawn`] when a parameter has no values though the module is only a part of a model (there are
    /// several pipeline stages), or parts of it have been converted.
    pub(crate) fn draw_whole<B: Backend, M: Module<B>>(
        &self,
        module: &M,
    ) -> Result<Vec<ParameterEntry>, RegistryError> {
        let is_part = self.grid.pipeline_parallel_size() > 1;
        if is_part
            || list_param_ids::<M, B>(module)
                .into_iter()
                .any(|id| self.registry.is_converted(id))
        {
            refuse_undrawn::<B, M>(module, &self.scope)?;
        }
        Ok(list_parameters::<B, M>(module))
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

    /// Returns what a layer with shards keeps as a field of type [`ShardIdentity`], so that its record is loaded by the
    /// rank that saved it only. `shards` are its sharded parameters, by field name.
    pub fn shard_identity<B: Backend>(&self, shards: &[(&str, &Placement)]) -> ShardIdentity<B> {
        let layer = if self.scope.is_empty() {
            "the module".to_owned()
        } else {
            self.scope.clone()
        };
        let shards = shards
            .iter()
            .map(|&(name, placement)| (name.to_owned(), placement.clone()))
            .collect();
        let [tensor, pipeline] = [&self.tensor, &self.pipeline].map(|group| (group.rank(), group.size()));
        ShardIdentity::new(layer, tensor, pipeline, shards)
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

    /// Checks that the tensor-parallel size divides `value`, a quantity of the layer of this scope called `what`.
    ///
    /// # Errors
    /// [`TopologyError::Indivisible`], which names the layer, with the nearest values that would do.
    pub fn check_tensor_divides(&self, what: &str, value: usize) -> Result<(), TopologyError> {
        let what = if self.scope.is_empty() {
            what.to_owned()
        } else {
            format!("{}: {what}", self.scope)
        };
        self.config.check_tensor_divides(&what, value)
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

    /// Returns the distribution of a parameter that every tensor rank holds and that sees this rank's tokens only.
    ///
    /// Under sequence parallelism its gradient is partial; otherwise every rank sees every token.
    pub fn token_wise_distribution(&self) -> Distribution {
        if self.is_sequence_parallel() {
            Distribution::PartialOverTensor
        } else {
            Distribution::Replicated
        }
    }

    /// Returns a new parameter, initialised by its global name, and declares it.
    ///
    /// # Shapes
    /// - output: `shape`, the local shape of `placement` with dimensions joined
    ///
    /// # Panics
    /// When the number of elements of `shape` is not that of the placement's local shape.
    pub fn parameter<B: Backend, const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        spec: &ParameterSpec,
        device: &B::Device,
    ) -> Param<Tensor<B, D>> {
        let name = self.registry.reserve_name(&self.global_name(name));
        let values = spec.init.values(self.seed, &name, &spec.placement);
        let dtype = get_device_settings::<B>(device).float_dtype.into();
        let tensor = tensor_from_host(values, shape, dtype, device);
        let param = Param::from_tensor(tensor);
        self.declare(param.id, name, spec.placement.clone(), spec.distribution);
        param
    }

    /// Declares the parameter of a layer that sees every token on every rank, such as a position embedding.
    pub fn declare_replicated<B: Backend, const D: usize>(&self, name: &str, param: &Param<Tensor<B, D>>) {
        self.declare_whole(name, param, Distribution::Replicated);
    }

    /// Declares the parameter of a layer that is applied to each token between parallel regions, such as a norm or the
    /// bias after a row-parallel matmul: under sequence parallelism it sees this rank's tokens only.
    pub fn declare_token_wise<B: Backend, const D: usize>(&self, name: &str, param: &Param<Tensor<B, D>>) {
        self.declare_whole(name, param, self.token_wise_distribution());
    }

    /// Declares a parameter made elsewhere, such as a shard of an existing layer.
    pub fn declare_sharded<B: Backend, const D: usize>(
        &self,
        name: &str,
        param: &Param<Tensor<B, D>>,
        placement: Placement,
    ) {
        let name = self.registry.reserve_name(&self.global_name(name));
        self.declare(param.id, name, placement, Distribution::Sharded);
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

    fn declare_whole<B: Backend, const D: usize>(
        &self,
        name: &str,
        param: &Param<Tensor<B, D>>,
        distribution: Distribution,
    ) {
        let name = self.registry.reserve_name(&self.global_name(name));
        let placement = Placement::whole(param.lazy_shape().to_vec());
        self.declare(param.id, name, placement, distribution);
    }

    fn declare(&self, id: ParamId, name: String, placement: Placement, distribution: Distribution) {
        self.registry.declare(
            id,
            Declaration {
                name,
                placement,
                distribution,
                is_tied: false,
                is_reused: false,
            },
        );
    }

    fn global_name(&self, name: &str) -> String {
        match (self.scope.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.scope.clone(),
            (false, false) => format!("{}.{name}", self.scope),
        }
    }
}

/// How a parameter made by [`ParallelContext::parameter`] is distributed over the ranks, and how it is initialised.
#[derive(Clone, Debug)]
pub struct ParameterSpec {
    /// Which part of it is here.
    pub placement: Placement,
    /// Who else holds it, and what its local gradient is.
    pub distribution: Distribution,
    /// How it starts.
    pub init: ParameterInit,
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
            let layer = ColumnParallelLinearConfig::new(3, 2).init::<Flex>(&Default::default(), &context);
            layer.expect("it fits one rank").weight.val().into_data()
        };
        let config = ParallelContextConfig::new(ParallelConfig::new());
        let seeded = |seed| layer(config.clone().with_seed(seed).init(&World::single()).expect("one rank"));
        assert_eq!(seeded(7), layer(ParallelContext::single(7)));
        assert_ne!(seeded(7), seeded(8));
    }
}
