//! What the tests of every family's files check.

use std::path::Path;

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn_megatron::context::ParallelContext;
use burn_megatron::parameters::list_parameters;
use burn_megatron::topology::ParallelConfig;
use serde_json::Value;

use super::HuggingFaceFormat;
use super::config::parse_config;
use crate::model_config::ModelConfig;

/// Reads the settings of a `config.json`.
pub(crate) fn parse<C: HuggingFaceFormat>(value: Value) -> Result<C, String> {
    let Value::Object(fields) = value else {
        panic!("an object")
    };
    parse_config::<C>(Path::new("config.json"), fields).map_err(|error| error.to_string())
}

/// Checks that well-known sizes are valid and have these numbers of parameters.
pub(crate) fn expect_numbers<C: ModelConfig>(presets: impl Iterator<Item = C>, numbers: &[usize]) {
    let counted = presets.map(|config| {
        assert_eq!(config.validate(&ParallelConfig::default()), Ok(()), "{config:?}");
        config.num_parameters()
    });
    assert_eq!(counted.collect::<Vec<_>>(), numbers);
}

/// Checks that a setting of a published `config.json` that has another value is refused by name and value, with words.
pub(crate) fn expect_refused<C: HuggingFaceFormat>(published: &Value, others: &[(&str, Value, &str)]) {
    for (field, value, words) in others {
        let mut fields = published.clone();
        fields[*field] = value.clone();
        let error = parse::<C>(fields).unwrap_err();
        let begin = format!("config.json: {field} is {value}: expected ");
        assert!(error.starts_with(&begin) && error.contains(words), "{error}");
    }
}

/// Checks that what is written of a model is read back.
pub(crate) fn expect_read_back<C: HuggingFaceFormat + PartialEq>(config: C) {
    assert_eq!(parse(config.written_fields("float32")), Ok(config));
}

/// Checks that a model declares the parameters that its configuration lists for files and counts, and no other.
pub(crate) fn expect_declared<B: Backend, C: HuggingFaceFormat>(
    config: &C,
    model: &impl Module<B>,
    context: &ParallelContext,
) {
    let declared = list_parameters::<B, _>(model).into_iter().map(|entry| {
        let declaration = context.registry().declaration(entry.id).expect("it is declared");
        (declaration.name, declaration.placement.logical_shape().to_vec())
    });
    let mut declared: Vec<(String, Vec<usize>)> = declared.collect();
    let listed = config
        .parameters()
        .map(|parameter| (parameter.name, parameter.logical_shape));
    let mut listed: Vec<(String, Vec<usize>)> = listed.collect();
    declared.sort();
    listed.sort();
    assert_eq!(listed, declared);
    let tensors = config.parameters().flat_map(|parameter| parameter.tensors);
    let in_files: usize = tensors.map(|tensor| tensor.num_elements()).sum();
    assert_eq!(in_files, config.num_parameters(), "{config:?}");
}
