//! What is recomputed changes no bit: not of a loss, not of a gradient, not of a parameter.

use std::collections::BTreeMap;

use anyhow::ensure;

use super::{Check, PP1, PP2, PP2V2, Run};
use crate::parity::cases::checks::{BOTH_TYPES, checks};
use crate::parity::cases::comparison::connect;
use crate::parity::cases::problem::{self, Recompute, Stages, Variant};
use crate::parity::cases::wrapper::nets::named;

pub const CHECKS: &[Check] = checks! {
    recomputation_changes_no_bit: &[PP1, PP2, PP2V2], BOTH_TYPES;
};

const STEPS: u64 = 3;

/// All numbers of a run, by name.
type Trace = BTreeMap<String, Vec<u64>>;

fn recomputation_changes_no_bit(run: &Run) -> anyhow::Result<()> {
    let stages = Stages {
        num_chunks: run.num_chunks,
        ..Stages::default()
    };
    let expected = trace(run, &stages, Recompute::Nothing)?;
    for text in ["uniform1", "uniform2", "block1"] {
        let found = trace(run, &stages, text.parse()?)?;
        ensure!(found.keys().eq(expected.keys()), "{text}: other names");
        for (name, expected) in &expected {
            ensure!(found[name] == *expected, "{text}: {name} has other bits");
        }
    }
    Ok(())
}

fn trace(run: &Run, stages: &Stages, recompute: Recompute) -> anyhow::Result<Trace> {
    let variant = Variant {
        recompute,
        ..Variant::USUAL
    };
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let mut trainer = problem::trainer(variant, STEPS, stages, &connect(&run.case, &run.world)?)?;
    let mut trace = Trace::new();
    for step in 0..STEPS {
        let result = trainer.step_inspected(&problem::micro_batches(step, 0, 1), |gradients| {
            for entry in gradients.entries() {
                let name = format!("gradient of {} in step {step}", entry.name);
                trace.insert(name, bits(&gradients.values(entry)));
            }
        })?;
        trace.insert(format!("loss of step {step}"), bits(&[result.loss, result.grad_norm]));
        for (name, values) in named(trainer.model(), None).values {
            trace.insert(format!("{name} after step {step}"), bits(&values));
        }
    }
    Ok(trace)
}
