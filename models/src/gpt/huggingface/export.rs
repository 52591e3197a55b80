//! [`export`]: a checkpoint of any layout as Hugging Face's `config.json` and `model.safetensors`.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, TensorData};
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::parameters::Placement;
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::MODEL as MODEL_ARRAYS;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::config::written_config;
use super::names::{Parameter, exported_name, parameters};
use super::{CONFIG_NAME, HuggingFaceError, MODEL_NAME};
use crate::gpt::GptConfig;

/// Data that is collected before it is written.
const BUFFER_BYTES: usize = 4 << 20;

/// The type of an export's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExportType {
    /// 32 bits: what a checkpoint has, unless it was trained in f64.
    #[default]
    F32,
    /// 16 bits with the range of f32.
    Bf16,
    /// 16 bits up to 65504.
    F16,
}

impl ExportType {
    fn burn(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }

    fn safetensors(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::Bf16 => Dtype::BF16,
            Self::F16 => Dtype::F16,
        }
    }

    fn pytorch(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
        }
    }
}

/// Writes the parameters of a checkpoint, which are those of a model of `config`, as a folder that transformers'
/// `GPT2LMHeadModel.from_pretrained` takes.
///
/// The folder is there whole, on the disk, or not at all. One parameter at a time is in memory.
///
/// # Errors
/// `output` is there and not empty, or cannot be written; the checkpoint is of another model, altered, or cannot be read; a
/// number is too large for `dtype`.
pub fn export(
    checkpoint: &Checkpoint,
    config: &GptConfig,
    output: impl AsRef<Path>,
    dtype: ExportType,
) -> Result<(), HuggingFaceError> {
    let output = output.as_ref();
    let parameters = check(checkpoint, config)?;
    let header = header(&parameters, dtype).map_err(|what| HuggingFaceError::broken(output, what))?;
    let place = Place::find(output)?;
    let draft = place.draft()?;

    let path = draft.path().join(CONFIG_NAME);
    let text = format!("{:#}\n", written_config(config, dtype.pytorch()));
    write_file(&path, |file| {
        file.write_all(text.as_bytes())
            .map_err(HuggingFaceError::file("write", &path))
    })?;
    let path = draft.path().join(MODEL_NAME);
    write_file(&path, |file| {
        let refused = |error| HuggingFaceError::file("write", &path)(error);
        file.write_all(&header).map_err(refused)?;
        for parameter in &parameters {
            let data = read_as(checkpoint, parameter, dtype)?;
            file.write_all(data.as_bytes()).map_err(refused)?;
        }
        Ok(())
    })?;
    place.commit(draft)
}

/// Returns the model's parameters, which the checkpoint has, and no other.
fn check(checkpoint: &Checkpoint, config: &GptConfig) -> Result<Vec<Parameter>, HuggingFaceError> {
    let path = || checkpoint.path().to_owned();
    let is_valid = config.validate(&ParallelConfig::default());
    is_valid.map_err(|error| HuggingFaceError::broken(checkpoint.path(), error.to_string()))?;
    let mut found = Vec::new();
    for parameter in parameters(config) {
        let name = array_name(&parameter);
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
    let known: HashSet<String> = found.iter().map(array_name).collect();
    let stored = checkpoint.arrays().iter().map(|array| &array.name);
    let mut unknown = stored.filter(|name| name.starts_with(MODEL_ARRAYS) && !known.contains(*name));
    match unknown.next() {
        None => Ok(found),
        Some(name) => Err(HuggingFaceError::Unknown {
            path: path(),
            name: name.clone(),
            hint: format!("its configuration is of a GPT of {} layers", config.n_layers),
        }),
    }
}

fn array_name(parameter: &Parameter) -> String {
    format!("{MODEL_ARRAYS}{}", parameter.name)
}

/// Returns the bytes before the tensors: length and JSON.
fn header(parameters: &[Parameter], dtype: ExportType) -> Result<Vec<u8>, String> {
    let mut begin = 0;
    let infos = parameters.iter().map(|parameter| {
        let end = begin + parameter.num_elements() * dtype.burn().size();
        let info = TensorInfo {
            dtype: dtype.safetensors(),
            shape: parameter.file_shape(),
            data_offsets: (begin, end),
        };
        begin = end;
        (exported_name(&parameter.name), info)
    });
    // transformers refuses files that do not say so.
    let notes = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let metadata = Metadata::new(Some(notes), infos.collect()).map_err(|error| error.to_string())?;
    let mut json = serde_json::to_vec(&metadata).map_err(|error| error.to_string())?;
    // Spaces behind it, so that the tensors begin at a multiple of 8.
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.extend(json);
    Ok(header)
}

/// Reads a parameter, and rounds it to the type.
fn read_as(checkpoint: &Checkpoint, parameter: &Parameter, dtype: ExportType) -> Result<TensorData, HuggingFaceError> {
    let length = parameter.num_elements();
    let placement = Placement::whole(parameter.logical_shape.clone());
    let stored = checkpoint.read(&array_name(parameter), &placement, 0..length)?;
    let stored = TensorData::from_bytes(stored.bytes, [length], stored.dtype);
    if stored.dtype == dtype.burn() {
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

fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), HuggingFaceError>,
) -> Result<(), HuggingFaceError> {
    let refused = |error| HuggingFaceError::file("write", path)(error);
    let file = File::create_new(path).map_err(HuggingFaceError::file("create", path))?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, file);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(|error| refused(error.into_error()))?;
    file.sync_all().map_err(refused)
}

/// Where an export goes.
struct Place {
    output: PathBuf,
    /// The folder that it is in.
    parent: PathBuf,
    /// Begins the name of what is being written.
    prefix: String,
}

impl Place {
    /// # Errors
    /// Something is there already, or the folder that it is to be in cannot be made.
    fn find(output: &Path) -> Result<Self, HuggingFaceError> {
        let name = output.file_name();
        let name = name.ok_or_else(|| HuggingFaceError::broken(output, "expected a path that ends in a name"))?;
        let is_free = match fs::read_dir(output) {
            Ok(mut entries) => entries.next().is_none(),
            Err(_) => !output.exists(),
        };
        if !is_free {
            return Err(HuggingFaceError::OutputExists {
                path: output.to_owned(),
            });
        }
        let parent = match output.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        fs::create_dir_all(&parent).map_err(HuggingFaceError::file("make folder", &parent))?;
        Ok(Self {
            output: output.to_owned(),
            parent,
            prefix: format!(".{}.partial-", name.to_string_lossy()),
        })
    }

    /// Makes a hidden folder beside it, which is removed when it is dropped.
    fn draft(&self) -> Result<tempfile::TempDir, HuggingFaceError> {
        let mut builder = tempfile::Builder::new();
        // As any folder that this process makes, not for this user alone.
        builder.prefix(&self.prefix).permissions(Permissions::from_mode(0o777));
        let draft = builder.tempdir_in(&self.parent);
        draft.map_err(HuggingFaceError::file("make a folder in", &self.parent))
    }

    /// Gives what has been written its name, when all of it is on the disk.
    fn commit(&self, draft: tempfile::TempDir) -> Result<(), HuggingFaceError> {
        sync_folder(draft.path())?;
        let renamed = fs::rename(draft.path(), &self.output);
        renamed.map_err(HuggingFaceError::file("rename the finished export to", &self.output))?;
        // There is nothing under its old name to remove.
        let _ = draft.keep();
        sync_folder(&self.parent)
    }
}

fn sync_folder(path: &Path) -> Result<(), HuggingFaceError> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(HuggingFaceError::file("sync folder", path))
}
