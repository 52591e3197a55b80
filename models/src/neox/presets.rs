//! `NeoxPreset`: the published sizes.

use super::NeoxConfig;

/// A well-known size.
#[derive(Clone, Copy, Debug)]
pub struct NeoxPreset {
    /// The name on the command line.
    pub name: &'static str,
    /// Layers, size of a token, heads, vocabulary.
    sizes: [usize; 4],
    /// Whether GELU is computed by tanh.
    tanh_gelu: bool,
}

impl NeoxPreset {
    /// All presets, from the smallest to the largest.
    pub const ALL: [NeoxPreset; 9] = {
        const fn pythia(name: &'static str, sizes: [usize; 4]) -> NeoxPreset {
            NeoxPreset {
                name,
                sizes,
                tanh_gelu: false,
            }
        }
        [
            pythia("pythia-70m", [6, 512, 8, 50304]),
            pythia("pythia-160m", [12, 768, 12, 50304]),
            pythia("pythia-410m", [24, 1024, 16, 50304]),
            pythia("pythia-1b", [16, 2048, 8, 50304]),
            pythia("pythia-1.4b", [24, 2048, 16, 50304]),
            pythia("pythia-2.8b", [32, 2560, 32, 50304]),
            pythia("pythia-6.9b", [32, 4096, 32, 50432]),
            pythia("pythia-12b", [36, 5120, 40, 50688]),
            NeoxPreset {
                name: "gpt-neox-20b",
                sizes: [44, 6144, 64, 50432],
                tanh_gelu: true,
            },
        ]
    };

    /// Returns the preset of this name.
    pub fn named(name: &str) -> Option<NeoxPreset> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// Returns the configuration of this size.
    pub fn config(&self) -> NeoxConfig {
        let [n_layers, d_model, n_heads, vocab_size] = self.sizes;
        NeoxConfig::new(n_layers, d_model, n_heads, 2048, vocab_size).with_tanh_gelu(self.tanh_gelu)
    }
}

#[cfg(test)]
mod tests {
    use burn_megatron::topology::ParallelConfig;

    use super::*;
    use crate::model_config::ModelConfig;

    #[test]
    fn presets_have_the_published_numbers_of_parameters() {
        // Pythia's model cards, and what transformers counts of the published GPT-NeoX-20B.
        let published = [
            70_426_624,
            162_322_944,
            405_334_016,
            1_011_781_632,
            1_414_647_808,
            2_775_208_960,
            6_857_302_016,
            11_846_072_320,
            20_554_567_680,
        ];
        for (preset, count) in NeoxPreset::ALL.iter().zip(published) {
            let config = preset.config();
            assert_eq!(config.num_parameters(), count, "{}", preset.name);
            assert_eq!(config.validate(&ParallelConfig::default()), Ok(()), "{}", preset.name);
        }
    }
}
