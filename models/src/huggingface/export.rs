//! [`export`]: a checkpoint of any layout as Hugging Face's `config.json` and safetensors files.

use std::collections::HashSet;
use std::io::Write;
use std::path::{Component, Path};

use burn::tensor::TensorData;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::parameters::Placement;
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::MODEL as MODEL_ARRAYS;
use serde_json::{Map, Value};

use super::adapters::{AdapterConfig, AdapterSite, add_adapters, factors};
use super::export_type::ExportType;
use super::place::{Place, write_bytes, write_file, write_json};
use super::shards::{Shard, index, plan_shards};
use super::{CONFIG_NAME, HuggingFaceError, HuggingFaceFormat, NamedBytes, Parameter};
use crate::Objective;

/// The file of transformers that says how texts are generated, and the settings that it has of the model's.
const GENERATION_NAME: &str = "generation_config.json";
const GENERATION_FIELDS: [&str; 4] = ["bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"];
/// The largest file by default, as in transformers 4.
const DEFAULT_MAX_SHARD_BYTES: u64 = 5_000_000_000;

#[derive(Clone, Debug, PartialEq)]
pub struct ExportConfig {
    pub dtype: ExportType,
    /// The bytes of tensors in a file. Where they are more than this, there are several files and an index of them; a
    /// tensor that has more is in a file of its own.
    pub max_shard_bytes: u64,
    /// The adapters that the checkpoint has: what they add to weights is added there.
    pub adapters: Option<AdapterConfig>,
}

impl Default for ExportConfig {
    /// f32, in files of 5 GB.
    fn default() -> Self {
        Self {
            dtype: ExportType::default(),
            max_shard_bytes: DEFAULT_MAX_SHARD_BYTES,
            adapters: None,
        }
    }
}

/// Writes the parameters of a checkpoint, which are those of a model of `config`, as a folder that
/// `from_pretrained` of transformers takes.
///
/// The folder is there whole, on the disk, or not at all. One parameter at a time is in memory, twice where files have
/// parts of it.
///
/// # Errors
/// `output` is there and not empty, or cannot be written; the checkpoint is of another model, altered, or cannot be
/// read; a number is too large for the type.
pub fn export<C: HuggingFaceFormat>(
    checkpoint: &Checkpoint,
    config: &C,
    output: impl AsRef<Path>,
    options: &ExportConfig,
) -> Result<(), HuggingFaceError> {
    export_with(checkpoint, config, output, options, &[])
}

/// As [`export`], with further files in the folder. The settings of one that is called `config.json` are added to the
/// model's; a `generation_config.json` is written if none is there and they say where texts end.
///
/// # Errors
/// As [`export`]; a file has a name that another one has, or that is no name in the folder.
pub fn export_with<C: HuggingFaceFormat>(
    checkpoint: &Checkpoint,
    config: &C,
    output: impl AsRef<Path>,
    options: &ExportConfig,
    files: &[NamedBytes],
) -> Result<(), HuggingFaceError> {
    let (output, dtype) = (output.as_ref(), options.dtype);
    let adapters = Adapters::of(options.adapters.as_ref(), checkpoint, config)?;
    let shards = plan_shards(check(checkpoint, config, &adapters)?, dtype, options.max_shard_bytes);
    let place = Place::find(output)?;
    let draft = place.draft()?;
    let mut fields = config.written_fields(dtype.pytorch());
    let (of_config, files): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.name == CONFIG_NAME);
    for NamedBytes { content, .. } in of_config {
        let added: Map<String, Value> = serde_json::from_slice(content)
            .map_err(|error| HuggingFaceError::broken(output, format!("the settings to add: {error}")))?;
        for (field, value) in added {
            fields[field] = value;
        }
    }
    write_json(&draft.path().join(CONFIG_NAME), &fields)?;
    let generates = !matches!(config.objective(), Objective::MaskedTokens { .. }) && !fields["eos_token_id"].is_null();
    if generates && files.iter().all(|file| file.name != GENERATION_NAME) {
        let numbers = GENERATION_FIELDS.map(|field| (field, &fields[field]));
        let numbers: Map<String, Value> = (numbers.into_iter().filter(|(_, value)| !value.is_null()))
            .map(|(field, value)| (field.to_owned(), value.clone()))
            .collect();
        write_json(&draft.path().join(GENERATION_NAME), &numbers.into())?;
    }
    for shard in &shards {
        write_shard(checkpoint, &adapters, shard, &draft.path().join(&shard.name), dtype)?;
    }
    if let Some((name, index)) = index(&shards, dtype) {
        write_json(&draft.path().join(name), &index)?;
    }
    for NamedBytes { name, content } in files {
        // In the folder itself, or in a folder in it.
        let parts: Vec<Component<'_>> = Path::new(name).components().collect();
        if !matches!(
            parts[..],
            [Component::Normal(_)] | [Component::Normal(_), Component::Normal(_)]
        ) {
            let what = format!("{name:?} is no name of a file in the folder");
            return Err(HuggingFaceError::broken(output, what));
        }
        let path = draft.path().join(name);
        if let (2, Some(parent)) = (parts.len(), path.parent()) {
            std::fs::create_dir_all(parent).map_err(HuggingFaceError::file("make the folder", parent))?;
        }
        write_bytes(&path, content)?;
    }
    place.commit(draft)
}

