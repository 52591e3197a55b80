//! [`HuggingFaceModel`]: a model in Hugging Face's files, checked, and written as a checkpoint.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use burn::tensor::{Bytes, DType, TensorData};
use burn_megatron::checkpoint::{Checkpoint, CheckpointError, UnshardedCheckpoint, WholeArray};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use super::config::read_config;
use super::files::{FileTensor, TensorFiles};
use super::{CONFIG_NAME, HuggingFaceError, HuggingFaceFormat, Parameter, SecondName, StoredTensor};

/// The bytes of two tensors that are compared at a time.
const COMPARED_BYTES: usize = 1 << 20;

/// A model in Hugging Face's files, of which everything but the numbers has been read and checked.
#[derive(Debug)]
pub struct HuggingFaceModel<C> {
    folder: PathBuf,
    config: C,
    files: TensorFiles,
    remarks: Vec<String>,
    /// The model's parameters, each with its type and its tensors.
    parameters: Vec<(Parameter, DType, Vec<FileTensor>)>,
}

impl<C: HuggingFaceFormat> HuggingFaceModel<C> {
    /// Opens the model in a folder.
    ///
    /// The head is the token embedding if `config.json` does not say otherwise (`tie_word_embeddings`) and there is no
    /// head in the files, or one with the embedding's bits; it has weights of its own else.
    ///
    /// # Errors
    /// A file is missing, truncated or broken; `config.json` asks for what the family does not have; a
    /// tensor is missing, unknown, or of another shape or type than f64, f32, f16 or bf16. Names file, tensor, expected
    /// and found.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, HuggingFaceError> {
        let folder = folder.as_ref().to_owned();
        let (mut config, mut remarks): (C, _) = read_config(&folder.join(CONFIG_NAME))?;
        let files = TensorFiles::open(&folder)?;
        let mut named = name_tensors::<C>(&files)?;
        config.see_tensors(&|key| named.contains_key(key));
        // Files may have the embedding twice.
        let head = config
            .parameter_counts()
            .is_tied
            .then(|| config.head().tensors.remove(0).key);
        if let Some(key) = &head {
            let tensors = [key.as_str(), C::EMBEDDING].map(|key| named.get(key).copied());
            match tensors {
                [Some((name, head)), Some((_, embedding))] if !is_same(head, embedding, &files)? => {
                    config.untie();
                    let path = files.path_of(head).display();
                    remarks.push(format!(
                        "{path}: {name} differs from the token embedding: imported as a head of its own, though \
                         {CONFIG_NAME} says they are tied"
                    ));
                }
                _ => drop(named.remove(key.as_str())),
            }
        }
        files.check_index(|name| {
            let key = key_of::<C>(name);
            key.is_some_and(|key| head.as_deref() != Some(&key) && !named.contains_key(&key))
        })?;
        let mut found = Vec::new();
        // A list of the names alone could be longer than memory, were the configuration wrong: this ends at the first
        // that is missing.
        for mut parameter in config.parameters() {
            parameter.tensors.dedup_by(|tensor, other| tensor.key == other.key);
            let tensors = parameter.tensors.iter().map(|stored| find(stored, &files, &mut named));
            let tensors: Vec<(FileTensor, DType)> = tensors.collect::<Result<_, _>>()?;
            let dtype = common_type(tensors.iter().map(|(_, dtype)| *dtype));
            let tensors = tensors.into_iter().map(|(tensor, _)| tensor).collect();
            found.push((parameter, dtype, tensors));
        }
        let unknown = named.values().min_by_key(|(name, _)| *name);
        if let Some((name, tensor)) = unknown {
            return Err(HuggingFaceError::Unknown {
                path: files.path_of(tensor).to_owned(),
                name: (*name).to_owned(),
                hint: format!(
                    "{CONFIG_NAME} says a {} of {} layers",
                    config.family_name(),
                    config.n_layers()
                ),
            });
        }
        Ok(Self {
            folder,
            config,
            files,
            remarks,
            parameters: found,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn config(&self) -> &C {
        &self.config
    }

    /// Returns remarks on the files: settings without effect, a head that is not the embedding.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Writes the model into a folder of checkpoints, as one of iteration 0 that has parameters and no state of an
    /// optimizer. Returns its folder.
    ///
    /// Elements keep type and bits; where files have parts of a parameter in different types, it has the narrowest type
    /// that holds them all. `state` is stored with them for the program that loads them. One parameter at a
    /// time is in memory, with one of its tensors where files have parts of it.
    ///
    /// # Errors
    /// There are checkpoints in the folder already; it is held by a run or cannot be written to; the files cannot be
    /// read. Nothing is left then.
    pub fn write_checkpoint(&self, directory: impl AsRef<Path>, state: Value) -> Result<PathBuf, HuggingFaceError> {
        self.write_checkpoint_with_arrays(directory, state, Vec::new())
    }

    /// Writes as [`write_checkpoint`](Self::write_checkpoint) does, with further arrays, such as those of
    /// [`AdapterFiles`](super::AdapterFiles).
    ///
    /// # Errors
    /// As [`write_checkpoint`](Self::write_checkpoint); two arrays have the same name.
    pub fn write_checkpoint_with_arrays(
        &self,
        directory: impl AsRef<Path>,
        state: Value,
        further: Vec<(WholeArray, Bytes)>,
    ) -> Result<PathBuf, HuggingFaceError> {
        let directory = directory.as_ref();
        if let Some(found) = Checkpoint::latest(directory)? {
            return Err(HuggingFaceError::HasCheckpoints {
                directory: directory.to_owned(),
                found: found.path().to_owned(),
            });
        }
        let parameters: HashMap<String, (&Parameter, &[FileTensor])> = (self.parameters.iter())
            .map(|(parameter, _, tensors)| (parameter.array_name(), (parameter, tensors.as_slice())))
            .collect();
        let arrays = self.parameters.iter().map(|(parameter, dtype, _)| WholeArray {
            name: parameter.array_name(),
            dtype: *dtype,
            shape: parameter.logical_shape.clone(),
        });
        let contents: HashMap<String, &Bytes> = further
            .iter()
            .map(|(array, content)| (array.name.clone(), content))
            .collect();
        let checkpoint = UnshardedCheckpoint {
            iteration: 0,
            layout: json!({ "imported_from": self.folder }),
            state,
            arrays: arrays.chain(further.iter().map(|(array, _)| array.clone())).collect(),
        };
        let written = checkpoint.write(directory, |array| {
            let Some((parameter, tensors)) = parameters.get(&array.name) else {
                let content = contents.get(&array.name);
                return Ok((*content.expect("an array is a parameter, or a further one")).clone());
            };
            let size = array.dtype.size();
            let mut whole = Vec::new();
            for (stored, tensor) in parameter.tensors.iter().zip(*tensors) {
                let bytes = self.read(tensor, array.dtype)?;
                match &stored.part {
                    None => whole = bytes,
                    Some(part) => {
                        whole.resize(parameter.num_elements() * size, 0);
                        part.put(&bytes, &mut whole, size);
                    }
                }
            }
            Ok(Bytes::from_bytes_vec(whole))
        })?;
        Ok(written)
    }

    /// Returns a tensor's elements as those of a type that holds them.
    fn read(&self, tensor: &FileTensor, dtype: DType) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = vec![0; tensor.num_bytes];
        let read = self.files.read(tensor, 0, &mut bytes);
        read.map_err(|source| CheckpointError::File {
            action: "read",
            path: self.files.path_of(tensor).to_owned(),
            source,
        })?;
        match type_of(tensor.dtype) {
            Some(stored) if stored != dtype => {
                let shape = [tensor.shape.iter().product::<usize>()];
                let data = TensorData::from_bytes(Bytes::from_bytes_vec(bytes), shape, stored);
                Ok(data.convert_dtype(dtype).as_bytes().to_vec())
            }
            _ => Ok(bytes),
        }
    }
}

/// Returns a tensor of a parameter, and its type, and takes it out of those that are left.
fn find(
    stored: &StoredTensor,
    files: &TensorFiles,
    named: &mut HashMap<Cow<'_, str>, Named<'_>>,
) -> Result<(FileTensor, DType), HuggingFaceError> {
    let Some((name, tensor)) = named.remove(stored.key.as_str()) else {
        return Err(HuggingFaceError::Missing {
            path: files.path().to_owned(),
            name: stored.key.clone(),
            expected: stored.shape.clone(),
        });
    };
    if tensor.shape != stored.shape {
        return Err(HuggingFaceError::Shape {
            path: files.path_of(tensor).to_owned(),
            name: name.to_owned(),
            found: tensor.shape.clone(),
            expected: stored.shape.clone(),
        });
    }
    let dtype = burn_dtype(files.path_of(tensor), name, tensor.dtype)?;
    Ok((tensor.clone(), dtype))
}

/// The name that a tensor has in its file, and the tensor.
type Named<'a> = (&'a str, &'a FileTensor);

/// Returns the tensors by their keys; masks are left out.
fn name_tensors<C: HuggingFaceFormat>(
    files: &TensorFiles,
) -> Result<HashMap<Cow<'_, str>, Named<'_>>, HuggingFaceError> {
    let (mut named, mut seconds): (HashMap<Cow<str>, Named>, Vec<_>) = (HashMap::new(), Vec::new());
    for (name, tensor) in files.tensors() {
        let Some(key) = own_key::<C>(name) else {
            continue;
        };
        if let Some(second) = second_name::<C>(&key) {
            seconds.push((second, name, tensor));
        } else if let Some((other, _)) = named.insert(key, (name, tensor)) {
            let what = format!("tensors {other:?} and {name:?} are the same parameter: expected one of them");
            return Err(HuggingFaceError::broken(files.path(), what));
        }
    }
    for (second, name, tensor) in seconds {
        if let Some((other, first)) = named.insert(second.key.into(), (name, tensor))
            && !second.is_preferred
            && !is_same(first, tensor, files)?
        {
            let what =
                format!("tensors {other:?} and {name:?} differ: expected the same, for they are one parameter here");
            return Err(HuggingFaceError::broken(files.path_of(tensor), what));
        }
    }
    Ok(named)
}

/// Returns the [key](StoredTensor::key) of a tensor of a file, under whichever of its names.
pub(crate) fn key_of<C: HuggingFaceFormat>(name: &str) -> Option<Cow<'_, str>> {
    let key = own_key::<C>(name)?;
    Some(second_name::<C>(&key).map_or(key, |second| second.key.into()))
}

