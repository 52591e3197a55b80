//! `GptConfig`: the sizes of a GPT, and presets for the well-known ones.

use burn::config::Config;

use crate::decoder::BiasedSizes;
use crate::layers::LayerRecompute;
use crate::vocabulary::padded_vocab_size;

/// Configuration of [`Gpt`](super::Gpt).
#[derive(Config, Debug, PartialEq)]
pub struct GptConfig {
    /// The number of blocks.
    pub n_layers: usize,
    /// The size of each token.
    pub d_model: usize,
    /// The number of attention heads, which divides `d_model`.
    pub n_heads: usize,
    /// The longest sequence.
    pub max_seq_length: usize,
    /// The size of the vocabulary, without padding.
    pub vocab_size: usize,
    /// The size of the vocabulary with padding, which the tensor-parallel size divides; the next multiple of
    /// `128 * tensor_parallel_size` if not given. Padding changes no result.
    pub padded_vocab_size: Option<usize>,
    /// The size of the MLP's hidden layer; `4 * d_model` if not given.
    pub d_hidden: Option<usize>,
    /// Whether the output head is the token embedding.
    #[config(default = true)]
    pub tied_embeddings: bool,
    /// The probability with which an element of an embedding, an attention's or an MLP's output becomes zero.
    #[config(default = 0.0)]
    pub hidden_dropout: f64,
    /// The probability with which an attention weight becomes zero.
    #[config(default = 0.0)]
    pub attention_dropout: f64,
    /// Which blocks keep their input only, and run again before their backward pass. It changes no bit of the result.
    #[config(default = "LayerRecompute::Nothing")]
    pub layer_recompute: LayerRecompute,
    /// The most tokens whose logits are in one buffer; those of 1 GiB if not given.
    pub logit_chunk_tokens: Option<usize>,
    /// The number that norms add to the variance.
    #[config(default = 1e-5)]
    pub norm_epsilon: f64,
    /// The standard deviation of weights and embeddings; projections back to `d_model` have it divided by
    /// `√(2 * n_layers)`.
    #[config(default = 0.02)]
    pub init_deviation: f64,
}

/// A well-known size: GPT-2's four, and those of the table in arXiv:2104.04473.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptPreset {
    /// The name on the command line.
    pub name: &'static str,
    n_layers: usize,
    d_model: usize,
    n_heads: usize,
    max_seq_length: usize,
    vocab_size: usize,
}

impl GptPreset {
    /// All presets, from the smallest to the largest.
    pub const ALL: [GptPreset; 14] = {
        const fn gpt2(name: &'static str, n_layers: usize, d_model: usize, n_heads: usize) -> GptPreset {
            GptPreset {
                name,
                n_layers,
                d_model,
                n_heads,
                max_seq_length: 1024,
                vocab_size: 50257,
            }
        }
        const fn gpt3(name: &'static str, n_layers: usize, d_model: usize, n_heads: usize) -> GptPreset {
            GptPreset {
                name,
                n_layers,
                d_model,
                n_heads,
                max_seq_length: 2048,
                vocab_size: 51200,
            }
        }
        [
            gpt2("gpt2-124m", 12, 768, 12),
            gpt2("gpt2-355m", 24, 1024, 16),
            gpt2("gpt2-774m", 36, 1280, 20),
            gpt2("gpt2-1.5b", 48, 1600, 25),
            gpt3("gpt3-1.7b", 24, 2304, 24),
            gpt3("gpt3-3.6b", 30, 3072, 32),
            gpt3("gpt3-7.5b", 36, 4096, 32),
            gpt3("gpt3-18.4b", 40, 6144, 48),
            gpt3("gpt3-39.1b", 48, 8192, 64),
            gpt3("gpt3-76.1b", 60, 10240, 80),
            gpt3("gpt3-145.6b", 80, 12288, 96),
            gpt3("gpt3-310.1b", 96, 16384, 128),
            gpt3("gpt3-529.6b", 105, 20480, 128),
            gpt3("gpt3-1008.0b", 128, 25600, 160),
        ]
    };

    /// Returns the preset of this name.
    pub fn named(name: &str) -> Option<GptPreset> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// Returns the configuration of this size.
    pub fn config(&self) -> GptConfig {
        GptConfig::new(
            self.n_layers,
            self.d_model,
            self.n_heads,
            self.max_seq_length,
            self.vocab_size,
        )
    }
}

impl GptConfig {
    /// The size of the MLP's hidden layer.
    pub fn hidden_size(&self) -> usize {
        self.d_hidden.unwrap_or(4 * self.d_model)
    }

    pub(super) fn biased_sizes(&self) -> BiasedSizes {
        BiasedSizes {
            n_layers: self.n_layers,
            d_model: self.d_model,
            n_heads: self.n_heads,
            d_hidden: self.hidden_size(),
            max_seq_length: self.max_seq_length,
            vocab_size: self.vocab_size,
            logit_chunk_tokens: self.logit_chunk_tokens,
        }
    }

    /// Returns the size of the vocabulary with padding.
    pub fn padded_vocab(&self, tensor_parallel_size: usize) -> usize {
        padded_vocab_size(self.vocab_size, self.padded_vocab_size, tensor_parallel_size)
    }
}

#[cfg(test)]
mod tests {
    use burn_megatron::topology::ParallelConfig;

    use super::*;
    use crate::model_config::ModelConfig;

    #[test]
    fn presets_have_the_published_sizes() {
        // In billions, to the last digit that the paper's table or GPT-2's model card gives.
        let published = [
            0.124, 0.355, 0.774, 1.558, 1.7, 3.6, 7.5, 18.4, 39.1, 76.1, 145.6, 310.1, 529.6, 1008.0,
        ];
        for (preset, billions) in GptPreset::ALL.iter().zip(published) {
            let counted = preset.config().num_parameters() as f64 / 1e9;
            let digit = if billions < 1.6 { 5e-4 } else { 5.1e-2 };
            assert!((counted - billions).abs() <= digit, "{}: {counted}", preset.name);
        }
    }

    #[test]
    fn gpt2_small_has_124439808_parameters() {
        let config = GptPreset::named("gpt2-124m").expect("a preset").config();
        assert_eq!(config.num_parameters(), 124_439_808);
        assert_eq!(config.padded_vocab(1), 50304);
    }

    #[test]
    fn heads_that_do_not_divide_are_refused_with_neighbours() {
        let parallel = ParallelConfig {
            tensor_parallel_size: 4,
            ..ParallelConfig::default()
        };
        let message = GptConfig::new(2, 60, 6, 8, 11)
            .validate(&parallel)
            .expect_err("6 heads over 4 ranks")
            .to_string();
        assert!(message.contains("nearest valid values are 4 and 8"), "{message}");
    }
}
