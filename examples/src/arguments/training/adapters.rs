//! Flags of low-rank adapters.

use burn_megatron::tensor_parallel::LowRankConfig;
use clap::Args;

/// What is trained in place of the model's parameters.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Low-rank adapters")]
pub struct AdapterArguments {
    /// Train low-rank adapters of this rank; the parameters of --load stay as they are. New adapters need --finetune
    #[arg(long, value_name = "N", requires = "load")]
    pub lora_rank: Option<usize>,
    /// What adapters are multiplied by, times their rank [default: twice the rank]
    #[arg(long, value_name = "X", requires = "lora_rank")]
    pub lora_alpha: Option<f64>,
    /// The linear layers that have adapters, by their names in Hugging Face's files: q_proj,v_proj [default: the
    /// projections of the attention]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "lora_rank")]
    pub lora_target: Vec<String>,
    /// The probability with which an element of an adapter's input becomes zero [default: 0]
    #[arg(long, value_name = "P", requires = "lora_rank")]
    pub lora_dropout: Option<f64>,
}

impl AdapterArguments {
    /// Returns the adapters that are asked for, if any are.
    pub fn low_rank(&self) -> Option<LowRankConfig> {
        self.lora_rank.map(|rank| {
            LowRankConfig::new(rank, self.lora_alpha.unwrap_or(2.0 * rank as f64))
                .with_dropout(self.lora_dropout.unwrap_or(0.0))
        })
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is not valid.
    pub fn validate(&self) -> anyhow::Result<()> {
        match self.low_rank() {
            Some(low_rank) => Ok(low_rank.validate()?),
            None => Ok(()),
        }
    }
}
