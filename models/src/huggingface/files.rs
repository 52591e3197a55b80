//! [`TensorFiles`]: the tensors in a folder of safetensors files, by name, read piece by piece.
//!
//! Files are read, not mapped: others may write to them. Nothing is allocated by a size that has not been compared with
//! the file's.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use burn_megatron::checkpoint;
use burn_megatron_data::json_lines::with_numbers;
use safetensors::tensor::{Dtype, Metadata};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{HuggingFaceError, INDEX_NAME, MODEL_NAME};

/// The largest index of several files.
const MAX_INDEX_BYTES: u64 = 64 << 20;
/// The largest header of a safetensors file, as the format has it.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The bytes before the header: its length.
const LENGTH_BYTES: u64 = 8;
/// The first bytes of what Git has in the place of a large file.
const LFS_POINTER: &[u8] = b"version https://git-lfs";

/// The tensors of a model.
#[derive(Debug)]
pub(super) struct TensorFiles {
    /// The file that has them all, or the index.
    path: PathBuf,
    files: Vec<TensorFile>,
    /// By name, as it stands in the files.
    tensors: BTreeMap<String, FileTensor>,
    /// Names in the index that no file has, with the files that should have them.
    absent: BTreeMap<String, String>,
}

#[derive(Debug)]
struct TensorFile {
    path: PathBuf,
    file: File,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileTensor {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    file: usize,
    begin: u64,
    pub num_bytes: usize,
}

/// What is read of an index.
#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

impl TensorFiles {
    /// Opens the files of a folder, and reads and checks their headers.
    ///
    /// # Errors
    /// There are none; one is missing, truncated, or no safetensors file; the index names another file for a tensor, or
    /// two have it.
    pub fn open(folder: &Path) -> Result<Self, HuggingFaceError> {
        let (single, index) = (folder.join(MODEL_NAME), folder.join(INDEX_NAME));
        let (path, weight_map) = if single.exists() {
            (single, None)
        } else if index.exists() {
            let weight_map = read_index(&index)?;
            (index, Some(weight_map))
        } else {
            return Err(HuggingFaceError::NoTensors {
                folder: folder.to_owned(),
                advice: advice_for(folder),
            });
        };
        let names: Vec<String> = match &weight_map {
            None => vec![MODEL_NAME.to_owned()],
            Some(map) => map.values().collect::<BTreeSet<_>>().into_iter().cloned().collect(),
        };
        let mut found = Self {
            path,
            files: Vec::with_capacity(names.len()),
            tensors: BTreeMap::new(),
            absent: BTreeMap::new(),
        };
        for name in names {
            found.add(folder.join(&name), &name, weight_map.as_ref())?;
        }
        let listed = weight_map.into_iter().flatten();
        found.absent = listed
            .filter(|(tensor, _)| !found.tensors.contains_key(tensor))
            .collect();
        Ok(found)
    }

    /// Checks that the files have what the index says, but for what is not needed.
    ///
    /// # Errors
    /// Names the first tensor that a file does not have.
    pub fn check_index(&self, is_needed: impl Fn(&str) -> bool) -> Result<(), HuggingFaceError> {
        match self.absent.iter().find(|(tensor, _)| is_needed(tensor)) {
            None => Ok(()),
            Some((tensor, file)) => Err(HuggingFaceError::broken(
                &self.path.with_file_name(file),
                format!("expected the tensor {tensor:?}, which {INDEX_NAME} says is in it"),
            )),
        }
    }

    fn add(
        &mut self,
        path: PathBuf,
        name: &str,
        weight_map: Option<&HashMap<String, String>>,
    ) -> Result<(), HuggingFaceError> {
        let file = open_file(&path)?;
        let (data_begin, header) = read_header(&path, &file)?;
        for (tensor, info) in header.tensors() {
            // transformers takes what a file has and the index does not list.
            let stated = weight_map.and_then(|map| map.get(&tensor));
            if let Some(stated) = stated.filter(|stated| *stated != name) {
                return Err(HuggingFaceError::broken(
                    &path,
                    format!("it has the tensor {tensor:?}, which {INDEX_NAME} says is in {stated}"),
                ));
            }
            let (begin, end) = info.data_offsets;
            let entry = FileTensor {
                dtype: info.dtype,
                shape: info.shape.clone(),
                file: self.files.len(),
                begin: data_begin + begin as u64,
                num_bytes: end - begin,
            };
            if let Some(other) = self.tensors.get(&tensor) {
                let other = self.path_of(other).display();
                let what = format!("it has the tensor {tensor:?}, and so has {other}: expected it in one of them");
                return Err(HuggingFaceError::broken(&path, what));
            }
            self.tensors.insert(tensor, entry);
        }
        self.files.push(TensorFile { path, file });
        Ok(())
    }

    /// The file that has all tensors, or the index.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn path_of(&self, tensor: &FileTensor) -> &Path {
        &self.files[tensor.file].path
    }

    /// The tensors, by the names that they have in the files.
    pub fn tensors(&self) -> &BTreeMap<String, FileTensor> {
        &self.tensors
    }

