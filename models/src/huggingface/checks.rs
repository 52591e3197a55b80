//! Checks of the tests of every family's files.

use std::fmt::Debug;
use std::path::Path;

use burn::module::Module;
use burn_megatron::context::ParallelContext;
use burn_megatron::parameters::list_parameters;
use burn_megatron::topology::ParallelConfig;
use burn_megatron_data::names::{Effect, is_same, value_of};
use serde_json::{Map, Value, json};

use super::config::parse_config;
use super::keys::keys_of;
use super::{HuggingFaceFormat, Key, Probe};
use crate::model_config::ModelConfig;

/// Reads the settings of a `config.json`.
pub(crate) fn parse<C: HuggingFaceFormat>(value: Value) -> Result<C, String> {
    let Value::Object(fields) = value else {
        panic!("an object")
    };
    let parsed = parse_config::<C>(Path::new("config.json"), fields);
    parsed.map(|(config, _)| config).map_err(|error| error.to_string())
}

/// Checks each setting of a family's tables away from its default, in models that are otherwise transformers' default.
pub(crate) fn expect_keys<C: HuggingFaceFormat + PartialEq>() {
    for model_type in C::MODEL_TYPES {
        let keys = keys_of(C::KEYS, model_type);
        expect_table(&keys, "", |mut fields: Map<String, Value>| {
            fields.entry("model_type").or_insert((*model_type).into());
            let parsed = parse_config::<C>(Path::new("config.json"), fields);
            parsed.map_err(|error| format!("{model_type}: {error}"))
        });
    }
}

/// Checks each setting of a table away from its default: it is honoured, refused by name, or taken and listed.
pub(crate) fn expect_table<T: Debug + PartialEq>(
    keys: &[&'static Key],
    section: &str,
    parse: impl Fn(Map<String, Value>) -> Result<(T, Vec<String>), String>,
) {
    let (base, remarks) = parse(Map::new()).expect("defaults are valid");
    assert!(remarks.is_empty(), "{remarks:?}");
    for key in keys.iter().filter(|key| key.name != "model_type") {
        let name = format!("{section}{}", key.name);
        let with = |others: &[(&str, Value)]| {
            let with = key.with.iter().map(|(name, text)| ((*name).to_owned(), value_of(text)));
            let others = others.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            parse(with.chain(others).collect())
        };
        let refused = |value: &Value, found: Result<(T, Vec<String>), String>| {
            let error = found.expect_err(&name);
            assert!(error.contains(&format!("{name} is {value}: expected ")), "{error}");
        };
        // Some values are valid with others alone.
        let plain = with(&[]).map_or_else(|_| parse(Map::new()).expect("valid").0, |(config, _)| config);
        let odd = |known: &[Value]| {
            let any = [json!(true), json!(7), json!("odd"), json!({"odd": 1})];
            any.into_iter()
                .find(|value| !known.iter().any(|known| is_same(known, value)))
                .expect("one is odd")
        };
        match (key.effect, key.probe) {
            (_, Probe::Changes(other)) => {
                let (config, remarks) = with(&[(key.name, value_of(other))]).expect(&name);
                assert_ne!(config, plain, "{name}");
                assert!(remarks.is_empty(), "{name}: {remarks:?}");
                if key.with.is_empty() {
                    assert_eq!(
                        with(&[(key.name, value_of(key.default))]).expect(&name).0,
                        base,
                        "{name}"
                    );
                }
            }
            (_, Probe::Refused(other)) => refused(&value_of(other), with(&[(key.name, value_of(other))])),
            (Effect::Only(values, advice), _) => {
                let values: Vec<Value> = values.iter().copied().map(value_of).collect();
                for value in &values {
                    assert_eq!(with(&[(key.name, value.clone())]).expect(&name).0, plain, "{name}");
                }
                let (odd, found) = (odd(&values), with(&[(key.name, odd(&values))]));
                assert!(found.as_ref().is_err_and(|error| error.contains(advice)), "{name}");
                refused(&odd, found);
            }
            (Effect::Means(of), _) => {
                let Some(Probe::Changes(other)) = keys.iter().find(|key| key.name == of).map(|key| key.probe) else {
                    panic!("{of} is honoured")
                };
                let value = value_of(other);
                let same = [of, key.name].map(|name| with(&[(name, value.clone())]).map(|(config, _)| config));
                assert_eq!(same[0], same[1], "{name}");
                refused(&json!(1), with(&[(of, value), (key.name, json!(1))]));
            }
            (Effect::Idle, _) => {
                let (config, remarks) = with(&[(key.name, odd(&[value_of(key.default)]))]).expect(&name);
                assert_eq!(config, plain, "{name}");
                assert!(
                    remarks.concat().ends_with(&format!("without effect here: {name}")),
                    "{name}: {remarks:?}"
                );
            }
            _ => {
                let (config, remarks) = with(&[(key.name, json!(7))]).expect(&name);
                assert_eq!((config, remarks), (plain, Vec::new()), "{name}");
            }
        }
    }
}

/// Checks that well-known sizes are valid and have these numbers of parameters.
pub(crate) fn expect_numbers<C: ModelConfig>(presets: impl Iterator<Item = C>, numbers: &[usize]) {
    let counted = presets.map(|config| {
        assert_eq!(config.validate(&ParallelConfig::default()), Ok(()), "{config:?}");
        config.num_parameters()
    });
    assert_eq!(counted.collect::<Vec<_>>(), numbers);
}

/// Checks that a setting of a published `config.json` that has another value is refused by name, with words: by its
/// value, or as one that is not known.
pub(crate) fn expect_refused<C: HuggingFaceFormat>(published: &Value, others: &[(&str, Value, &str)]) {
    for (field, value, words) in others {
        let mut fields = published.clone();
        fields[*field] = value.clone();
        let error = parse::<C>(fields).unwrap_err();
        let begins = [format!("{value}: expected "), "not known: ".to_owned()];
        let found = error.strip_prefix(&format!("config.json: {field} is "));
        let is_refused = found.is_some_and(|found| begins.iter().any(|begin| found.starts_with(begin)));
        assert!(is_refused && error.contains(words), "{error}");
    }
}

/// Checks that what is written of a model is read back.
pub(crate) fn expect_read_back<C: HuggingFaceFormat + PartialEq>(config: C) {
    assert_eq!(parse(config.written_fields("float32")), Ok(config));
}

/// Checks that a model declares the parameters that its configuration lists for files and counts, and no other.
pub(crate) fn expect_declared<C: HuggingFaceFormat>(config: &C, model: &impl Module, context: &ParallelContext) {
    let declared = list_parameters(model).into_iter().map(|entry| {
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
    let tensors = config.parameters().flat_map(|mut parameter| {
        parameter.tensors.dedup_by(|tensor, other| tensor.key == other.key);
        parameter.tensors
    });
    let in_files: usize = tensors.map(|tensor| tensor.num_elements()).sum();
    assert_eq!(in_files, config.num_parameters(), "{config:?}");
}
