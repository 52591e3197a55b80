//! Well-known sizes of T5.

use super::T5Config;
use crate::layers::MlpActivation;

/// A well-known size: those of the original, whose MLPs have a ReLU, and of T5 1.1, whose are gated and whose head is
/// not the embedding.
#[derive(Clone, Copy, Debug)]
pub struct T5Preset {
    /// The name on the command line.
    pub name: &'static str,
    is_gated: bool,
    /// Layers of each half, size of a token, heads, size of a head, hidden size of the MLP.
    sizes: [usize; 5],
}

impl T5Preset {
    /// All presets, from the smallest to the largest.
    pub const ALL: [T5Preset; 10] = {
        const fn original(name: &'static str, sizes: [usize; 5]) -> T5Preset {
            T5Preset {
                name,
                is_gated: false,
                sizes,
            }
        }
        const fn gated(name: &'static str, sizes: [usize; 5]) -> T5Preset {
            T5Preset {
                name,
                is_gated: true,
                sizes,
            }
        }
        [
            original("t5-small", [6, 512, 8, 64, 2048]),
            gated("t5-v1.1-small", [8, 512, 6, 64, 1024]),
            original("t5-base", [12, 768, 12, 64, 3072]),
            gated("t5-v1.1-base", [12, 768, 12, 64, 2048]),
            original("t5-large", [24, 1024, 16, 64, 4096]),
            gated("t5-v1.1-large", [24, 1024, 16, 64, 2816]),
            gated("t5-v1.1-xl", [24, 2048, 32, 64, 5120]),
            original("t5-3b", [24, 1024, 32, 128, 16384]),
            gated("t5-v1.1-xxl", [24, 4096, 64, 64, 10240]),
            original("t5-11b", [24, 1024, 128, 128, 65536]),
        ]
    };

    pub fn named(name: &str) -> Option<T5Preset> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// Returns the configuration of this size.
    pub fn config(&self) -> T5Config {
        let [n_layers, d_model, n_heads, d_head, d_hidden] = self.sizes;
        let config = T5Config::new(n_layers, n_layers, d_model, n_heads, d_head, d_hidden, 512, 128, 32128);
        if self.is_gated {
            config
                .with_activation(MlpActivation::GeGlu)
                .with_tied_embeddings(false)
                .with_scales_head(false)
        } else {
            config
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::huggingface::checks;

    #[test]
    fn presets_have_the_published_numbers_of_parameters() {
        // As transformers counts the published files.
        let numbers = [
            60_506_624,
            76_961_152,
            222_903_552,
            247_577_856,
            737_668_096,
            783_150_080,
            2_849_757_184,
            2_851_598_336,
            11_135_332_352,
            11_307_321_344,
        ];
        checks::expect_numbers(T5Preset::ALL.iter().map(T5Preset::config), &numbers);
    }
}