/// Returns the key of a tensor, its own if it has a second name.
fn own_key<C: HuggingFaceFormat>(name: &str) -> Option<Cow<'_, str>> {
    let key = C::imported_name(name)?;
    let newer = |(older, newer): &(&str, &str)| Some(format!("{}{newer}", key.strip_suffix(older)?));
    let renamed = C::OLDER_ENDS.iter().find_map(newer);
    Some(renamed.map_or(Cow::Borrowed(key), Cow::Owned))
}

fn second_name<C: HuggingFaceFormat>(key: &str) -> Option<&'static SecondName> {
    C::SECOND_NAMES.iter().find(|second| second.name == key)
}

/// Returns whether two tensors have the same type, shape and bits.
fn is_same(first: &FileTensor, second: &FileTensor, files: &TensorFiles) -> Result<bool, HuggingFaceError> {
    if (first.dtype, &first.shape) != (second.dtype, &second.shape) {
        return Ok(false);
    }
    let length = COMPARED_BYTES.min(first.num_bytes);
    let mut pieces = [vec![0; length], vec![0; length]];
    for begin in (0..first.num_bytes).step_by(COMPARED_BYTES) {
        let count = COMPARED_BYTES.min(first.num_bytes - begin);
        for (tensor, piece) in [first, second].into_iter().zip(&mut pieces) {
            let read = files.read(tensor, begin, &mut piece[..count]);
            read.map_err(HuggingFaceError::file("read", files.path_of(tensor)))?;
        }
        if pieces[0][..count] != pieces[1][..count] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the narrowest type that holds the numbers of each of these.
fn common_type(mut types: impl Iterator<Item = DType>) -> DType {
    let first = types.next().expect("a parameter has a tensor");
    types.fold(first, |wide, other| match (wide, other) {
        (wide, other) if wide == other => wide,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    })
}

/// Returns the type of a tensor of a file in burn's words.
///
/// # Errors
/// It is none of floating point, or of 8 bits.
pub(super) fn burn_dtype(path: &Path, name: &str, dtype: Dtype) -> Result<DType, HuggingFaceError> {
    type_of(dtype).ok_or_else(|| {
        let what = format!(
            "tensor {name:?} has type {dtype:?}: expected F64, F32, F16 or BF16; a quantized model must be dequantized \
             and saved in one of these"
        );
        HuggingFaceError::broken(path, what)
    })
}

fn type_of(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F64 => Some(DType::F64),
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}

/// Returns the type of a tensor in a file's words; `None` of those that files do not have.
pub(super) fn file_type(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::F64 => Some(Dtype::F64),
        DType::F32 => Some(Dtype::F32),
        DType::F16 => Some(Dtype::F16),
        DType::BF16 => Some(Dtype::BF16),
        _ => None,
    }
}
