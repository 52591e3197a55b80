//! Reading a model's `config.json`.

use std::path::Path;

use burn_megatron::topology::ParallelConfig;
use serde_json::{Map, Value};

use super::files::read_json;
use super::{CONFIG_NAME, Fields, HuggingFaceError, HuggingFaceFormat};

/// The largest file. That of GPT-2 has 700 bytes.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// Reads `config.json`.
///
/// # Errors
/// It cannot be read, or asks for what the family does not have: names the setting, its value, and what it may be.
pub(super) fn read_config<C: HuggingFaceFormat>(path: &Path) -> Result<C, HuggingFaceError> {
    parse_config(path, read_fields(path)?)
}

/// Returns which of `known` the `model_type` of a model's `config.json` is.
///
/// # Errors
/// It cannot be read, or is none of them.
pub fn read_model_type<'a>(folder: &Path, known: &[&'a str]) -> Result<&'a str, HuggingFaceError> {
    let path = folder.join(CONFIG_NAME);
    let mut fields = Fields {
        left: read_fields(&path)?,
        path,
    };
    let model_type = fields.take("model_type").unwrap_or_default();
    one_of(&fields, &model_type, known)
}

/// Returns which of `known` a model's type is.
fn one_of<'a>(fields: &Fields, model_type: &Value, known: &[&'a str]) -> Result<&'a str, HuggingFaceError> {
    let found = known.iter().copied().find(|name| *model_type == **name);
    found.ok_or_else(|| {
        let known: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
        fields.refuse("model_type", model_type, &known.join(" or "))
    })
}

fn read_fields(path: &Path) -> Result<Map<String, Value>, HuggingFaceError> {
    match read_json(path, MAX_CONFIG_BYTES)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(HuggingFaceError::broken(path, "expected a JSON object")),
    }
}

pub(crate) fn parse_config<C: HuggingFaceFormat>(
    path: &Path,
    fields: Map<String, Value>,
) -> Result<C, HuggingFaceError> {
    let mut fields = Fields {
        path: path.to_owned(),
        left: fields,
    };
    let model_type = fields.take("model_type").unwrap_or_default();
    let model_type = one_of(&fields, &model_type, C::MODEL_TYPES)?;
    let config = C::read_fields(model_type, &mut fields)?;
    fields.finish()?;
    let is_valid = config.validate(&ParallelConfig::default());
    is_valid.map_err(|error| HuggingFaceError::broken(path, error.to_string()))?;
    Ok(config)
}
