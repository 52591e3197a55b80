//! Flags of pipeline stages and of recomputation.

use anyhow::ensure;
use burn_megatron::pipeline_parallel::schedule::ScheduleKind;
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};
use clap::{Args, ValueEnum};
use models::layers::LayerRecompute;

use crate::layout::Layout;

/// How stages share the layers and in which order they work.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Pipeline stages")]
pub struct StageArguments {
    /// The order of micro-batches: gpipe, 1f1b, or interleaved [default: 1f1b; interleaved with several chunks]
    #[arg(long, value_name = "NAME")]
    pub pipeline_schedule: Option<ScheduleKind>,
    /// Micro-batches that a chunk takes before the next chunk's turn, when interleaved [default: the number of stages]
    #[arg(long, value_name = "N")]
    pub microbatch_group_size_per_virtual_pipeline_stage: Option<usize>,
    /// Layers of each virtual stage, | between them, E the embedding, t a layer, L the loss: as in Et*3|(tt|)*2tL
    #[arg(
        long, value_name = "TEXT",
        conflicts_with_all = ["decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"]
    )]
    pub pipeline_model_parallel_layout: Option<String>,
    /// Layers of the first stage [default: an even share]
    #[arg(long, value_name = "N")]
    pub decoder_first_pipeline_num_layers: Option<usize>,
    /// Layers of the last stage [default: an even share]
    #[arg(long, value_name = "N")]
    pub decoder_last_pipeline_num_layers: Option<usize>,
}

/// What is computed twice to save memory.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Recomputation")]
pub struct RecomputeArguments {
    /// What the backward pass computes again instead of the forward pass keeping it
    #[arg(long, value_enum, value_name = "WHAT")]
    pub recompute_granularity: Option<RecomputeGranularity>,
    /// Which layers are recomputed with full [default: uniform]
    #[arg(long, value_enum, value_name = "METHOD")]
    pub recompute_method: Option<RecomputeMethod>,
    /// Layers of a group with uniform, recomputed layers of each chunk with block [default: 1]
    #[arg(long, value_name = "N")]
    pub recompute_num_layers: Option<usize>,
}

/// What is recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecomputeGranularity {
    /// Whole layers.
    Full,
    /// Attention weights, as fused attention does always.
    Selective,
}

/// Which layers are recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecomputeMethod {
    /// All, in groups of which only the input is kept.
    Uniform,
    /// The first ones of each chunk, one by one.
    Block,
}

impl StageArguments {
    /// The schedule, if it was given.
    ///
    /// # Errors
    /// When a group size is given for a schedule without groups.
    pub fn schedule(&self, num_chunks: usize) -> anyhow::Result<ScheduleKind> {
        let kind = self
            .pipeline_schedule
            .unwrap_or_else(|| ScheduleKind::for_chunks(num_chunks));
        match (kind, self.microbatch_group_size_per_virtual_pipeline_stage) {
            (kind, None) => Ok(kind),
            (ScheduleKind::Interleaved { group_size: None }, Some(size)) => {
                Ok(ScheduleKind::Interleaved { group_size: Some(size) })
            }
            (kind, Some(size)) => anyhow::bail!(
                "--microbatch-group-size-per-virtual-pipeline-stage {size} is for --pipeline-schedule interleaved, got \
                 {kind}"
            ),
        }
    }

    /// The layers of each virtual stage.
    ///
    /// # Errors
    /// When they cannot be shared out so, with the nearest valid numbers.
    pub fn layers(&self, sizes: LayerSizes) -> anyhow::Result<LayerLayout> {
        Ok(match &self.pipeline_model_parallel_layout {
            Some(text) => LayerLayout::parse(sizes, text)?,
            None => LayerLayout::first_last(
                sizes,
                self.decoder_first_pipeline_num_layers,
                self.decoder_last_pipeline_num_layers,
            )?,
        })
    }

    /// Checks that the flags that were given have a layout that they are for.
    ///
    /// # Errors
    /// When no layout has stages, with the flags.
    pub fn check_layouts(&self, layouts: &[Layout]) -> anyhow::Result<()> {
        let given = [
            ("pipeline-schedule", self.pipeline_schedule.is_some()),
            (
                "microbatch-group-size-per-virtual-pipeline-stage",
                self.microbatch_group_size_per_virtual_pipeline_stage.is_some(),
            ),
            (
                "pipeline-model-parallel-layout",
                self.pipeline_model_parallel_layout.is_some(),
            ),
            (
                "decoder-first-pipeline-num-layers",
                self.decoder_first_pipeline_num_layers.is_some(),
            ),
            (
                "decoder-last-pipeline-num-layers",
                self.decoder_last_pipeline_num_layers.is_some(),
            ),
        ];
        let given = given.into_iter().filter(|(_, is_given)| *is_given);
        let given: Vec<String> = given.map(|(flag, _)| format!("--{flag}")).collect();
        ensure!(
            given.is_empty() || layouts.iter().any(|layout| layout.pipeline_parallel_size > 1),
            "{} must come with a layout that has pipeline stages, as pp2, got --layouts {}",
            given.join(", "),
            layouts.iter().map(Layout::to_string).collect::<Vec<_>>().join(",")
        );
        Ok(())
    }
}

