//! Flags that name a configuration of DeepSpeed's.

use std::path::PathBuf;

use clap::Args;

/// A configuration of DeepSpeed's, which [`crate::deepspeed`] has made flags of before these are parsed.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "DeepSpeed's configuration")]
pub struct DeepSpeedArguments {
    /// Take flags from the keys of --deepspeed-config; no code of DeepSpeed runs
    #[arg(long, visible_alias = "deepspeed", requires = "deepspeed_config")]
    pub use_deepspeed: bool,
    /// DeepSpeed's JSON, also in base64: what each key becomes is printed first; one that cannot be honoured, that a
    /// flag contradicts, or that is not known and may compute something, is an error. --deepspeed FILE is both flags
    #[arg(long, value_name = "FILE", requires = "use_deepspeed")]
    pub deepspeed_config: Option<PathBuf>,
}

impl DeepSpeedArguments {
    /// Checks that no configuration is named, for a `program` that would not read it.
    pub fn check_not_given(&self, program: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.use_deepspeed,
            "--use-deepspeed is for pretrain_gpt, pretrain_bert and pretrain_t5: {program} takes flags only"
        );
        Ok(())
    }
}
