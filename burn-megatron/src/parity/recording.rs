//! Recordings of a run: each rank's gradients and parameters of every step, in files.
//!
//! Written by the ranks of `compare_sharding`, read by the process that judges. One safetensors file per step and
//! rank; placements lie in its metadata, so a file can be judged without the model.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Tensor, backend::Backend};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::context::ParallelContext;
use crate::data_parallel::ReducedGradients;
use crate::parameters::{Placement, read_host};

const METADATA_KEY: &str = "burn-megatron.parity";

/// A recording that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is not a recording.
    #[error("{path} is not a recording of a step: {reason}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// What a recorded tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TensorKind {
    /// A gradient after finalisation and before clipping.
    Gradient,
    /// A parameter after the step.
    Parameter,
}

/// One rank's tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedTensor {
    /// What it is.
    pub kind: TensorKind,
    /// The parameter's global name.
    pub name: String,
    /// Which part of the logical parameter it is.
    pub placement: Placement,
    /// Its elements, row-major, padding included.
    pub values: Vec<f64>,
}

/// One rank's tensors of a step.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct RecordedStep {
    /// Gradients and parameters, in the module's order.
    pub tensors: Vec<RecordedTensor>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    kind: TensorKind,
    name: String,
    placement: Placement,
}

/// Writes one rank's recording.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    rank: usize,
    step: RecordedStep,
}

impl Recorder {
    /// Returns a recorder of this rank that writes to an existing folder.
    pub fn new(folder: impl Into<PathBuf>, rank: usize) -> Self {
        Self {
            folder: folder.into(),
            rank,
            step: RecordedStep::default(),
        }
    }

    /// Takes the gradients of the step at hand.
    pub fn gradients(&mut self, gradients: &ReducedGradients) {
        for entry in gradients.entries() {
            self.step.tensors.push(RecordedTensor {
                kind: TensorKind::Gradient,
                name: entry.name.clone(),
                placement: entry.placement.clone(),
                values: gradients.values(entry),
            });
        }
    }

    /// Takes the declared parameters after the step at hand.
    pub fn parameters<B: Backend, M: Module<B>>(&mut self, module: &M, context: &ParallelContext) {
        let mut values: HashMap<ParamId, Vec<f64>> = HashMap::new();
        let mut order = Vec::new();
        struct Reader<'a>(&'a mut HashMap<ParamId, Vec<f64>>, &'a mut Vec<ParamId>);
        impl<B: Backend> ModuleVisitor<B> for Reader<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
                self.0.insert(param.id, read_host(param.val()));
                self.1.push(param.id);
            }
        }
        module.visit(&mut Reader(&mut values, &mut order));
        for id in order {
            let declared = context.registry().declaration(id);
            if let (Some(declaration), Some(values)) = (declared, values.remove(&id)) {
                self.step.tensors.push(RecordedTensor {
                    kind: TensorKind::Parameter,
                    name: declaration.name,
                    placement: declaration.placement,
                    values,
                });
            }
        }
    }

    /// Writes the step and begins the next.
    ///
    /// # Errors
    /// When the file cannot be written, naming it.
    pub fn finish_step(&mut self, step: u64) -> Result<(), RecordingError> {
        let recorded = std::mem::take(&mut self.step);
        let path = step_path(&self.folder, step, self.rank);
        let entries: Vec<Entry> = recorded
            .tensors
            .iter()
            .map(|tensor| Entry {
                kind: tensor.kind,
                name: tensor.name.clone(),
                placement: tensor.placement.clone(),
            })
            .collect();
        let format = |reason: String| RecordingError::Format {
            path: path.clone(),
            reason,
        };
        let metadata = serde_json::to_string(&entries).map_err(|e| format(e.to_string()))?;
        let bytes: Vec<Vec<u8>> = recorded
            .tensors
            .iter()
            .map(|tensor| tensor.values.iter().flat_map(|v| v.to_le_bytes()).collect())
            .collect();
        let views = recorded
            .tensors
            .iter()
            .zip(&bytes)
            .enumerate()
            .map(|(index, (tensor, bytes))| {
                let view = TensorView::new(Dtype::F64, vec![tensor.values.len()], bytes);
                view.map(|view| (index.to_string(), view))
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format(e.to_string()))?;
        let metadata = HashMap::from([(METADATA_KEY.to_owned(), metadata)]);
        let serialized = safetensors::serialize(views, Some(metadata)).map_err(|e| format(e.to_string()))?;
        std::fs::write(&path, serialized).map_err(|source| RecordingError::File { path, source })
    }
}

/// Reads one rank's recording of a step.
///
/// # Errors
/// When the file cannot be read or is not a recording, naming it.
pub fn read_step(folder: &Path, step: u64, rank: usize) -> Result<RecordedStep, RecordingError> {
    let path = step_path(folder, step, rank);
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
    let tensors = entries
        .into_iter()
        .enumerate()
        .map(|(index, entry)| {
            let view = file.tensor(&index.to_string()).map_err(|e| format(e.to_string()))?;
            let values: Vec<f64> = view
                .data()
                .chunks_exact(8)
                .map(|b| f64::from_le_bytes(b.try_into().expect("chunks of eight")))
                .collect();
            if view.dtype() != Dtype::F64 || values.len() != entry.placement.local_len() {
                return Err(format(format!(
                    "{} has {} elements of {:?}, expected {} of F64",
                    entry.name,
                    values.len(),
                    view.dtype(),
                    entry.placement.local_len()
                )));
            }
            Ok(RecordedTensor {
                kind: entry.kind,
                name: entry.name,
                placement: entry.placement,
                values,
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(RecordedStep { tensors })
}

fn step_path(folder: &Path, step: u64, rank: usize) -> PathBuf {
    folder.join(format!("step-{step}-rank-{rank}.safetensors"))
}
