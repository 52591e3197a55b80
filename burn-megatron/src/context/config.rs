//! `ParallelContextConfig`: from the sizes of the axes to connected groups.

use burn::config::Config;

use super::ParallelContext;
use crate::collectives::{CollectiveError, GroupConfig};
use crate::launch::World;
use crate::topology::{ParallelConfig, TopologyError};

/// Configuration of [`ParallelContext`]: the same on every rank, except for the GPU of the groups.
#[derive(Config, Debug, PartialEq, Eq)]
pub struct ParallelContextConfig {
    /// The sizes of the axes.
    pub parallel: ParallelConfig,
    /// The seed of the initialisation of parallel layers.
    #[config(default = 0)]
    pub seed: u64,
    /// Instances of a sharded optimizer: the data-parallel ranks are divided into this number of groups of neighbours,
    /// such as those of a node, which each share out what is sharded, and are replicas of each other (HSDP).
    #[config(default = 1)]
    pub num_distributed_optimizer_instances: usize,
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
    /// Stages hold different layers.
    #[error(
        "parameters cannot be cut over the data-parallel ranks of a context with pipeline_parallel_size {0}: use \
         pipeline_parallel_size 1"
    )]
    FullyShardedStages(usize),
    /// Groups of data-parallel ranks that would not be alike.
    #[error(
        "num_distributed_optimizer_instances must divide the data-parallel size, {data_parallel_size}; got \
         {instances}, valid values are {}",
        divisors(*.data_parallel_size)
    )]
    OptimizerInstances {
        /// The groups.
        instances: usize,
        /// The ranks.
        data_parallel_size: usize,
    },
}

fn divisors(number: usize) -> String {
    let all = (1..=number).filter(|divisor| number.is_multiple_of(*divisor));
    all.map(|divisor| divisor.to_string()).collect::<Vec<_>>().join(", ")
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

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::collectives::EngineChoice;
    use crate::tensor_parallel::ColumnParallelLinearConfig;

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
        let layer = |context: ParallelContext| {
            let layer = ColumnParallelLinearConfig::new(3, 2).init(&Device::flex(), &context.root());
            layer.expect("it fits one rank").weight.val().into_data()
        };
        let config = ParallelContextConfig::new(ParallelConfig::new());
        let seeded = |seed| layer(config.clone().with_seed(seed).init(&World::single()).expect("one rank"));
        assert_eq!(seeded(7), layer(ParallelContext::single(7)));
        assert_ne!(seeded(7), seeded(8));
    }
}
