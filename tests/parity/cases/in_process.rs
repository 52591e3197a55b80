//! A layout's training against that of one rank, which every rank of the layout trains in the same process.

use anyhow::{Context as _, ensure};
use burn::tensor::DType;
use burn_megatron::context::ParallelContext;
use burn_megatron::parity::{Judge, Tolerance, compare_shard};
use burn_megatron::training::Trainer;
use models::decoder::Decoder;
use std::collections::HashMap;

use super::layouts::{PARITY_BROKEN, parameter_differences, unpad};
use super::{B, problem};

/// A trainer and the ranks that it trains on.
pub struct Trained {
    pub trainer: Trainer<B, Decoder<B>>,
    pub context: ParallelContext,
}

/// Trains both, and fails unless the layout starts with the bits of one rank and has its losses, gradients and
/// parameters up to rounding.
pub fn compare_training(layout: &mut Trained, one: &mut Trained, dtype: DType, steps: u64) -> anyhow::Result<()> {
    let differences = |layout: &Trained, one: &Trained| {
        let (model, whole) = (layout.trainer.model(), one.trainer.model());
        parameter_differences(model, &layout.context, whole, &one.context)
    };
    for part in differences(layout, one)? {
        ensure!(
            part.difference == 0.0,
            "{PARITY_BROKEN}: {} starts with other bits",
            part.name
        );
    }
    let coordinates = layout.context.coordinates();
    let data_size = layout.context.grid().data_parallel_size();
    let mut judge: Option<Judge> = None;
    for step in 0..steps {
        let mut wholes: HashMap<String, Vec<f64>> = HashMap::new();
        let whole = one
            .trainer
            .step_inspected(&problem::micro_batches(step, 0, 1), |gradients| {
                for entry in gradients.entries() {
                    wholes.insert(entry.name.clone(), unpad(&gradients.values(entry), &entry.placement));
                }
            })?;
        let num_parameters = wholes.values().map(Vec::len).sum();
        let judge = judge.get_or_insert_with(|| Judge::new(Tolerance::of(dtype), num_parameters, dtype == DType::F64));
        let mut parts = Vec::new();
        let micro_batches = problem::micro_batches(step, coordinates.data, data_size);
        let part = layout.trainer.step_inspected(&micro_batches, |gradients| {
            for entry in gradients.entries() {
                let compared = wholes
                    .get(&entry.name)
                    .with_context(|| format!("one rank has no gradient of {}", entry.name))
                    .map(|whole| compare_shard(&entry.name, whole, &gradients.values(entry), &entry.placement));
                parts.push(compared);
            }
        })?;
        judge.scalars(step + 1, [part.loss, whole.loss], [part.grad_norm, whole.grad_norm]);
        for part in parts.into_iter().collect::<anyhow::Result<Vec<_>>>()?.iter().flatten() {
            judge.gradient(step + 1, part, whole.grad_norm);
        }
        for part in &differences(layout, one)? {
            judge.parameter(step + 1, part);
        }
        if let Some(first) = judge.failures().first() {
            anyhow::bail!("{PARITY_BROKEN} on rank {}: {first}", layout.context.rank());
        }
    }
    let judge = judge.context("at least one step")?;
    println!(
        "worst differences: loss {:.1e}, gradient {:.1e}, parameter {:.1e}",
        judge.worst_loss(),
        judge.worst_gradient(),
        judge.worst_parameter()
    );
    Ok(())
}
