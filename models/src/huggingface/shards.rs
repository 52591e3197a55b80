//! Which tensors go into which file of an export: the files' names and headers, and the index of several. Pure.

use std::collections::HashMap;

use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Map, Value, json};

use super::export_type::ExportType;
use super::{INDEX_NAME, MODEL_NAME, Parameter, StoredTensor};

/// A file of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub name: String,
    /// Its parameters, in the model's order.
    pub parameters: Vec<Parameter>,
}

/// Returns the files of an export, none of which has more bytes of tensors than `max_bytes`, but for those of a single
/// parameter that has more; all tensors of a parameter are in one. One file has the name without a number.
pub(super) fn plan_shards(parameters: Vec<Parameter>, dtype: ExportType, max_bytes: u64) -> Vec<Shard> {
    let mut files: Vec<Vec<Parameter>> = Vec::new();
    let mut filled = 0;
    for parameter in parameters {
        let bytes = num_bytes(&parameter, dtype);
        match files.last_mut() {
            Some(file) if bytes <= max_bytes.saturating_sub(filled) => {
                file.push(parameter);
                filled += bytes;
            }
            _ => {
                files.push(vec![parameter]);
                filled = bytes;
            }
        }
    }
    let count = files.len();
    let name = |index: usize| match count {
        1 => MODEL_NAME.to_owned(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
    };
    let named = files.into_iter().enumerate();
    named
        .map(|(index, parameters)| Shard {
            name: name(index),
            parameters,
        })
        .collect()
}

/// Returns the index of several files, and its name; none of one.
pub(super) fn index(shards: &[Shard], dtype: ExportType) -> Option<(&'static str, Value)> {
    if shards.len() < 2 {
        return None;
    }
    let (mut total_size, mut weight_map) = (0, Map::new());
    for shard in shards {
        for parameter in &shard.parameters {
            total_size += num_bytes(parameter, dtype);
            for tensor in &parameter.tensors {
                weight_map.insert(tensor.file_name.clone(), shard.name.as_str().into());
            }
        }
    }
    let index = json!({ "metadata": { "total_size": total_size }, "weight_map": weight_map });
    Some((INDEX_NAME, index))
}

impl Shard {
    /// Returns the bytes before the file's tensors: length and JSON.
    pub fn header(&self, dtype: ExportType) -> Result<Vec<u8>, String> {
        let mut begin = 0;
        let tensors = self.parameters.iter().flat_map(|parameter| &parameter.tensors);
        let infos = tensors.map(|tensor| {
            let end = begin + tensor.num_elements() * dtype.burn().size();
            let info = TensorInfo {
                dtype: dtype.safetensors(),
                shape: tensor.shape.clone(),
                data_offsets: (begin, end),
            };
            begin = end;
            (tensor.file_name.clone(), info)
        });
        // transformers refuses files that do not say so.
        let notes = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let metadata = Metadata::new(Some(notes), infos.collect()).map_err(|error| error.to_string())?;
        let mut json = serde_json::to_vec(&metadata).map_err(|error| error.to_string())?;
        // Trailing spaces, so that the tensors begin at a multiple of 8.
        json.resize(json.len().next_multiple_of(8), b' ');
        let mut header = (json.len() as u64).to_le_bytes().to_vec();
        header.extend(json);
        Ok(header)
    }
}

fn num_bytes(parameter: &Parameter, dtype: ExportType) -> u64 {
    let in_files: usize = parameter.tensors.iter().map(StoredTensor::num_elements).sum();
    (in_files * dtype.burn().size()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name of each file and the lengths of its tensors, for tensors of `lengths` elements of 2 bytes.
    fn plan(lengths: &[usize], max_bytes: u64) -> Vec<(String, Vec<usize>)> {
        let parameters = lengths.iter().map(|length| Parameter::same("a", [*length]));
        let shards = plan_shards(parameters.collect(), ExportType::Bf16, max_bytes);
        let lengths = |shard: &Shard| shard.parameters.iter().map(Parameter::num_elements).collect();
        shards
            .iter()
            .map(|shard| (shard.name.clone(), lengths(shard)))
            .collect()
    }

    #[test]
    fn files_are_filled_to_the_byte_in_the_order_of_the_tensors() {
        let name = |number: usize, of: usize| format!("model-{number:05}-of-{of:05}.safetensors");
        assert_eq!(plan(&[3, 2, 5], 20), [(MODEL_NAME.to_owned(), vec![3, 2, 5])]);
        assert_eq!(plan(&[3, 2, 5], 19), [(name(1, 2), vec![3, 2]), (name(2, 2), vec![5])]);
        assert_eq!(plan(&[3, 2, 5], 10), [(name(1, 2), vec![3, 2]), (name(2, 2), vec![5])]);
        assert_eq!(
            plan(&[3, 2, 5], 9),
            [(name(1, 3), vec![3]), (name(2, 3), vec![2]), (name(3, 3), vec![5])]
        );
    }

    #[test]
    fn a_tensor_larger_than_a_file_may_be_has_one_of_its_own() {
        let files =
            |lengths: &[usize]| -> Vec<Vec<usize>> { plan(lengths, 8).into_iter().map(|file| file.1).collect() };
        assert_eq!(files(&[1, 9, 1, 1]), [vec![1], vec![9], vec![1, 1]]);
        assert_eq!(files(&[9]), [[9]]);
        assert_eq!(plan(&[9], 0), [(MODEL_NAME.to_owned(), vec![9])]);
    }
}
