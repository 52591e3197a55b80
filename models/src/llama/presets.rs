//! `LlamaPreset`: the published sizes.

use cubecl_kernels::rotary::tables::RotaryScaling;

use super::LlamaConfig;

/// The elements of a head of Qwen3.
const QWEN3_HEAD: usize = 128;

/// A well-known size.
#[derive(Clone, Copy, Debug)]
pub struct LlamaPreset {
    /// The name on the command line.
    pub name: &'static str,
    /// Layers, size of a token, query heads, key heads, hidden size of the MLP, longest sequence, vocabulary.
    sizes: [usize; 7],
    kind: Kind,
}

/// What differs apart from sizes.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Llama2,
    Llama3,
    /// With rotary frequencies for texts that are longer than 8192 tokens, divided by this.
    Llama31(f64),
    /// The same with a head that is the token embedding.
    Llama32(f64),
    Mistral,
    Qwen2 {
        is_tied: bool,
    },
    /// With norms of queries and keys, and heads of 128 elements.
    Qwen3 {
        is_tied: bool,
    },
}

impl LlamaPreset {
    /// All presets, from the smallest to the largest.
    pub const ALL: [LlamaPreset; 20] = {
        const fn preset(name: &'static str, kind: Kind, sizes: [usize; 7]) -> LlamaPreset {
            LlamaPreset { name, sizes, kind }
        }
        const QWEN: usize = 151_936;
        const TIED: Kind = Kind::Qwen2 { is_tied: true };
        const UNTIED: Kind = Kind::Qwen2 { is_tied: false };
        const TIED3: Kind = Kind::Qwen3 { is_tied: true };
        const UNTIED3: Kind = Kind::Qwen3 { is_tied: false };
        [
            preset("qwen2.5-0.5b", TIED, [24, 896, 14, 2, 4864, 32768, QWEN]),
            preset("qwen3-0.6b", TIED3, [28, 1024, 16, 8, 3072, 40960, QWEN]),
            preset(
                "llama3.2-1b",
                Kind::Llama32(32.0),
                [16, 2048, 32, 8, 8192, 131_072, 128_256],
            ),
            preset("qwen2.5-1.5b", TIED, [28, 1536, 12, 2, 8960, 131_072, QWEN]),
            preset("qwen3-1.7b", TIED3, [28, 2048, 16, 8, 6144, 40960, QWEN]),
            preset(
                "llama3.2-3b",
                Kind::Llama32(32.0),
                [28, 3072, 24, 8, 8192, 131_072, 128_256],
            ),
            preset("qwen3-4b", TIED3, [36, 2560, 32, 8, 9728, 40960, QWEN]),
            preset("llama2-7b", Kind::Llama2, [32, 4096, 32, 32, 11008, 4096, 32000]),
            preset("mistral-7b-v0.3", Kind::Mistral, [32, 4096, 32, 8, 14336, 32768, 32768]),
            preset("qwen2.5-7b", UNTIED, [28, 3584, 28, 4, 18944, 131_072, 152_064]),
            preset("llama3-8b", Kind::Llama3, [32, 4096, 32, 8, 14336, 8192, 128_256]),
            preset(
                "llama3.1-8b",
                Kind::Llama31(8.0),
                [32, 4096, 32, 8, 14336, 131_072, 128_256],
            ),
            preset("qwen3-8b", UNTIED3, [36, 4096, 32, 8, 12288, 40960, QWEN]),
            preset("llama2-13b", Kind::Llama2, [40, 5120, 40, 40, 13824, 4096, 32000]),
            preset("qwen3-14b", UNTIED3, [40, 5120, 40, 8, 17408, 40960, QWEN]),
            preset("qwen3-32b", UNTIED3, [64, 5120, 64, 8, 25600, 40960, QWEN]),
            preset("llama2-70b", Kind::Llama2, [80, 8192, 64, 8, 28672, 4096, 32000]),
            preset("llama3-70b", Kind::Llama3, [80, 8192, 64, 8, 28672, 8192, 128_256]),
            preset(
                "llama3.1-70b",
                Kind::Llama31(8.0),
                [80, 8192, 64, 8, 28672, 131_072, 128_256],
            ),
            preset(
                "llama3.1-405b",
                Kind::Llama31(8.0),
                [126, 16384, 128, 8, 53248, 131_072, 128_256],
            ),
        ]
    };

    /// Returns the preset of this name.
    pub fn named(name: &str) -> Option<LlamaPreset> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// Returns the configuration of this size.
    pub fn config(&self) -> LlamaConfig {
        let [
            n_layers,
            d_model,
            n_heads,
            n_kv_heads,
            d_hidden,
            max_seq_length,
            vocab_size,
        ] = self.sizes;
        let config = LlamaConfig::new(
            n_layers,
            d_model,
            n_heads,
            n_kv_heads,
            d_hidden,
            max_seq_length,
            vocab_size,
        );
        let stretched = |factor| RotaryScaling::Llama3 {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 8192,
        };
        let llama3 = |config: LlamaConfig| config.with_rotary_base(500_000.0);
        match self.kind {
            Kind::Llama2 => config,
            Kind::Llama3 => llama3(config),
            Kind::Llama31(factor) => llama3(config).with_rotary_scaling(stretched(factor)),
            Kind::Llama32(factor) => llama3(config)
                .with_rotary_scaling(stretched(factor))
                .with_tied_embeddings(true),
            Kind::Mistral => config.with_rotary_base(1e6),
            Kind::Qwen2 { is_tied } => config
                .with_rotary_base(1e6)
                .with_norm_epsilon(1e-6)
                .with_qkv_bias(true)
                .with_tied_embeddings(is_tied),
            Kind::Qwen3 { is_tied } => config
                .with_d_head((n_heads * QWEN3_HEAD != d_model).then_some(QWEN3_HEAD))
                .with_rotary_base(1e6)
                .with_norm_epsilon(1e-6)
                .with_qk_norm(true)
                .with_tied_embeddings(is_tied),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_config::ModelConfig;

    #[test]
    fn presets_have_the_published_numbers_of_parameters() {
        // As transformers counts the published files.
        let published = [
            494_032_768,
            596_049_920,
            1_235_814_400,
            1_543_714_304,
            1_720_574_976,
            3_212_749_824,
            4_022_468_096,
            6_738_415_616,
            7_248_023_552,
            7_615_616_512,
            8_030_261_248,
            8_030_261_248,
            8_190_735_360,
            13_015_864_320,
            14_768_307_200,
            32_762_123_264,
            68_976_648_192,
            70_553_706_496,
            70_553_706_496,
            405_853_388_800,
        ];
        for (preset, count) in LlamaPreset::ALL.iter().zip(published) {
            assert_eq!(preset.config().num_parameters(), count, "{}", preset.name);
        }
    }
}
