//! Recordings of a run: each rank's gradients and parameters of every step, in files.
//!
//! One safetensors file per step, kind and rank; placements are in its metadata, so a file can be judged without
//! the model. Tensors are written one by one, so that recording adds next to nothing to the peak memory of the run
//! that is recorded.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, View};
use serde::{Deserialize, Serialize};

use crate::context::ParallelContext;
use crate::data_parallel::ReducedGradients;
use crate::parameters::{Placement, read_host};

const METADATA_KEY: &str = "burn-megatron.parity";

/// A recording that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum RecordingError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path} is not a recording of a step: {reason}")]
    Format { path: PathBuf, reason: String },
}

/// Contents of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorKind {
    /// Gradients after finalisation and before clipping.
    Gradient,
    /// Parameters after the step.
    Parameter,
}

impl fmt::Display for TensorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            TensorKind::Gradient => "gradient",
            TensorKind::Parameter => "parameter",
        })
    }
}

/// One rank's part of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedTensor {
    /// The parameter's global name.
    pub name: String,
    /// Which part of the logical parameter it is.
    pub placement: Placement,
    /// Its elements, row-major, padding included.
    pub values: Vec<f64>,
}

/// Metadata of a tensor in a recording; the tensor itself is found by name, and its number where several have
/// it.
#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    placement: Placement,
}

/// Writes one rank's recordings.
#[derive(Clone, Debug)]
pub struct Recorder {
    folder: PathBuf,
    rank: usize,
}

impl Recorder {
    /// Returns a recorder of this rank that writes to an existing folder.
    pub fn new(folder: impl Into<PathBuf>, rank: usize) -> Self {
        Self {
            folder: folder.into(),
            rank,
        }
    }

    /// Writes a step's gradients.
    ///
    /// # Errors
    /// When the file cannot be written, naming it.
    pub fn gradients(&self, step: u64, gradients: &ReducedGradients) -> Result<(), RecordingError> {
        let tensors = gradients.entries().iter().map(|entry| LazyTensor {
            entry: Entry {
                name: entry.name.clone(),
                placement: entry.placement.clone(),
            },
            read: Box::new(|| gradients.values(entry)),
        });
        self.write(step, TensorKind::Gradient, tensors.collect())
    }

    /// Writes the declared parameters as they are after a step; step 0 is the start.
    ///
    /// # Errors
    /// When the file cannot be written, naming it.
    pub fn parameters<M: Module>(
        &self,
        step: u64,
        module: &M,
        context: &ParallelContext,
    ) -> Result<(), RecordingError> {
        struct Collector<'a>(&'a ParallelContext, Vec<LazyTensor<'static>>);
        impl ModuleVisitor for Collector<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let Some(declaration) = self.0.registry().declaration(param.id) else {
                    return;
                };
                let tensor = param.val();
                self.1.push(LazyTensor {
                    entry: Entry {
                        name: declaration.name,
                        placement: declaration.placement,
                    },
                    read: Box::new(move || read_host(tensor.clone())),
                });
            }
        }
        let mut collector = Collector(context, Vec::new());
        module.visit(&mut collector);
        self.write(step, TensorKind::Parameter, collector.1)
    }

    fn write(&self, step: u64, kind: TensorKind, tensors: Vec<LazyTensor<'_>>) -> Result<(), RecordingError> {
        let path = recording_path(&self.folder, step, kind, self.rank);
        let entries: Vec<&Entry> = tensors.iter().map(|tensor| &tensor.entry).collect();
        let keys = keys(tensors.iter().map(|tensor| tensor.entry.name.as_str()));
        let metadata = serde_json::to_string(&entries).map_err(|error| RecordingError::Format {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        let views = keys.into_iter().zip(&tensors);
        let metadata = HashMap::from([(METADATA_KEY.to_owned(), metadata)]);
        safetensors::serialize_to_file(views, Some(metadata), &path).map_err(|error| match error {
            SafeTensorError::IoError(source) => RecordingError::File { path, source },
            other => RecordingError::Format {
                path,
                reason: other.to_string(),
            },
        })
    }
}

/// Returns the names of tensors in a file: their own, and `name#2` for the second part of one, which a rank may
/// hold.
fn keys<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    names
        .map(|name| {
            let count = counts.entry(name).or_default();
            *count += 1;
            match *count {
                1 => name.to_owned(),
                number => format!("{name}#{number}"),
            }
        })
        .collect()
}

