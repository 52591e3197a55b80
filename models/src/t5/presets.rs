//! Well-known sizes of T5.

use super::T5Config;
use crate::family::Preset;
use crate::layers::MlpActivation;

/// Well-known sizes, from the smallest to the largest: those of the original, whose MLPs have a ReLU, and of T5 1.1,
/// whose are gated and whose head is not the embedding.
pub(super) const PRESETS: &[Preset<T5Config>] = &[
    Preset::new("t5-small", || original([6, 512, 8, 64, 2048])),
    Preset::new("t5-v1.1-small", || gated([8, 512, 6, 64, 1024])),
    Preset::new("t5-base", || original([12, 768, 12, 64, 3072])),
    Preset::new("t5-v1.1-base", || gated([12, 768, 12, 64, 2048])),
    Preset::new("t5-large", || original([24, 1024, 16, 64, 4096])),
    Preset::new("t5-v1.1-large", || gated([24, 1024, 16, 64, 2816])),
    Preset::new("t5-v1.1-xl", || gated([24, 2048, 32, 64, 5120])),
    Preset::new("t5-3b", || original([24, 1024, 32, 128, 16384])),
    Preset::new("t5-v1.1-xxl", || gated([24, 4096, 64, 64, 10240])),
    Preset::new("t5-11b", || original([24, 1024, 128, 128, 65536])),
];

/// Sizes are layers of each half, size of a token, heads, size of a head, hidden size of the MLP.
fn original([n_layers, d_model, n_heads, d_head, d_hidden]: [usize; 5]) -> T5Config {
    T5Config::new(n_layers, n_layers, d_model, n_heads, d_head, d_hidden, 512, 128, 32128)
}

fn gated(sizes: [usize; 5]) -> T5Config {
    original(sizes)
        .with_activation(MlpActivation::GeGlu)
        .with_tied_embeddings(false)
        .with_scales_head(false)
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
        checks::expect_numbers(PRESETS.iter().map(Preset::config), &numbers);
    }
}
