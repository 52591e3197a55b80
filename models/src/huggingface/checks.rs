//! What the tests of every family's files check.

use std::path::Path;

use burn::module::Module;
use burn_flex::Flex;
use burn_megatron::context::ParallelContext;
use burn_megatron::parameters::list_parameters;
use serde_json::Value;

use super::HuggingFaceFormat;
use super::config::parse_config;

/// Reads the settings of a `config.json`.
pub(crate) fn parse<C: HuggingFaceFormat>(value: Value) -> Result<C, String> {
    let Value::Object(fields) = value else {
        panic!("an object")
    };
    parse_config::<C>(Path::new("config.json"), fields).map_err(|error| error.to_string())
}

/// Checks that a model declares the parameters that its configuration lists for files, and no other.
pub(crate) fn expect_declared<C: HuggingFaceFormat>(config: &C, model: &impl Module<Flex>, context: &ParallelContext) {
    let declared = list_parameters::<Flex, _>(model).into_iter().map(|entry| {
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
}
