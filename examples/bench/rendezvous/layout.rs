//! [`Layout`]: the axes of a job's ranks.

use std::fmt;

use anyhow::Context as _;
use burn_megatron::topology::ParallelConfig;
use serde::{Deserialize, Serialize};

/// The most tensor-parallel ranks that are chosen: those of a node.
const MOST_TENSOR_RANKS: usize = 8;

/// Sizes of the axes, whose product is the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    tensor: usize,
    pipeline: usize,
    data: usize,
}

impl Layout {
    /// Returns the layout of `ranks` ranks, with the sizes that were given.
    ///
    /// # Errors
    /// When a size does not divide the ranks.
    pub fn new(ranks: usize, tensor: Option<usize>, pipeline: Option<usize>) -> anyhow::Result<Self> {
        let tensor = tensor.unwrap_or_else(|| {
            // About the cube root, so that at 64 ranks all axes are 4.
            largest_divisor(ranks, |size| size <= MOST_TENSOR_RANKS && size.pow(3) <= 2 * ranks)
        });
        // None of a size that does not divide the ranks, which is refused.
        let rest = ranks
            .checked_div(tensor)
            .filter(|rest| rest * tensor == ranks)
            .unwrap_or(1);
        let pipeline = pipeline.unwrap_or_else(|| largest_divisor(rest, |size| size * size <= rest));
        let config = ParallelConfig::new()
            .with_tensor_parallel_size(tensor)
            .with_pipeline_parallel_size(pipeline);
        let grid = config
            .grid(ranks)
            .with_context(|| format!("--ranks {ranks} does not fit the model-parallel sizes"))
            .map_err(|error| anyhow::anyhow!("{error:#}"))?;
        Ok(Self {
            tensor,
            pipeline,
            data: grid.data_parallel_size(),
        })
    }

    /// Returns the sizes of the axes, tensor, pipeline, data: `4×4×4`.
    pub fn short(&self) -> String {
        format!("{}×{}×{}", self.tensor, self.pipeline, self.data)
    }

    /// Returns the configuration of the groups.
    pub fn config(&self) -> ParallelConfig {
        ParallelConfig::new()
            .with_tensor_parallel_size(self.tensor)
            .with_pipeline_parallel_size(self.pipeline)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "tp{} pp{} dp{}", self.tensor, self.pipeline, self.data)
    }
}

/// Returns the largest divisor that fits; 1 fits always.
fn largest_divisor(number: usize, fits: impl Fn(usize) -> bool) -> usize {
    let divisors = (1..=number).filter(|size| number.is_multiple_of(*size));
    divisors.take_while(|size| fits(*size)).last().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axes_of_usual_sizes_are_usual() {
        for (ranks, text) in [
            (4, "tp2 pp1 dp2"),
            (16, "tp2 pp2 dp4"),
            (64, "tp4 pp4 dp4"),
            (256, "tp8 pp4 dp8"),
            (1024, "tp8 pp8 dp16"),
            (4096, "tp8 pp16 dp32"),
            (7, "tp1 pp1 dp7"),
        ] {
            assert_eq!(Layout::new(ranks, None, None).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_size_that_does_not_divide_the_ranks_is_an_error_with_both() {
        let error = Layout::new(64, Some(3), None).unwrap_err().to_string();
        assert!(error.contains("--ranks 64") && error.contains("got 64"), "{error}");
        assert!(Layout::new(64, Some(0), None).is_err());
        assert_eq!(Layout::new(64, Some(8), Some(2)).unwrap().to_string(), "tp8 pp2 dp4");
    }
}