/// A tensor that is read when its turn to be written comes.
struct LazyTensor<'a> {
    entry: Entry,
    read: Box<dyn Fn() -> Vec<f64> + 'a>,
}

impl View for &LazyTensor<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }

    fn shape(&self) -> &[usize] {
        self.entry.placement.local_shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let values = (self.read)();
        assert_eq!(values.len(), self.entry.placement.local_len(), "{}", self.entry.name);
        Cow::Owned(values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn data_len(&self) -> usize {
        8 * self.entry.placement.local_len()
    }
}

/// Reads one rank's recording: its tensors in the module's order.
///
/// # Errors
/// When the file cannot be read or is not a recording, naming it.
pub fn read_step(
    folder: &Path,
    step: u64,
    kind: TensorKind,
    rank: usize,
) -> Result<Vec<RecordedTensor>, RecordingError> {
    let path = recording_path(folder, step, kind, rank);
    let bytes = std::fs::read(&path).map_err(|source| RecordingError::File {
        path: path.clone(),
        source,
    })?;
    let format = |reason: String| RecordingError::Format {
        path: path.clone(),
        reason,
    };
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| format(e.to_string()))?;
    let entries = header
        .metadata()
        .as_ref()
        .and_then(|metadata| metadata.get(METADATA_KEY))
        .ok_or_else(|| format(format!("it has no metadata {METADATA_KEY}")))?;
    let entries: Vec<Entry> = serde_json::from_str(entries).map_err(|e| format(e.to_string()))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| format(e.to_string()))?;
    let keys = keys(entries.iter().map(|entry| entry.name.as_str()));
    let read = |(key, Entry { name, placement }): (String, Entry)| {
        let view = file.tensor(&key).map_err(|e| format(e.to_string()))?;
        if view.dtype() != Dtype::F64 || view.shape() != placement.local_shape() {
            return Err(format(format!(
                "{name} has the shape {:?} in {:?}, expected {:?} in F64",
                view.shape(),
                view.dtype(),
                placement.local_shape()
            )));
        }
        let values = view
            .data()
            .chunks_exact(8)
            .map(|bytes| f64::from_le_bytes(bytes.try_into().expect("chunks of eight")))
            .collect();
        Ok(RecordedTensor {
            name,
            placement,
            values,
        })
    };
    keys.into_iter().zip(entries).map(read).collect()
}

/// Removes one rank's recording.
///
/// # Errors
/// When the file cannot be removed, naming it.
pub fn remove_step(folder: &Path, step: u64, kind: TensorKind, rank: usize) -> Result<(), RecordingError> {
    let path = recording_path(folder, step, kind, rank);
    std::fs::remove_file(&path).map_err(|source| RecordingError::File { path, source })
}

fn recording_path(folder: &Path, step: u64, kind: TensorKind, rank: usize) -> PathBuf {
    folder.join(format!("step-{step}-{kind}s-rank-{rank}.safetensors"))
}

#[cfg(test)]
mod tests {
    use burn::nn::LinearConfig;
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn what_is_recorded_is_read_back_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let context = ParallelContext::single(7);
        let layer = LinearConfig::new(3, 5).init(&Device::flex());
        context.scope("fc").declare_rest_replicated(&layer).unwrap();
        let recorder = Recorder::new(folder.path(), 2);
        recorder.parameters(0, &layer, &context).unwrap();

        let tensors = read_step(folder.path(), 0, TensorKind::Parameter, 2).unwrap();
        assert_eq!(tensors[0].name, "fc.weight");
        assert_eq!(tensors[0].placement.logical_len(), 15);
        assert_eq!(tensors[0].values, read_host(layer.weight.val()));

        remove_step(folder.path(), 0, TensorKind::Parameter, 2).unwrap();
        let error = read_step(folder.path(), 0, TensorKind::Parameter, 2).unwrap_err();
        assert!(error.to_string().contains("step-0-parameters-rank-2"), "{error}");
    }

    #[test]
    fn another_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = recording_path(folder.path(), 3, TensorKind::Gradient, 0);
        std::fs::write(path, b"no safetensors here").unwrap();
        let error = read_step(folder.path(), 3, TensorKind::Gradient, 0).unwrap_err();
        assert!(error.to_string().contains("is not a recording"), "{error}");
    }
}
