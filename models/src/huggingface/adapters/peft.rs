//! peft's files: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use burn::tensor::Bytes;
use burn_megatron::checkpoint::{Checkpoint, WholeArray};
use burn_megatron::parameters::Placement;
use burn_megatron::tensor_parallel::LowRankConfig;
use safetensors::tensor::{SafeTensors, TensorView};
use serde_json::{Value, json};

use super::config::AdapterConfig;
use super::keys::{KEYS, MERGE};
use super::sites::{AdapterFactor, AdapterSite, factors};
use crate::huggingface::files::read_object;
use crate::huggingface::import::{burn_dtype, file_type};
use crate::huggingface::place::{Place, write_bytes, write_json};
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat};
use crate::model_config::Objective;

const CONFIG_NAME: &str = "adapter_config.json";
const MODEL_NAME: &str = "adapter_model.safetensors";
/// The largest files that are read.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
const MAX_MODEL_BYTES: u64 = 64 << 30;

/// The adapters of a model in peft's files, read and checked.
#[derive(Debug)]
pub struct AdapterFiles {
    config: AdapterConfig,
    pub(super) sites: Vec<AdapterSite>,
    remarks: Vec<String>,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl AdapterFiles {
    /// Opens the adapters in a folder, which must be of `model`.
    ///
    /// # Errors
    /// A file is missing or broken; `adapter_config.json` asks for what there is not; a tensor is missing, unknown, or
    /// of another shape or type than f64, f32, f16 or bf16: names it, with what was expected.
    pub fn open<C: HuggingFaceFormat>(folder: impl AsRef<Path>, model: &C) -> Result<Self, HuggingFaceError> {
        let folder = folder.as_ref();
        let config_path = folder.join(CONFIG_NAME);
        let object = read_object(&config_path, MAX_CONFIG_BYTES)?;
        let mut fields = Fields::new(&config_path, object, KEYS.iter().collect())?;
        let low_rank = read_low_rank(&mut fields)?;
        let listed = read_targets(&mut fields)?;
        let remarks = fields.finish()?;
        let path = folder.join(MODEL_NAME);
        let mut files = Self {
            bytes: read_file(&path, MAX_MODEL_BYTES)?,
            config: AdapterConfig {
                low_rank,
                targets: Vec::new(),
            },
            sites: Vec::new(),
            remarks,
            path,
        };
        files.config.targets = match listed {
            Some(targets) => targets,
            None => {
                let tensors = files.tensors()?;
                let has = |site: &AdapterSite| tensors.tensor(&site.file_name(AdapterFactor::A)).is_ok();
                AdapterConfig::targets_of(model, has)
            }
        };
        let sites = files.config.sites(model);
        files.sites = sites.map_err(|error| HuggingFaceError::broken(&config_path, error.to_string()))?;
        files.check()?;
        Ok(files)
    }

    /// Returns remarks on the files: settings without effect.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    pub fn config(&self) -> &AdapterConfig {
        &self.config
    }

