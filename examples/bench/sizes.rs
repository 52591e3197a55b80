//! [`Sizes`]: a model that benches train on random tokens.

use burn_megatron::data::MicroBatch;
use burn_megatron::random::RandomStream;
use clap::Args;
use models::gpt::GptConfig;

/// Sizes of a model.
#[derive(Args, Clone, Debug)]
pub struct Sizes {
    /// Transformer layers
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub num_layers: usize,
    /// Size of each token
    #[arg(long, value_name = "N", default_value_t = 384)]
    pub hidden_size: usize,
    /// Attention heads
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub num_attention_heads: usize,
    /// Tokens per sample
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub seq_length: usize,
    /// Tokens of the vocabulary
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pub vocab_size: usize,
}

impl Sizes {
    /// Returns the bundled GPT of these sizes.
    pub fn gpt(&self) -> GptConfig {
        GptConfig::new(
            self.num_layers,
            self.hidden_size,
            self.num_attention_heads,
            self.seq_length,
            self.vocab_size,
        )
    }
}

/// Returns random samples of a step, one after the other, each of a token more than the model sees.
pub fn random_samples(step: u64, samples: usize, seq_length: usize, vocab_size: usize) -> Vec<i32> {
    let mut numbers = vec![0.0; samples * (seq_length + 1)];
    RandomStream::new(1, &format!("step {step}")).fill_uniform(0, 1.0, &mut numbers);
    let token = |number: f64| ((number + 1.0) / 2.0 * vocab_size as f64) as i32;
    numbers.into_iter().map(token).collect()
}

/// Returns the micro-batch of samples of which the first has a number.
pub fn micro_batch(samples: &[i32], seq_length: usize, first: u64) -> MicroBatch {
    let samples: Vec<&[i32]> = samples.chunks_exact(seq_length + 1).collect();
    MicroBatch {
        tokens: samples
            .iter()
            .flat_map(|sample| &sample[..seq_length])
            .copied()
            .collect(),
        targets: samples.iter().flat_map(|sample| &sample[1..]).copied().collect(),
        sample_ids: (first..first + samples.len() as u64).collect(),
        micro_batch_size: samples.len(),
        seq_length,
        ..MicroBatch::default()
    }
}
