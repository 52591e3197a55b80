//! Checkpoints to files and back, and every way in which files can be wrong.

mod bad_input;
mod exports;
mod imports;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use burn::tensor::{Bytes, DType};
use burn_megatron::checkpoint::{ArrayPart, Checkpoint, CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::parameters::Placement;
use burn_megatron::random::RandomStream;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::gpt::GptConfig;

/// Sizes that are multiples of little.
fn config(is_tied: bool) -> GptConfig {
    GptConfig::new(2, 6, 3, 5, 13)
        .with_d_hidden(Some(10))
        .with_tied_embeddings(is_tied)
}

/// A parameter's values: all different from all others'.
fn values(parameter: &Parameter) -> Vec<f32> {
    let mut numbers = vec![0.0; parameter.num_elements()];
    RandomStream::new(7, &parameter.name).fill_normal(0, 1.0, &mut numbers);
    numbers.into_iter().map(|number| number as f32).collect()
}

/// The dimension along which two tensor ranks share a parameter, if they do.
fn cut_dimension(name: &str) -> Option<usize> {
    let ends = |end| name.ends_with(end);
    match name {
        "wte.weight" | "lm_head.weight" => Some(0),
        _ if ends("c_attn.weight") || ends("c_fc.weight") => Some(2),
        _ if ends("c_attn.bias") || ends("c_fc.bias") => Some(1),
        _ if ends("c_proj.weight") => Some(0),
        _ => None,
    }
}

/// The boxes of a parameter on two tensor ranks; the vocabulary is padded.
fn boxes(parameter: &Parameter) -> Vec<Placement> {
    let shape = &parameter.logical_shape;
    let Some(dimension) = cut_dimension(&parameter.name) else {
        return vec![Placement::whole(shape.clone())];
    };
    let width = shape[dimension].div_ceil(2);
    let shard = |index| {
        let (mut offset, mut local) = (vec![0; shape.len()], shape.clone());
        offset[dimension] = index * width;
        local[dimension] = width;
        Placement::new(shape.clone(), offset, local)
    };
    vec![shard(0), shard(1)]
}

/// The parts of a parameter, as two tensor ranks and two that share out the optimizer have them.
fn parts(parameter: &Parameter, dtype: DType) -> Vec<ArrayPart> {
    let values = values(parameter);
    let mut parts = Vec::new();
    for placement in boxes(parameter) {
        let mut local = vec![0.0; placement.local_len()];
        for run in placement.runs() {
            local[run.local..run.local + run.length].copy_from_slice(&values[run.logical..run.logical + run.length]);
        }
        let cut = local.len() * 3 / 7;
        for range in [0..cut, cut..local.len()] {
            let data = match dtype {
                DType::F64 => Bytes::from_elems(local[range.clone()].iter().map(|x| f64::from(*x)).collect()),
                _ => Bytes::from_elems(local[range.clone()].to_vec()),
            };
            parts.push(ArrayPart {
                name: format!("model.{}", parameter.name),
                placement: placement.clone(),
                range,
                dtype,
                data,
            });
        }
    }
    parts
}

fn save(directory: &Path, parts: Vec<ArrayPart>) -> Checkpoint {
    let mut writer = CheckpointWriter::new(ProcessGroup::single(), directory, CheckpointConfig::new()).unwrap();
    writer.save(20, parts, json!(null)).unwrap();
    Checkpoint::latest(directory).unwrap().unwrap()
}

/// A checkpoint of the model, with something of an optimizer, cut as layouts cut.
fn sharded_checkpoint(directory: &Path, config: &GptConfig, dtype: DType) -> Checkpoint {
    let mut all: Vec<ArrayPart> = config
        .parameters()
        .flat_map(|parameter| parts(&parameter, dtype))
        .collect();
    let updates = Bytes::from_elems(vec![20.0_f64]);
    let name = "optimizer.updates.wte.weight";
    all.push(ArrayPart::whole(name, Placement::whole([1]), DType::F64, updates));
    save(directory, all)
}

/// Whether a checkpoint has the model's values, to the bit, and nothing else.
fn expect_values(checkpoint: &Checkpoint, config: &GptConfig) {
    assert_eq!(checkpoint.arrays().len(), config.parameters().count());
    for parameter in config.parameters() {
        let placement = Placement::whole(parameter.logical_shape.clone());
        let name = format!("model.{}", parameter.name);
        let read = checkpoint.read(&name, &placement, 0..placement.local_len()).unwrap();
        assert_eq!(read.dtype, DType::F32, "{name}");
        let expected = values(&parameter);
        assert_eq!(&read.bytes[..], bytemuck::cast_slice::<f32, u8>(&expected), "{name}");
    }
}

/// A tensor of a file that is made by hand.
#[derive(Clone, Debug)]
struct Made {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

type Tensors = BTreeMap<String, Made>;

fn made(shape: &[usize], values: &[f32]) -> Made {
    Made {
        dtype: Dtype::F32,
        shape: shape.to_vec(),
        bytes: bytemuck::cast_slice(values).to_vec(),
    }
}

/// Returns the model's tensors as transformers writes them: `prefix` comes before each name except the head's.
fn tensors(config: &GptConfig, prefix: &str) -> Tensors {
    let tensor = |parameter: Parameter| {
        let name = match parameter.name.as_str() {
            "lm_head.weight" => parameter.name.clone(),
            name => format!("{prefix}{name}"),
        };
        (name, made(&parameter.tensors[0].shape, &values(&parameter)))
    };
    config.parameters().map(tensor).collect()
}

fn write_tensors<'a>(path: &Path, tensors: impl IntoIterator<Item = (&'a String, &'a Made)>) {
    let views = tensors.into_iter().map(|(name, made)| {
        let view = TensorView::new(made.dtype, made.shape.clone(), &made.bytes).unwrap();
        (name.clone(), view)
    });
    fs::write(path, serialize(views, None).unwrap()).unwrap();
}

fn write_config(folder: &Path, config: &GptConfig, change: impl FnOnce(&mut Value)) {
    let mut fields = config.written_fields("float32");
    change(&mut fields);
    fs::write(folder.join(CONFIG_NAME), fields.to_string()).unwrap();
}

/// A folder with the model in one file.
fn folder_of(config: &GptConfig, tensors: &Tensors) -> TempDir {
    let folder = TempDir::new().unwrap();
    write_config(folder.path(), config, |_| ());
    write_tensors(&folder.path().join(MODEL_NAME), tensors);
    folder
}

/// Writes tensors into three files and their index, which `change` may spoil.
fn write_sharded(folder: &Path, tensors: &Tensors, change: impl FnOnce(&mut Value)) {
    let file = |number: usize| format!("model-{:05}-of-00003.safetensors", number + 1);
    let numbered = || tensors.iter().enumerate();
    let weight_map: BTreeMap<&String, String> =
        numbered().map(|(number, (name, _))| (name, file(number % 3))).collect();
    for number in 0..3 {
        let own = numbered()
            .filter(|(index, _)| index % 3 == number)
            .map(|(_, tensor)| tensor);
        write_tensors(&folder.join(file(number)), own);
    }
    let mut index = json!({ "metadata": { "total_size": 1 }, "weight_map": weight_map });
    change(&mut index);
    fs::write(folder.join(INDEX_NAME), index.to_string()).unwrap();
}

/// The names in a folder, hidden ones too.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
