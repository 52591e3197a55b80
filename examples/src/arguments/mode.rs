//! Flags of what a training program does instead of training.

use clap::Args;

/// What a training program does instead of training.
#[derive(Args, Clone, Copy, Debug)]
pub struct ModeArguments {
    /// Compare version, flags and text of all ranks, measure every group, print one table, and end
    #[arg(long, conflicts_with = "dry_run")]
    pub preflight: bool,
    /// Print what memory a rank needs in each stage of ZeRO and how many GPUs hold that, and end: no rank is started,
    /// and this machine need not hold the model
    #[arg(long)]
    pub dry_run: bool,
}
