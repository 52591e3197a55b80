//! Low-rank adapters of a run: those that the flags ask for, or that its checkpoint has.

use anyhow::{Context as _, bail, ensure};
use burn::tensor::Device;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::context::ParallelContext;
use burn_megatron::training::load_parameters;
use models::ModelFamily;
use models::family::adapt_stage;
use models::huggingface::AdapterConfig;

use crate::arguments::TrainingArguments;
use crate::saved_state::ModelState;

pub(crate) struct RunAdapters {
    pub(crate) config: AdapterConfig,
    /// True if the checkpoint has them; otherwise they are new, and are trained with its parameters.
    pub(crate) is_stored: bool,
}

impl RunAdapters {
    /// Returns the adapters that the flags ask for, or that the checkpoint has.
    ///
    /// # Errors
    /// When a target is no layer of the model, the flags name others than the checkpoint has, or new ones are asked for
    /// without a checkpoint or `--finetune`.
    pub(crate) fn choose<C: ModelFamily>(
        arguments: &TrainingArguments,
        checkpoint: Option<&Checkpoint>,
        model: &C,
    ) -> anyhow::Result<Option<Self>> {
        let given = match arguments.adapters.low_rank() {
            Some(low_rank) => {
                let targets = arguments.adapters.lora_target.clone();
                Some(AdapterConfig::new(low_rank, targets, model).context("--lora-target")?)
            }
            None => None,
        };
        let Some(checkpoint) = checkpoint else {
            ensure!(
                given.is_none(),
                "--lora-rank needs a checkpoint in the folder of --load"
            );
            return Ok(None);
        };
        let stored = ModelState::<C>::of(checkpoint)?.adapters;
        let path = checkpoint.path().display();
        match (given, stored) {
            (None, None) => Ok(None),
            (None, Some(config)) => Ok(Some(Self {
                config,
                is_stored: true,
            })),
            (Some(config), Some(stored)) => {
                let shown = |config: &AdapterConfig| {
                    let (low_rank, targets) = (&config.low_rank, config.targets.join(","));
                    format!(
                        "--lora-rank {} --lora-alpha {} --lora-target {targets}",
                        low_rank.rank, low_rank.alpha
                    )
                };
                let (there, here) = (shown(&stored), shown(&config));
                ensure!(
                    there == here,
                    "{path} has other adapters: {there} there and {here} here"
                );
                Ok(Some(Self {
                    config,
                    is_stored: true,
                }))
            }
            (Some(_), None) if !arguments.checkpoints.finetune => {
                bail!("{path} has no adapters to continue with: give --finetune to train new ones with its parameters")
            }
            (Some(config), None) => Ok(Some(Self {
                config,
                is_stored: false,
            })),
        }
    }

    /// Returns this rank's chunks with adapters. New ones are of chunks with the checkpoint's parameters.
    ///
    /// # Errors
    /// When the checkpoint cannot be read.
    pub(crate) fn adapt<C: ModelFamily>(
        &self,
        model: &C,
        chunks: Vec<C::Stage>,
        checkpoint: &Checkpoint,
        context: &ParallelContext,
        device: &Device,
    ) -> anyhow::Result<Vec<C::Stage>> {
        let chunks = if self.is_stored {
            chunks
        } else {
            load_parameters(chunks, checkpoint, context)?
        };
        Ok(adapt_stage(model, chunks, &self.config, device, context)?)
    }
}

/// Returns what is trained, for the first lines of a run.
pub(crate) fn in_words<C: ModelFamily>(adapters: &AdapterConfig, model: &C) -> String {
    let (low_rank, sites) = (&adapters.low_rank, adapters.sites(model).unwrap_or_default());
    let numbers = sites
        .iter()
        .map(|site| low_rank.rank * (site.d_input + site.num_features()));
    format!(
        "low-rank adapters of rank {} and alpha {} for {}: {} numbers are trained, the parameters stay as they are",
        low_rank.rank,
        low_rank.alpha,
        adapters.targets.join(", "),
        numbers.sum::<usize>()
    )
}
