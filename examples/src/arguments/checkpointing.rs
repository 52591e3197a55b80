//! Flags of saving and loading.

use std::path::PathBuf;

use anyhow::ensure;
use burn_megatron::checkpoint::{Checkpoint, CheckpointError, ReadConfig};
use clap::Args;
use models::registry::Family;

/// What is saved, and where training continues.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Checkpoints")]
pub struct CheckpointArguments {
    /// Save checkpoints in this folder, which all ranks can reach: at the end, when the run is asked to stop, and at
    /// every --save-interval
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Continue from the latest checkpoint in this folder, or from this checkpoint, saved by any layout of ranks; if
    /// there is none, start from the beginning, with a warning
    #[arg(long, value_name = "DIR")]
    pub load: Option<PathBuf>,
    /// End with an error if --load has no checkpoint
    #[arg(long)]
    pub exit_on_missing_checkpoint: bool,
    /// Steps between checkpoints; 0 for none but the last
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub save_interval: u64,
    /// Checkpoints that stay; older ones are removed [default: all]
    #[arg(long, value_name = "N")]
    pub ckpt_keep: Option<usize>,
    /// Write checkpoints while training continues
    #[arg(long)]
    pub async_save: bool,
    /// Take only the parameters of --load, and start training from the beginning
    #[arg(long, requires = "load")]
    pub finetune: bool,
    /// Continue from a checkpoint although the text, the seed or the number of samples has changed
    #[arg(long)]
    pub allow_data_change: bool,
    /// Continue with the schedules of learning rate and weight decay of the flags, not those of the checkpoint
    #[arg(long, alias = "override-opt_param-scheduler")]
    pub override_opt_param_scheduler: bool,
}

impl CheckpointArguments {
    /// Checks what the types do not.
    ///
    /// # Errors
    /// When no checkpoint is to stay, or `--load` has files that are no checkpoint yet.
    pub fn validate(&self) -> anyhow::Result<()> {
        ensure!(self.ckpt_keep != Some(0), "--ckpt-keep must be at least 1, got 0");
        let Some(folder) = &self.load else {
            return Ok(());
        };
        let find = || Checkpoint::find_with(folder, ReadConfig::new().with_shards_later(true));
        let is_foreign =
            Family::of_files(folder).is_ok() && matches!(find(), Err(CheckpointError::NoCheckpoint { .. }));
        let folder = folder.display();
        ensure!(
            !is_foreign,
            "--load {folder} has Hugging Face's files, and training begins with a checkpoint: make one with \
             `checkpoint convert {folder} imported --from huggingface`, and give --load imported --finetune"
        );
        Ok(())
    }
}
