//! Flags of saving and loading.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

/// What is saved, and where training goes on.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Checkpoints")]
pub struct CheckpointArguments {
    /// Save checkpoints in this folder, which all ranks can reach: at the end, when the run is asked to stop, and at
    /// every --save-interval
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Go on where the latest checkpoint in this folder, or this checkpoint, was made, by whatever layout of ranks;
    /// with the same folder for --save and --load, begin anew where there is none yet
    #[arg(long, value_name = "DIR")]
    pub load: Option<PathBuf>,
    /// Steps between checkpoints; 0 for none but the last
    #[arg(long, value_name = "N", default_value_t = 0, requires = "save")]
    pub save_interval: u64,
    /// Checkpoints that stay; older ones are removed [default: all]
    #[arg(long, value_name = "N", requires = "save")]
    pub ckpt_keep: Option<usize>,
    /// Write checkpoints beside training
    #[arg(long, requires = "save")]
    pub async_save: bool,
    /// Take the parameters of --load only, and begin training anew
    #[arg(long, requires = "load")]
    pub finetune: bool,
    /// Go on with a checkpoint although the text, the seed or the number of samples has changed
    #[arg(long, requires = "load")]
    pub allow_data_change: bool,
    /// Go on with the schedules of learning rate and weight decay that the flags say, not those of the checkpoint
    #[arg(long, alias = "override-opt_param-scheduler", requires = "load")]
    pub override_opt_param_scheduler: bool,
}

impl CheckpointArguments {
    /// Checks what the types do not.
    ///
    /// # Errors
    /// When no checkpoint is to stay.
    pub fn validate(&self) -> anyhow::Result<()> {
        ensure!(self.ckpt_keep != Some(0), "--ckpt-keep must be at least 1, got 0");
        Ok(())
    }
}
