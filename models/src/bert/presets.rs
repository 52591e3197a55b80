//! Well-known sizes of BERT.

use super::{BertConfig, NormOrder};

/// A well-known size: the two of the original, and those of arXiv:1909.08053, table 4.
#[derive(Clone, Copy, Debug)]
pub struct BertPreset {
    /// The name on the command line.
    pub name: &'static str,
    order: NormOrder,
    /// Layers, size of a token, heads, vocabulary.
    sizes: [usize; 4],
}

impl BertPreset {
    /// All presets, from the smallest to the largest.
    pub const ALL: [BertPreset; 5] = {
        const fn original(name: &'static str, sizes: [usize; 4]) -> BertPreset {
            BertPreset {
                name,
                order: NormOrder::After,
                sizes,
            }
        }
        const fn megatron(name: &'static str, sizes: [usize; 4]) -> BertPreset {
            BertPreset {
                name,
                order: NormOrder::Before,
                sizes,
            }
        }
        [
            original("bert-base", [12, 768, 12, 30522]),
            original("bert-large", [24, 1024, 16, 30522]),
            megatron("megatron-bert-345m", [24, 1024, 16, 29056]),
            megatron("megatron-bert-1.3b", [24, 2048, 32, 29056]),
            megatron("megatron-bert-3.9b", [48, 2560, 40, 29056]),
        ]
    };

    pub fn named(name: &str) -> Option<BertPreset> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// Returns the configuration of this size.
    pub fn config(&self) -> BertConfig {
        let [n_layers, d_model, n_heads, vocab_size] = self.sizes;
        BertConfig::new(n_layers, d_model, n_heads, 512, vocab_size).with_order(self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_config::ModelConfig;

    #[test]
    fn presets_have_the_numbers_of_parameters_that_transformers_counts() {
        let counted = [110_106_428, 336_226_108, 334_723_458, 1_277_591_938, 3_865_326_978];
        for (preset, count) in BertPreset::ALL.iter().zip(counted) {
            assert_eq!(preset.config().num_parameters(), count, "{}", preset.name);
        }
    }
}
