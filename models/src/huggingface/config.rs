//! Reading a model's `config.json`.

use std::path::Path;

use burn_megatron::topology::ParallelConfig;
use serde_json::{Map, Value};

use super::files::read_object;
use super::keys::keys_of;
use super::{CONFIG_NAME, Fields, HuggingFaceError, HuggingFaceFormat};

/// The largest file. That of GPT-2 has 700 bytes.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// Reads `config.json`, and returns what there is to say of settings without effect, too.
///
/// # Errors
/// It cannot be read, or asks for what the family does not have: names the setting, its value, and what it may be.
pub(super) fn read_config<C: HuggingFaceFormat>(path: &Path) -> Result<(C, Vec<String>), HuggingFaceError> {
    parse_config(path, read_object(path, MAX_CONFIG_BYTES)?)
}

/// Returns which of `known` the `model_type` of a model's `config.json` is.
///
/// # Errors
/// It cannot be read, or is none of them.
pub fn read_model_type<'a>(folder: &Path, known: &[&'a str]) -> Result<&'a str, HuggingFaceError> {
    let path = folder.join(CONFIG_NAME);
    model_type(&path, &read_object(&path, MAX_CONFIG_BYTES)?, known)
}

fn model_type<'a>(path: &Path, fields: &Map<String, Value>, known: &[&'a str]) -> Result<&'a str, HuggingFaceError> {
    let value = fields.get("model_type").unwrap_or(&Value::Null);
    let found = known.iter().copied().find(|name| *value == **name);
    found.ok_or_else(|| {
        let known: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
        HuggingFaceError::field(path, "model_type", value, &known.join(" or "))
    })
}

pub(crate) fn parse_config<C: HuggingFaceFormat>(
    path: &Path,
    fields: Map<String, Value>,
) -> Result<(C, Vec<String>), HuggingFaceError> {
    let model_type = model_type(path, &fields, C::MODEL_TYPES)?;
    let mut fields = Fields::new(path, fields, keys_of(C::KEYS, model_type))?;
    let config = C::read_fields(model_type, &mut fields)?;
    let remarks = fields.finish()?;
    let is_valid = config.validate(&ParallelConfig::default());
    is_valid.map_err(|error| HuggingFaceError::broken(path, error.to_string()))?;
    Ok((config, remarks))
}
