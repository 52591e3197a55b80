//! [`OneRank`]: what one rank computes in each step, against which every layout is compared.
//!
//! A job of one rank trains each variant once, and writes it to a file that the ranks of all layouts read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use burn_megatron::context::ParallelContext;
use burn_megatron::data_parallel::GradientCounts;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorView};
use tempfile::TempDir;
use tests::references::References;

use super::layouts::{parameters, unpad};
use super::problem;
use tests::harness::{Case, Job};

/// The settings of a case that decide what one rank computes.
const SETTINGS: [&str; 7] = ["dtype", "tied", "clip", "dropout", "n_layers", "steps", "optimizer"];

/// What a file of one rank's run holds.
pub struct OneRank {
    arrays: Metadata,
    /// Those of all arrays, one after the other.
    bytes: Vec<u8>,
}

/// The scalars of a step.
pub struct Step {
    pub loss: f64,
    pub grad_norm: f64,
    pub gradient_counts: GradientCounts,
}

/// The folders of the variants' files, each made when the first layout asks for it.
#[derive(Clone, Default)]
pub struct Files(Arc<References<String, TempDir>>);

impl Files {
    /// Returns the file of a case's variant.
    pub fn file_of(&self, case: &Case) -> anyhow::Result<PathBuf> {
        let mut one = Case::new("parity", "one_rank")
            .with("tensor", 1)
            .with("sequence", false)
            .with("pipeline", 1);
        for key in SETTINGS {
            one = one.with(key, case.setting::<String>(key)?);
        }
        let folder = self.0.of(format!("{one:?}"), || make(one)).context("one rank")?;
        Ok(file_in(&folder))
    }
}

fn file_in(folder: &TempDir) -> PathBuf {
    folder.path().join("one_rank.safetensors")
}

fn make(one: Case) -> anyhow::Result<TempDir> {
    let folder = TempDir::new()?;
    Job::new(one.with("one_rank", file_in(&folder).display()), 1).output()?;
    Ok(folder)
}

/// Trains the one-rank model of a case, and writes its file.
pub fn run(case: &Case) -> anyhow::Result<()> {
    let steps: u64 = case.setting("steps")?;
    let variant = problem::Variant {
        tied: case.setting("tied")?,
        clip: case.setting("clip")?,
        dropout: case.setting("dropout")?,
        n_layers: case.setting("n_layers")?,
        optimizer: case.setting("optimizer")?,
        ..problem::Variant::USUAL
    };
    let context = ParallelContext::single(problem::SEED);
    let mut trainer = problem::trainer(variant, steps, &problem::Stages::one_chunk(), &context)?;
    let mut arrays: Vec<(String, Vec<f64>)> = Vec::new();
    let add_parameters = |arrays: &mut Vec<(String, Vec<f64>)>, step, model: &_| -> anyhow::Result<()> {
        for (name, (placement, values)) in parameters(model, &context)? {
            arrays.push((parameter_of(step, &name), unpad(&values, &placement)));
        }
        Ok(())
    };
    add_parameters(&mut arrays, 0, trainer.model())?;
    for step in 0..steps {
        let mut counts = GradientCounts {
            zeros: 0,
            non_finite: 0,
        };
        let outcome = trainer.step_inspected(&problem::micro_batches(step, 0, 1), |gradients| {
            for entry in gradients.entries() {
                let values = unpad(&gradients.values(entry), &entry.placement);
                counts.zeros += values.iter().filter(|&&value| value == 0.0).count() as u64;
                counts.non_finite += values.iter().filter(|value| !value.is_finite()).count() as u64;
                arrays.push((gradient_of(step, &entry.name), values));
            }
        })?;
        ensure!(
            outcome.gradient_counts == Some(counts),
            "{counts:?} of one rank's gradient, which counts {:?}",
            outcome.gradient_counts
        );
        let scalars = [
            outcome.loss,
            outcome.grad_norm,
            counts.zeros as f64,
            counts.non_finite as f64,
        ];
        arrays.push((format!("{step}/scalars"), scalars.to_vec()));
        add_parameters(&mut arrays, step + 1, trainer.model())?;
    }
    let loss = trainer.evaluate(problem::micro_batches(steps, 0, 1))?;
    arrays.push(("validation".to_owned(), vec![loss]));

    let bytes: Vec<(String, Vec<u8>)> = arrays
        .into_iter()
        .map(|(name, values)| (name, values.into_iter().flat_map(f64::to_le_bytes).collect()))
        .collect();
    let views = bytes
        .iter()
        .map(|(name, bytes)| Ok((name, TensorView::new(Dtype::F64, vec![bytes.len() / 8], bytes)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let path: PathBuf = case.setting("one_rank")?;
    Ok(safetensors::serialize_to_file(views, None, &path)?)
}

impl OneRank {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let mut bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let (header, arrays) = SafeTensors::read_metadata(&bytes)?;
        // Its length comes first.
        bytes.drain(..size_of::<u64>() + header);
        Ok(Self { arrays, bytes })
    }

    /// Returns the scalars of a step, from 0.
    pub fn step(&self, step: u64) -> anyhow::Result<Step> {
        let values = self.array(&format!("{step}/scalars"))?;
        let [loss, grad_norm, zeros, non_finite] = values[..] else {
            anyhow::bail!("{} scalars of step {step}", values.len());
        };
        Ok(Step {
            loss,
            grad_norm,
            gradient_counts: GradientCounts {
                zeros: zeros as u64,
                non_finite: non_finite as u64,
            },
        })
    }

    /// Returns a parameter's elements in logical order, without padding, after `step` steps.
    pub fn parameter(&self, step: u64, name: &str) -> anyhow::Result<Vec<f64>> {
        self.array(&parameter_of(step, name))
    }

    /// Returns a gradient's elements in logical order, without padding, in a step, from 0.
    pub fn gradient(&self, step: u64, name: &str) -> anyhow::Result<Vec<f64>> {
        self.array(&gradient_of(step, name))
    }

    /// Returns the loss of the validation after the last step.
    pub fn validation(&self) -> anyhow::Result<f64> {
        let loss = self.array("validation")?;
        loss.first().copied().context("a loss")
    }

    fn array(&self, name: &str) -> anyhow::Result<Vec<f64>> {
        let array = self
            .arrays
            .info(name)
            .with_context(|| format!("one rank has no {name}"))?;
        let (values, rest) = self.bytes[array.data_offsets.0..array.data_offsets.1].as_chunks();
        ensure!(rest.is_empty(), "{name} ends within a number");
        Ok(values.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
    }
}

fn parameter_of(step: u64, name: &str) -> String {
    format!("{step}/parameter/{name}")
}

fn gradient_of(step: u64, name: &str) -> String {
    format!("{step}/gradient/{name}")
}
