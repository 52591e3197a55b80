//! The families that programs know by name.

use std::path::Path;

use burn_megatron::data_parallel::BucketParameter;

use crate::family::{ModelFamily, ModelSettings};
use crate::huggingface::{HuggingFaceError, HuggingFaceFormat, read_model_type};
use crate::layers::ModelError;
use crate::memory::{StageSetting, stage_parameters};
use crate::model_config::ModelConfig;

/// Lists the families: [`FAMILIES`], and [`run_with_family`] for those who need the type.
macro_rules! families {
    ($($family:ty),+ $(,)?) => {
        /// All families; the first is the default.
        pub static FAMILIES: &[Family] = &[$(Family::of::<$family>()),+];

        /// Runs a program with the type of a family.
        pub fn run_with_family<P: FamilyProgram>(name: &str, program: P) -> Result<P::Output, UnknownFamily> {
            $(if name == <$family>::NAME {
                return Ok(program.run::<$family>());
            })+
            Err(UnknownFamily::named(name))
        }
    };
}

families![
    crate::gpt::GptConfig,
    crate::llama::LlamaConfig,
    crate::neox::NeoxConfig,
    crate::bloom::BloomConfig,
    crate::bert::BertConfig,
    crate::t5::T5Config,
];

/// A family without its type.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name on the command line and in checkpoints.
    pub name: &'static str,
    /// The values of `model_type` in Hugging Face's `config.json`.
    pub model_types: &'static [&'static str],
    /// Returns the names of its well-known sizes.
    pub presets: fn() -> Vec<&'static str>,
    /// The flags of settings that are not every family's and that it has a choice of.
    pub choices: &'static [&'static str],
    /// Returns the new model that was asked for.
    pub config: fn(&ModelSettings) -> Box<dyn ModelConfig>,
}

/// A model whose family is not known by its type.
pub trait AnyModel: ModelConfig {
    /// Returns the parameters of each pipeline stage: see [`stage_parameters`].
    ///
    /// # Errors
    /// When a size does not divide.
    fn stage_parameters(&self, setting: &StageSetting<'_>) -> Result<Vec<Vec<BucketParameter>>, ModelError>;
}

impl<C: ModelFamily> AnyModel for C {
    fn stage_parameters(&self, setting: &StageSetting<'_>) -> Result<Vec<Vec<BucketParameter>>, ModelError> {
        stage_parameters(self, setting)
    }
}

impl Family {
    const fn of<C: ModelFamily>() -> Self {
        Self {
            name: C::NAME,
            model_types: <C as HuggingFaceFormat>::MODEL_TYPES,
            presets: || C::PRESETS.iter().map(|preset| preset.name).collect(),
            choices: C::CHOICES,
            config: |settings| Box::new(C::from_settings(settings)),
        }
    }

    /// Returns the family of this name.
    pub fn named(name: &str) -> Result<&'static Self, UnknownFamily> {
        let found = FAMILIES.iter().find(|family| family.name == name);
        found.ok_or_else(|| UnknownFamily::named(name))
    }

    /// Returns the family of the model in a folder of Hugging Face's files.
    ///
    /// # Errors
    /// `config.json` cannot be read, or names none of the families' types of models.
    pub fn of_files(folder: &Path) -> Result<&'static Self, HuggingFaceError> {
        let model_type = read_model_type(folder, &model_types())?;
        let family = FAMILIES.iter().find(|family| family.model_types.contains(&model_type));
        Ok(family.expect("a family has each of the model types"))
    }

    pub fn with_preset(preset: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| (family.presets)().contains(&preset))
    }
}

/// A program that runs with any family.
pub trait FamilyProgram {
    type Output;

    fn run<C: ModelFamily>(self) -> Self::Output;
}

/// A name that no family has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no model family {name:?}: expected {}", known.join(" or "))]
pub struct UnknownFamily {
    name: String,
    known: Vec<&'static str>,
}

impl UnknownFamily {
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            known: FAMILIES.iter().map(|family| family.name).collect(),
        }
    }
}

/// Returns the values of `model_type` of all families.
pub fn model_types() -> Vec<&'static str> {
    FAMILIES.iter().flat_map(|family| family.model_types).copied().collect()
}