    /// Fills `bytes` with those of a tensor from `offset` on.
    ///
    /// # Errors
    /// The operating system refuses, or the file has been truncated since it was opened.
    pub fn read(&self, tensor: &FileTensor, offset: usize, bytes: &mut [u8]) -> Result<(), std::io::Error> {
        let file = &self.files[tensor.file].file;
        file.read_exact_at(bytes, tensor.begin + offset as u64)
    }
}

fn open_file(path: &Path) -> Result<File, HuggingFaceError> {
    checkpoint::open_file(path).map_err(HuggingFaceError::file("open", path))
}

/// Returns what to do with a folder's files that are none of these.
fn advice_for(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let has = |is_it: &dyn Fn(&str) -> bool| names.iter().find(|name| is_it(name));
    let of_pytorch = |name: &str| name.starts_with("pytorch_model") && name.ends_with(".bin");
    let of_others = |name: &str| {
        let ends = [".gguf", ".h5", ".msgpack", ".bin", ".pt", ".pth", ".safetensors"];
        ends.iter().any(|end| name.ends_with(end))
    };
    if let Some(name) = has(&of_pytorch) {
        return format!(
            "; it has {name}: load it with transformers, and save it with save_pretrained(folder, \
             safe_serialization=True)"
        );
    }
    has(&of_others).map_or_else(String::new, |name| {
        format!("; it has {name}, which is not read: convert it to the format of transformers")
    })
}

/// Reads a JSON object from a file of at most `limit` bytes.
pub(super) fn read_object(path: &Path, limit: u64) -> Result<Map<String, Value>, HuggingFaceError> {
    match read_json(path, limit)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(HuggingFaceError::broken(path, "expected a JSON object")),
    }
}

/// Reads a JSON file of at most `limit` bytes, as Python writes it: numbers that are none are text.
fn read_json(path: &Path, limit: u64) -> Result<Value, HuggingFaceError> {
    let file = open_file(path)?;
    let mut text = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut text);
    read.map_err(HuggingFaceError::file("read", path))?;
    if text.len() as u64 > limit {
        return Err(HuggingFaceError::broken(
            path,
            format!("expected at most {limit} bytes"),
        ));
    }
    let quoted = |text: &str| serde_json::from_str(&with_numbers(text, |word| format!("{word:?}"))).ok();
    let read = serde_json::from_slice(&text).or_else(|error| {
        let text = std::str::from_utf8(&text).ok();
        text.and_then(quoted).ok_or(error)
    });
    read.map_err(|error| HuggingFaceError::broken(path, format!("it is no JSON: {error}")))
}

fn read_index(path: &Path) -> Result<HashMap<String, String>, HuggingFaceError> {
    let index: Result<Index, _> = serde_json::from_value(read_json(path, MAX_INDEX_BYTES)?);
    let index = index.map_err(|_| {
        HuggingFaceError::broken(
            path,
            "expected a JSON object with \"weight_map\", which has a file for each tensor",
        )
    })?;
    let is_plain = |file: &str| Path::new(file).file_name().is_some_and(|last| last == file);
    match index.weight_map.iter().find(|(_, file)| !is_plain(file)) {
        None => Ok(index.weight_map),
        Some((tensor, file)) => Err(HuggingFaceError::broken(
            path,
            format!("tensor {tensor:?} is in {file:?}: expected the name of a file next to the index"),
        )),
    }
}

/// Returns where the tensors of a safetensors file begin, and what it says of them, which fits its size.
fn read_header(path: &Path, file: &File) -> Result<(u64, Metadata), HuggingFaceError> {
    let broken = |what: String| HuggingFaceError::broken(path, what);
    let refused = |error| HuggingFaceError::file("read", path)(error);
    let size = file.metadata().map_err(refused)?.len();
    if size < LENGTH_BYTES {
        return Err(broken("expected a safetensors file".into()));
    }
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact_at(&mut length, 0).map_err(refused)?;
    let mut first = vec![0; LFS_POINTER.len().min(size as usize)];
    file.read_exact_at(&mut first, 0).map_err(refused)?;
    if first == LFS_POINTER {
        let what = "it is a pointer of Git LFS, and not the file: run `git lfs pull` in its folder";
        return Err(broken(what.to_owned()));
    }
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES || length > size - LENGTH_BYTES {
        return Err(broken(format!(
            "its safetensors header should have {length} bytes: the file has {size}, and a header at most \
             {MAX_HEADER_BYTES}"
        )));
    }
    let mut text = vec![0; length as usize];
    file.read_exact_at(&mut text, LENGTH_BYTES).map_err(refused)?;
    let header: Metadata =
        serde_json::from_slice(&text).map_err(|error| broken(format!("its safetensors header is wrong: {error}")))?;
    let begin = LENGTH_BYTES + length;
    match begin.checked_add(header.data_len() as u64) {
        Some(expected) if expected == size => Ok((begin, header)),
        expected => Err(broken(format!(
            "it has {size} bytes: expected {} by its header",
            expected.map_or_else(|| "more".to_owned(), |expected| expected.to_string())
        ))),
    }
}
