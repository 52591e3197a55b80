//! [`Record`]: what is kept of a run, short enough for a file in the repository.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Values of each tensor that are kept.
const VALUES: usize = 16;

/// A run, as it is kept.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the run.
    pub run: String,
    /// Loss of each step.
    pub losses: Vec<f64>,
    /// Norm of all gradients in each step.
    pub gradient_norms: Vec<f64>,
    /// Tensors, by rank, step, kind and name.
    pub tensors: BTreeMap<String, Summary>,
}

/// A tensor, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Hash of its bytes in f64, in hexadecimal digits.
    pub hash: String,
    /// Euclidean norm.
    pub norm: f64,
    /// Number of elements.
    pub length: usize,
    /// Elements at equal distances, the first among them.
    pub values: Vec<f64>,
}

/// A line of a rank's metrics.
#[derive(Deserialize)]
struct Metrics {
    loss: f64,
    grad_norm: f64,
}

/// Whole tensors of a run, by the names of [`Record::tensors`].
pub type Tensors = BTreeMap<String, Vec<f64>>;

impl Record {
    /// Reads what the ranks of a run have left in a folder.
    ///
    /// # Errors
    /// When a file is missing or not a recording.
    pub fn read(run: &str, folder: &Path) -> Result<Self> {
        let metrics = folder.join("metrics-rank-0.jsonl");
        let text = std::fs::read_to_string(&metrics).with_context(|| metrics.display().to_string())?;
        let metrics: Vec<Metrics> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let tensors = tensors(folder)?;
        Ok(Self {
            run: run.to_owned(),
            losses: metrics.iter().map(|step| step.loss).collect(),
            gradient_norms: metrics.iter().map(|step| step.grad_norm).collect(),
            tensors: tensors
                .iter()
                .map(|(name, values)| (name.clone(), Summary::of(values)))
                .collect(),
        })
    }
}

impl Record {
    /// Returns whether all its numbers are finite: JSON has no others.
    pub fn is_finite(&self) -> bool {
        let figures = self.losses.iter().chain(&self.gradient_norms);
        let tensors = self
            .tensors
            .values()
            .flat_map(|summary| summary.values.iter().chain([&summary.norm]));
        figures.chain(tensors).all(|value| value.is_finite())
    }
}

impl Summary {
    fn of(values: &[f64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let kept = VALUES.min(values.len());
        Self {
            hash: format!("{:016x}", xxh3_64(&bytes)),
            norm: norm(values.iter().copied()),
            length: values.len(),
            values: (0..kept).map(|number| values[number * values.len() / kept]).collect(),
        }
    }
}

/// Returns the Euclidean norm.
pub fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// Reads the tensors of all ranks: the first step's gradients, and the last step's parameters.
///
/// # Errors
/// When a file cannot be read, or there is none.
pub fn tensors(folder: &Path) -> Result<Tensors> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(rest) = name
            .strip_prefix("step-")
            .and_then(|rest| rest.strip_suffix(".safetensors"))
        else {
            continue;
        };
        let (step, kind) = rest.split_once('-').with_context(|| name.clone())?;
        files.insert((step.parse::<u64>()?, kind.to_owned()), folder.join(&name));
    }
    let last = files
        .keys()
        .map(|(step, _)| *step)
        .max()
        .context("no step was recorded")?;
    files.retain(|(step, kind), _| *step == if kind.starts_with("gradients") { 1 } else { last });
    let mut tensors = Tensors::new();
    for ((step, kind), path) in files {
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let file = SafeTensors::deserialize(&bytes).with_context(|| path.display().to_string())?;
        for (name, view) in file.tensors() {
            ensure!(view.dtype() == safetensors::Dtype::F64, "{name} is not of f64");
            let values = view.data().chunks_exact(8);
            let values = values.map(|bytes| f64::from_le_bytes(bytes.try_into().expect("chunks of eight")));
            tensors.insert(format!("{kind} step {step} {name}"), values.collect());
        }
    }
    Ok(tensors)
}
