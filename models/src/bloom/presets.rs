//! `BloomPreset`: the published sizes.

use super::BloomConfig;

/// The tokens of a sample that the published models were trained with.
pub(super) const TRAINED_LENGTH: usize = 2048;

/// A well-known size.
#[derive(Clone, Copy, Debug)]
pub struct BloomPreset {
    /// The name on the command line.
    pub name: &'static str,
    /// Layers, size of a token, heads.
    sizes: [usize; 3],
}

impl BloomPreset {
    /// All presets, from the smallest to the largest.
    pub const ALL: [BloomPreset; 6] = {
        const fn preset(name: &'static str, sizes: [usize; 3]) -> BloomPreset {
            BloomPreset { name, sizes }
        }
        [
            preset("bloom-560m", [24, 1024, 16]),
            preset("bloom-1b1", [24, 1536, 16]),
            preset("bloom-1b7", [24, 2048, 16]),
            preset("bloom-3b", [30, 2560, 32]),
            preset("bloom-7b1", [30, 4096, 32]),
            preset("bloom-176b", [70, 14336, 112]),
        ]
    };

    /// Returns the preset of this name.
    pub fn named(name: &str) -> Option<BloomPreset> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// Returns the configuration of this size.
    pub fn config(&self) -> BloomConfig {
        let [n_layers, d_model, n_heads] = self.sizes;
        BloomConfig::new(n_layers, d_model, n_heads, TRAINED_LENGTH, 250_880)
    }
}

#[cfg(test)]
mod tests {
    use burn_megatron::topology::ParallelConfig;

    use super::*;
    use crate::model_config::ModelConfig;

    #[test]
    fn presets_have_the_published_numbers_of_parameters() {
        // The model cards'.
        let published = [
            559_214_592,
            1_065_314_304,
            1_722_408_960,
            3_002_557_440,
            7_069_016_064,
            176_247_271_424,
        ];
        for (preset, count) in BloomPreset::ALL.iter().zip(published) {
            let config = preset.config();
            assert_eq!(config.num_parameters(), count, "{}", preset.name);
            assert_eq!(config.validate(&ParallelConfig::default()), Ok(()), "{}", preset.name);
        }
    }
}