impl RecomputeArguments {
    /// Every layer by itself.
    pub fn full() -> Self {
        Self {
            recompute_granularity: Some(RecomputeGranularity::Full),
            ..Self::default()
        }
    }

    /// Whether whole layers are to be recomputed.
    pub fn is_full(&self) -> bool {
        self.recompute_granularity == Some(RecomputeGranularity::Full)
    }

    pub fn layers(&self) -> LayerRecompute {
        let num_layers = self.recompute_num_layers.unwrap_or(1);
        match (self.recompute_granularity, self.recompute_method) {
            (Some(RecomputeGranularity::Full), Some(RecomputeMethod::Block)) => LayerRecompute::Block(num_layers),
            (Some(RecomputeGranularity::Full), _) => LayerRecompute::Uniform(num_layers),
            _ => LayerRecompute::Nothing,
        }
    }

    /// Checks that the flags belong together.
    ///
    /// # Errors
    /// When a flag is of no use without another.
    pub fn validate(&self) -> anyhow::Result<()> {
        let is_full = self.is_full();
        for (flag, is_given) in [
            ("--recompute-method", self.recompute_method.is_some()),
            ("--recompute-num-layers", self.recompute_num_layers.is_some()),
        ] {
            ensure!(is_full || !is_given, "{flag} needs --recompute-granularity full");
        }
        Ok(())
    }

    /// Checks that the largest chunk has at least `--recompute-num-layers` layers.
    ///
    /// # Errors
    /// When it has fewer, with the valid range.
    pub fn validate_layers(&self, layers: &LayerLayout) -> anyhow::Result<()> {
        match self.recompute_num_layers {
            Some(number) => check_layers("--recompute-num-layers", number, layers),
            None => Ok(()),
        }
    }
}

/// Checks that a flag's number of layers is one that the largest chunk has.
///
/// # Errors
/// When it is not, with the valid range.
pub(super) fn check_layers(flag: &str, number: usize, layers: &LayerLayout) -> anyhow::Result<()> {
    let virtual_stages = 0..layers.num_virtual_stages();
    let largest = virtual_stages.map(|stage| layers.range(stage).len()).max().unwrap_or(0);
    let chunk = match layers.num_virtual_stages() {
        1 => "of the model",
        _ => "of the largest chunk",
    };
    ensure!(
        (1..=largest).contains(&number),
        "{flag} must be between 1 and {largest}, the layers {chunk}, got {number}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_recomputed_layers_than_the_largest_chunk_has_are_refused() {
        let validate = |number, num_stages, first| {
            let sizes = LayerSizes {
                n_layers: 8,
                num_stages,
                num_chunks: 1,
            };
            let recompute = RecomputeArguments {
                recompute_num_layers: number,
                ..RecomputeArguments::default()
            };
            let layers = LayerLayout::first_last(sizes, first, None).unwrap();
            recompute.validate_layers(&layers).map_err(|error| error.to_string())
        };
        assert_eq!(validate(None, 8, None), Ok(()));
        assert_eq!(validate(Some(8), 1, None), Ok(()));
        assert_eq!(validate(Some(4), 2, None), Ok(()));
        // The largest counts, not the first.
        assert_eq!(validate(Some(6), 2, Some(2)), Ok(()));
        let error = validate(Some(7), 2, Some(2)).unwrap_err();
        assert!(
            error.contains("between 1 and 6, the layers of the largest chunk, got 7"),
            "{error}"
        );
        let error = validate(Some(9), 1, None).unwrap_err();
        assert!(
            error.contains("between 1 and 8, the layers of the model, got 9"),
            "{error}"
        );
    }

    #[test]
    fn flags_that_do_nothing_are_refused() {
        let recompute = RecomputeArguments {
            recompute_num_layers: Some(2),
            ..RecomputeArguments::default()
        };
        let error = recompute.validate().unwrap_err().to_string();
        assert_eq!(error, "--recompute-num-layers needs --recompute-granularity full");
        let stages = StageArguments {
            microbatch_group_size_per_virtual_pipeline_stage: Some(4),
            ..StageArguments::default()
        };
        let error = stages.schedule(1).unwrap_err().to_string();
        assert!(
            error.contains("is for --pipeline-schedule interleaved, got 1f1b"),
            "{error}"
        );
    }
}
