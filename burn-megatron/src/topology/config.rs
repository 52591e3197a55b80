//! `ParallelConfig`: the sizes of the three axes of parallelism, validated against the world.

use burn::config::Config;

use super::RankGrid;

/// The sizes of the axes of parallelism, and whether tensor-parallel regions shard the sequence.
///
/// The data-parallel size is not given: it is what is left of the world,
/// `world_size / (tensor_parallel_size * pipeline_parallel_size)`.
#[derive(Config, Copy, Debug, PartialEq, Eq)]
pub struct ParallelConfig {
    /// Ranks that share each layer.
    #[config(default = 1)]
    pub tensor_parallel_size: usize,
    /// Stages that the layers are cut into.
    #[config(default = 1)]
    pub pipeline_parallel_size: usize,
    /// Shard the activations between tensor-parallel regions along the tokens.
    #[config(default = false)]
    pub sequence_parallel: bool,
}

/// A configuration that no rank grid fits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TopologyError {
    #[error("{name} must be at least 1, got 0")]
    Zero { name: &'static str },
    #[error("{name} must be at least {minimum}, got {value}")]
    TooSmall {
        name: &'static str,
        minimum: usize,
        value: usize,
    },
    #[error(
        "the world size must be a multiple of tensor_parallel_size * pipeline_parallel_size \
         = {tensor} * {pipeline} = {model}, got {world_size}; the nearest valid world sizes are {nearest}",
        model = tensor * pipeline
    )]
    WorldSize {
        tensor: usize,
        pipeline: usize,
        world_size: usize,
        nearest: String,
    },
    /// A setting of the model that is valid in no layout.
    #[error("{0}")]
    Setting(String),
    #[error(
        "sequence_parallel needs tensor_parallel_size of at least 2, got 1; \
         set tensor_parallel_size to 2 or more, or leave sequence_parallel off"
    )]
    SequenceWithoutTensor,
    #[error(
        "{what} and tensor_parallel_size must divide one another, got {heads} and {tensor}; valid tensor_parallel_size \
         for {heads} of them and {queries} query heads: {valid}"
    )]
    SharedHeads {
        /// Whose key heads they are: `the number of key heads`.
        what: String,
        heads: usize,
        queries: usize,
        tensor: usize,
        valid: String,
    },
    #[error("{what} must be divisible by {by} = {divisor}, got {value}; the nearest valid values are {nearest}")]
    Indivisible {
        what: String,
        by: &'static str,
        divisor: usize,
        value: usize,
        nearest: String,
    },
}

impl Default for ParallelConfig {
    /// One rank, no sharding.
    fn default() -> Self {
        Self::new()
    }
}

impl ParallelConfig {
    /// Returns the grid of `world_size` ranks with these sizes.
    ///
    /// # Errors
    /// When a size is zero, when the model-parallel size does not divide `world_size`, or when sequence
    /// parallelism is asked for on a single tensor rank. The message gives the rule, the values and the nearest
    /// valid ones.
    pub fn grid(&self, world_size: usize) -> Result<RankGrid, TopologyError> {
        for (name, size) in [
            ("tensor_parallel_size", self.tensor_parallel_size),
            ("pipeline_parallel_size", self.pipeline_parallel_size),
            ("world_size", world_size),
        ] {
            if size == 0 {
                return Err(TopologyError::Zero { name });
            }
        }
        if self.sequence_parallel && self.tensor_parallel_size == 1 {
            return Err(TopologyError::SequenceWithoutTensor);
        }
        let model = self.tensor_parallel_size.saturating_mul(self.pipeline_parallel_size);
        if !world_size.is_multiple_of(model) {
            return Err(TopologyError::WorldSize {
                tensor: self.tensor_parallel_size,
                pipeline: self.pipeline_parallel_size,
                world_size,
                nearest: nearest_multiples(world_size, model),
            });
        }
        Ok(RankGrid::new(
            self.tensor_parallel_size,
            world_size / model,
            self.pipeline_parallel_size,
        ))
    }

    /// Checks that the tensor-parallel size divides `value`, a quantity of the model called `what`.
    ///
    /// # Errors
    /// [`TopologyError::Indivisible`], with the nearest values that would do.
    pub fn check_tensor_divides(&self, what: &str, value: usize) -> Result<(), TopologyError> {
        check_divides(what, value, "tensor_parallel_size", self.tensor_parallel_size)
    }
}

/// Returns how many tensor-parallel ranks hold each of `heads` key heads, which `queries` query heads share: one where
/// `tensor`, the number of ranks, divides the key heads, otherwise `tensor / heads`.
///
/// # Errors
/// [`TopologyError::SharedHeads`], with the sizes that would do, when neither divides the other, or the ranks do not
/// divide the query heads.
pub fn key_head_copies(what: &str, heads: usize, queries: usize, tensor: usize) -> Result<usize, TopologyError> {
    let fits = |tensor: usize| {
        queries.is_multiple_of(tensor) && (heads.is_multiple_of(tensor) || tensor.is_multiple_of(heads))
    };
    if fits(tensor) {
        return Ok(tensor.div_ceil(heads.max(1)));
    }
    let valid = (1..=queries).filter(|&size| fits(size)).map(|size| size.to_string());
    Err(TopologyError::SharedHeads {
        what: what.to_owned(),
        heads,
        queries,
        tensor,
        valid: valid.collect::<Vec<_>>().join(", "),
    })
}

/// Checks that `divisor`, the size of what `by` names, divides `value`, the size of `what`.
///
/// # Errors
/// [`TopologyError::Indivisible`], with the nearest values that would do.
pub fn check_divides(what: &str, value: usize, by: &'static str, divisor: usize) -> Result<(), TopologyError> {
    if value.is_multiple_of(divisor) {
        return Ok(());
    }
    Err(TopologyError::Indivisible {
        what: what.to_owned(),
        by,
        divisor,
        value,
        nearest: nearest_multiples(value, divisor),
    })
}

/// The positive multiples of `divisor` on either side of `value`, as text.
pub(crate) fn nearest_multiples(value: usize, divisor: usize) -> String {
    let below = value / divisor * divisor;
    let above = below.saturating_add(divisor);
    if below == 0 {
        above.to_string()
    } else {
        format!("{below} and {above}")
    }
}