    fn tensors(&self) -> Result<SafeTensors<'_>, HuggingFaceError> {
        SafeTensors::deserialize(&self.bytes).map_err(|error| HuggingFaceError::broken(&self.path, error.to_string()))
    }

    fn check(&self) -> Result<(), HuggingFaceError> {
        let tensors = self.tensors()?;
        let rank = self.config.low_rank.rank;
        let mut expected: HashMap<String, [usize; 2]> = factors(&self.sites)
            .map(|(site, factor)| (site.file_name(factor), site.file_shape(factor, rank)))
            .collect();
        let mut names = tensors.names();
        names.sort_unstable();
        for name in names {
            let Some(shape) = expected.remove(name) else {
                return Err(HuggingFaceError::Unknown {
                    path: self.path.clone(),
                    name: name.to_owned(),
                    hint: hint(name, &self.config.targets),
                });
            };
            let view = self.view(&tensors, name)?;
            if view.shape() != shape {
                return Err(HuggingFaceError::Shape {
                    path: self.path.clone(),
                    name: name.to_owned(),
                    found: view.shape().to_vec(),
                    expected: shape.to_vec(),
                });
            }
            burn_dtype(&self.path, name, view.dtype())?;
        }
        match expected.into_iter().min() {
            None => Ok(()),
            Some((name, shape)) => Err(HuggingFaceError::Missing {
                path: self.path.clone(),
                name,
                expected: shape.to_vec(),
            }),
        }
    }

    fn view<'a>(&self, tensors: &SafeTensors<'a>, name: &str) -> Result<TensorView<'a>, HuggingFaceError> {
        let view = tensors.tensor(name);
        view.map_err(|error| HuggingFaceError::broken(&self.path, error.to_string()))
    }

    /// Returns the factors as arrays of a checkpoint, each with its elements, which keep type and bits.
    ///
    /// # Errors
    /// None for files that have been opened.
    pub fn arrays(&self) -> Result<Vec<(WholeArray, Bytes)>, HuggingFaceError> {
        let tensors = self.tensors()?;
        let mut arrays = Vec::new();
        for (site, factor) in factors(&self.sites) {
            let name = site.file_name(factor);
            let view = self.view(&tensors, &name)?;
            let dtype = burn_dtype(&self.path, &name, view.dtype())?;
            let array = WholeArray {
                name: site.array_name(factor),
                dtype,
                shape: site.logical_shape(factor, self.config.low_rank.rank),
            };
            let shape = site.file_shape(factor, self.config.low_rank.rank);
            let bytes = transposed(view.data(), shape, dtype.size());
            arrays.push((array, Bytes::from_bytes_vec(bytes)));
        }
        Ok(arrays)
    }
}

/// Writes the adapters of a checkpoint, which is of `model`, as a folder that peft takes. Elements keep type and bits.
///
/// The folder is there whole, on the disk, or not at all. `base` is what the files call the model without
/// adapters.
///
/// # Errors
/// `output` is there and not empty, or cannot be written; the checkpoint has other adapters, or cannot be read.
pub fn export_adapters<C: HuggingFaceFormat>(
    checkpoint: &Checkpoint,
    model: &C,
    config: &AdapterConfig,
    base: &str,
    output: impl AsRef<Path>,
) -> Result<(), HuggingFaceError> {
    let sites = config.sites(model);
    let sites = sites.map_err(|error| HuggingFaceError::broken(checkpoint.path(), error.to_string()))?;
    let rank = config.low_rank.rank;
    let mut tensors = Vec::new();
    for (site, factor) in factors(&sites) {
        let placement = Placement::whole(site.logical_shape(factor, rank));
        let name = site.array_name(factor);
        let stored = checkpoint.read(&name, &placement, 0..placement.local_len())?;
        let [rows, columns] = site.file_shape(factor, rank);
        let bytes = transposed(&stored.bytes, [columns, rows], stored.dtype.size());
        let dtype = file_type(stored.dtype).ok_or_else(|| {
            let what = format!(
                "array {name:?} has type {:?}: expected F64, F32, F16 or BF16",
                stored.dtype
            );
            HuggingFaceError::broken(checkpoint.path(), what)
        })?;
        tensors.push((site.file_name(factor), dtype, vec![rows, columns], bytes));
    }
    let broken = |error: safetensors::SafeTensorError| HuggingFaceError::broken(output.as_ref(), error.to_string());
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.clone(), bytes);
        view.map(|view| (name.as_str(), view))
    });
    let views: Vec<(&str, TensorView)> = views.collect::<Result<_, _>>().map_err(broken)?;
    let notes = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(views, Some(notes)).map_err(broken)?;
    let is_input_first = sites.iter().all(|site| site.is_input_first);
    let place = Place::find(output.as_ref())?;
    let draft = place.draft()?;
    write_json(
        &draft.path().join(CONFIG_NAME),
        &written_fields(config, base, is_input_first, model.objective()),
    )?;
    write_bytes(&draft.path().join(MODEL_NAME), &bytes)?;
    place.commit(draft)
}

fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, HuggingFaceError> {
    let length = std::fs::metadata(path)
        .map_err(HuggingFaceError::file("open", path))?
        .len();
    if length > limit {
        let what = format!("{length} bytes: expected at most {limit}");
        return Err(HuggingFaceError::broken(path, what));
    }
    std::fs::read(path).map_err(HuggingFaceError::file("read", path))
}

/// Advice for a tensor that no target has.
fn hint(name: &str, targets: &[String]) -> String {
    let factor = [".lora_A.", ".lora_B."]
        .into_iter()
        .find(|factor| name.contains(factor));
    match factor {
        Some(factor) if !name.ends_with(&format!("{factor}weight")) => {
            let end = format!("{}weight", &factor[1..]);
            format!("peft's names end with {end}, without the adapter's name: save it with peft's save_pretrained")
        }
        _ => format!("{CONFIG_NAME} has the targets {}", targets.join(", ")),
    }
}

pub(super) fn read_low_rank(fields: &mut Fields) -> Result<LowRankConfig, HuggingFaceError> {
    fields.choice("peft_type", &[("LORA", ())])?;
    let rank = fields.size("r")?;
    let alpha = fields.number("lora_alpha", f64::MIN_POSITIVE..f64::MAX)?;
    for (field, usual, of) in [
        ("rank_pattern", json!(rank), "r"),
        ("alpha_pattern", json!(alpha), "lora_alpha"),
    ] {
        fields.agree_all(field, &usual, &format!("{of}: {MERGE}"))?;
    }
    // alpha / √rank in place of alpha / rank.
    let stabilized = if fields.flag("use_rslora")? {
        (rank as f64).sqrt()
    } else {
        1.0
    };
    Ok(LowRankConfig::new(rank, alpha * stabilized).with_dropout(fields.number("lora_dropout", 0.0..1.0)?))
}

/// Returns the targets if they are a list of names that holds in all layers; otherwise the tensors say which layers
/// have adapters.
pub(super) fn read_targets(fields: &mut Fields) -> Result<Option<Vec<String>>, HuggingFaceError> {
    let is_given = |field| fields.look(field).is_some_and(|value| *value != json!([]));
    let is_selected = ["exclude_modules", "layers_to_transform"].into_iter().any(is_given);
    if is_selected || fields.look("target_modules").is_none_or(Value::is_string) {
        fields.leave("target_modules");
        return Ok(None);
    }
    let list = fields.list("target_modules")?.unwrap_or_default();
    let names = list
        .iter()
        .map(|name| name.as_str().map(str::to_owned))
        .collect::<Option<_>>();
    names
        .map(Some)
        .ok_or_else(|| fields.refuse("target_modules", &list.clone().into(), "names of layers"))
}

fn written_fields(config: &AdapterConfig, base: &str, is_input_first: bool, objective: Objective) -> Value {
    // peft has no task of masked tokens.
    let task = match objective {
        Objective::NextToken => Some("CAUSAL_LM"),
        Objective::Spans { .. } => Some("SEQ_2_SEQ_LM"),
        Objective::MaskedTokens { .. } => None,
    };
    let alpha = config.low_rank.alpha;
    // As peft writes it.
    let alpha = if alpha.fract() == 0.0 && alpha < 1e9 {
        json!(alpha as u64)
    } else {
        json!(alpha)
    };
    json!({
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": is_input_first,
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": alpha,
        "lora_dropout": config.low_rank.dropout,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": config.low_rank.rank,
        "target_modules": config.targets,
        "task_type": task,
        "use_dora": false,
        "use_rslora": false,
    })
}

/// The elements of a matrix, of `size` bytes each, as those of its transpose.
fn transposed(bytes: &[u8], [rows, columns]: [usize; 2], size: usize) -> Vec<u8> {
    let mut found = Vec::with_capacity(bytes.len());
    for column in 0..columns {
        for row in 0..rows {
            let place = (row * columns + column) * size;
            found.extend_from_slice(&bytes[place..place + size]);
        }
    }
    found
}