/// The adapters of a checkpoint.
struct Adapters {
    sites: Vec<AdapterSite>,
    rank: usize,
    scale: f64,
}

impl Adapters {
    fn of<C: HuggingFaceFormat>(
        config: Option<&AdapterConfig>,
        checkpoint: &Checkpoint,
        model: &C,
    ) -> Result<Self, HuggingFaceError> {
        let sites = config.map_or(Ok(Vec::new()), |config| config.sites(model));
        Ok(Self {
            sites: sites.map_err(|error| HuggingFaceError::broken(checkpoint.path(), error.to_string()))?,
            rank: config.map_or(1, |config| config.low_rank.rank),
            scale: config.map_or(0.0, |config| config.low_rank.scale()),
        })
    }

    fn arrays(&self) -> impl Iterator<Item = String> {
        factors(&self.sites).map(|(site, factor)| site.array_name(factor))
    }
}

fn write_shard(
    checkpoint: &Checkpoint,
    adapters: &Adapters,
    shard: &Shard,
    path: &Path,
    dtype: ExportType,
) -> Result<(), HuggingFaceError> {
    let header = shard.header(dtype);
    let header = header.map_err(|what| HuggingFaceError::broken(path, what))?;
    write_file(path, |file| {
        let refused = |error| HuggingFaceError::file("write", path)(error);
        file.write_all(&header).map_err(refused)?;
        for parameter in &shard.parameters {
            let data = read_as(checkpoint, adapters, parameter, dtype)?;
            for tensor in &parameter.tensors {
                match &tensor.part {
                    None => file.write_all(data.as_bytes()),
                    Some(part) => file.write_all(&part.take(data.as_bytes(), dtype.burn().size())),
                }
                .map_err(refused)?;
            }
        }
        Ok(())
    })
}

/// Returns the model's parameters, which the checkpoint has, and no other.
fn check<C: HuggingFaceFormat>(
    checkpoint: &Checkpoint,
    config: &C,
    adapters: &Adapters,
) -> Result<Vec<Parameter>, HuggingFaceError> {
    let path = || checkpoint.path().to_owned();
    let is_valid = config.validate(&ParallelConfig::default());
    is_valid.map_err(|error| HuggingFaceError::broken(checkpoint.path(), error.to_string()))?;
    let mut found = Vec::new();
    for parameter in config.parameters() {
        let name = parameter.array_name();
        match checkpoint.array(&name) {
            Some(array) if array.shape == parameter.logical_shape => found.push(parameter),
            Some(array) => {
                return Err(HuggingFaceError::Shape {
                    path: path(),
                    name,
                    found: array.shape.clone(),
                    expected: parameter.logical_shape,
                });
            }
            None => {
                return Err(HuggingFaceError::Missing {
                    path: path(),
                    name,
                    expected: parameter.logical_shape,
                });
            }
        }
    }
    let known: HashSet<String> = found
        .iter()
        .map(Parameter::array_name)
        .chain(adapters.arrays())
        .collect();
    let stored = checkpoint.arrays().iter().map(|array| &array.name);
    let mut unknown = stored.filter(|name| name.starts_with(MODEL_ARRAYS) && !known.contains(*name));
    match unknown.next() {
        None => Ok(found),
        Some(name) => Err(HuggingFaceError::Unknown {
            path: path(),
            name: name.clone(),
            hint: format!(
                "its configuration is of a {} of {} layers",
                config.family_name(),
                config.n_layers()
            ),
        }),
    }
}

/// Reads a parameter, and rounds it to the type.
fn read_as(
    checkpoint: &Checkpoint,
    adapters: &Adapters,
    parameter: &Parameter,
    dtype: ExportType,
) -> Result<TensorData, HuggingFaceError> {
    let length = parameter.num_elements();
    let placement = Placement::whole(parameter.logical_shape.clone());
    let stored = checkpoint.read(&parameter.array_name(), &placement, 0..length)?;
    let stored = TensorData::from_bytes(stored.bytes, [length], stored.dtype);
    let factors = (adapters.rank, adapters.scale);
    let stored = add_adapters(stored, parameter, &adapters.sites, factors, checkpoint)?;
    if stored.dtype() == dtype.burn() {
        return Ok(stored);
    }
    let rounded = stored.clone().convert_dtype(dtype.burn());
    let too_large = {
        let mut pairs = stored.iter::<f64>().zip(rounded.iter::<f64>());
        pairs.find(|(value, rounded)| value.is_finite() && !rounded.is_finite())
    };
    match too_large {
        None => Ok(rounded),
        Some((value, _)) => Err(HuggingFaceError::TooLarge {
            name: parameter.name.clone(),
            value,
            dtype: dtype.pytorch(),
        }),
    }
}