/// Returns the names of all families' well-known sizes.
pub fn presets() -> Vec<&'static str> {
    FAMILIES.iter().flat_map(|family| (family.presets)()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use burn_megatron::context::ParallelContext;
    use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};

    use super::*;
    use crate::huggingface::{checks, key_of};

    /// Models that flags can choose; each family takes what it has.
    fn chosen() -> Vec<ModelSettings> {
        let small = ModelSettings::small();
        let odd = ModelSettings {
            tied_embeddings: Some(false),
            d_hidden: None,
            qkv_bias: false,
            qk_norm: true,
            d_head: Some(6),
            window: Some(5),
            tells_pairs: Some(false),
            rotary_percent: Some(0.5),
            rotary_base: Some(77.0),
            hidden_dropout: Some(0.3),
            attention_dropout: Some(0.2),
            norm_epsilon: Some(1e-3),
            init_deviation: Some(0.7),
            ..small.clone()
        };
        let tied = ModelSettings {
            tied_embeddings: Some(true),
            qkv_bias: false,
            vocab_size: 51200,
            window: Some(7),
            ..small.clone()
        };
        let windowed = ModelSettings {
            window: Some(5),
            ..small.clone()
        };
        vec![small, odd, tied, windowed]
    }

    /// Checks a family's files.
    struct Files;

    impl FamilyProgram for Files {
        type Output = ();

        fn run<C: ModelFamily>(self) {
            for settings in chosen() {
                let config = C::from_settings(&settings);
                let context = ParallelContext::single(1);
                let sizes = LayerSizes {
                    n_layers: config.n_layers(),
                    num_stages: 1,
                    num_chunks: 1,
                };
                let layers = LayerLayout::even(sizes).expect("one stage");
                let chunks = config.init_stage(&layers, &burn::tensor::Device::flex(), &context);
                checks::expect_declared(&config, &chunks.expect("sizes that fit"), &context);
                for tensor in config.parameters().flat_map(|parameter| parameter.tensors) {
                    for name in [&tensor.file_name, &tensor.key] {
                        assert_eq!(key_of::<C>(name).as_deref(), Some(tensor.key.as_str()), "{name}");
                    }
                }
            }
        }
    }

    /// Checks that what is written of a family's models is read back.
    struct Settings;

    impl FamilyProgram for Settings {
        type Output = ();

        fn run<C: ModelFamily>(self) {
            let presets = C::PRESETS.iter().map(|preset| ModelSettings {
                preset: Some(preset.name.to_owned()),
                n_layers: None,
                d_model: None,
                n_heads: None,
                n_kv_heads: None,
                d_hidden: None,
                max_seq_length: None,
                qkv_bias: false,
                hidden_dropout: Some(0.1),
                ..ModelSettings::small()
            });
            for settings in chosen().into_iter().chain(presets) {
                let without = ModelSettings {
                    // Of the Llamas no file has these.
                    hidden_dropout: settings.hidden_dropout.filter(|_| C::NAME != "llama"),
                    padded_vocab_size: None,
                    ..settings
                };
                checks::expect_read_back(C::from_settings(&without));
            }
        }
    }

    #[test]
    fn files_of_every_family_have_what_its_models_declare() {
        for family in FAMILIES {
            run_with_family(family.name, Files).expect("a family");
        }
    }

    #[test]
    fn what_is_written_of_every_family_is_read_back() {
        // T5's say nothing of lengths and deviations.
        for family in FAMILIES.iter().filter(|family| family.name != "t5") {
            run_with_family(family.name, Settings).expect("a family");
        }
    }

    /// Checks the tables of a family's settings.
    struct Keys;

    impl FamilyProgram for Keys {
        type Output = ();

        fn run<C: ModelFamily>(self) {
            checks::expect_keys::<C>();
        }
    }

    #[test]
    fn each_setting_of_every_family_is_honoured_refused_or_listed() {
        for family in FAMILIES {
            run_with_family(family.name, Keys).expect("a family");
        }
    }

    #[test]
    fn names_presets_and_model_types_belong_to_one_family() {
        let unique = |names: Vec<&str>| names.len() == names.iter().collect::<HashSet<_>>().len();
        assert!(unique(FAMILIES.iter().map(|family| family.name).collect()));
        assert!(unique(model_types()));
        assert!(unique(presets()));
        for preset in presets() {
            assert!(Family::with_preset(preset).is_some(), "{preset}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_those_that_there_are() {
        let error = Family::named("gtp").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no model family \"gtp\": expected gpt or llama or neox or bloom or bert or t5"
        );
    }
}
