//! Every layout against the one-rank run: loss, every gradient, parameters after every step, validation loss.

use std::collections::HashMap;

use anyhow::{Context as _, ensure};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor, backend::Backend};
use burn_megatron::collectives::GroupOptions;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::World;
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::parity::{Judge, Tolerance, compare_shard};
use burn_megatron::topology::ParallelConfig;
use libtest_mimic::Trial;

use super::comparison::{DP2, DP4, Layout, TP2, TP2SP, TP4, TP4SP, layout, padding_is_zero};
use super::{B, problem};
use crate::harness::{Case, Job};

const STEPS: u64 = 20;
/// Said by a rank whose run is not the one-rank run.
const PARITY_BROKEN: &str = "parity is broken";

const TP2DP2: Layout = layout("tp2dp2", 2, false, 2);
const TP2SPDP2: Layout = layout("tp2spdp2", 2, true, 2);

const LAYOUTS: [Layout; 8] = [TP2, TP2SP, TP4, TP4SP, DP2, DP4, TP2DP2, TP2SPDP2];

/// Each fault, and a layout in which it must show.
const MUTANTS: [(&str, Layout); 7] = [
    ("BiasAddedPerRank", TP2),
    ("DataParallelSumForMean", DP2),
    ("NoTiedSum", TP2),
    ("SequenceParallelSumMissing", TP2SP),
    ("ReplicaCountedTwice", TP2),
    ("KeyAndValueSwapped", TP2),
    ("SharedDropoutMask", DP2),
];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for layout in LAYOUTS {
        // Both types in every layout; tied or not, clipped or not, with and without dropout in turn.
        for (dtype, tied, clip, dropout) in [
            ("f64", true, true, 0.1),
            ("f64", false, false, 0.0),
            ("f32", true, false, 0.1),
        ] {
            let name = format!(
                "{}_matches_one_rank_{dtype}_{}_{}_dropout_{dropout}",
                layout.name,
                if tied { "tied" } else { "untied" },
                if clip { "clipped" } else { "unclipped" },
            );
            trials.push(job(layout, dtype, tied, clip, dropout, STEPS).succeeds(name));
        }
    }
    for (mutant, layout) in MUTANTS {
        let name = format!("mutant_{mutant}_is_caught_in_{}", layout.name);
        let job = job(layout, "f64", true, true, 0.1, 3).with_mutant(mutant);
        // A release build has no faults planted.
        let is_absent = !cfg!(debug_assertions);
        trials.push(job.fails_with(name, &[PARITY_BROKEN]).with_ignored_flag(is_absent));
    }
    trials
}

fn job(layout: Layout, dtype: &str, tied: bool, clip: bool, dropout: f64, steps: u64) -> Job {
    let case = layout
        .describe(Case::new("layout"), dtype)
        .with("tied", tied)
        .with("clip", clip)
        .with("dropout", dropout)
        .with("steps", steps);
    Job::new(case, layout.world_size())
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let config = ParallelConfig {
        tensor_parallel_size: case.setting("tensor")?,
        pipeline_parallel_size: 1,
        sequence_parallel: case.setting("sequence")?,
    };
    let variant = problem::Variant {
        tied: case.setting("tied")?,
        clip: case.setting("clip")?,
        dropout: case.setting("dropout")?,
    };
    let steps: u64 = case.setting("steps")?;
    let dtype = match case.setting::<String>("dtype")?.as_str() {
        "f64" => DType::F64,
        _ => DType::F32,
    };
    let single = ParallelContext::single(problem::SEED);
    let context = ParallelContext::connect(world, &config, &GroupOptions::default(), problem::SEED)?;
    let mut reference = problem::trainer(variant, steps, &single)?;
    let mut sharded = problem::trainer(variant, steps, &context)?;

    let differences = parameter_differences(sharded.model(), &context, reference.model(), &single)?;
    for part in &differences {
        ensure!(
            part.difference == 0.0,
            "{PARITY_BROKEN}: {} starts with other bits",
            part.name
        );
    }

    let num_parameters = problem::model(variant).num_parameters();
    let mut judge = Judge::new(Tolerance::of(dtype), num_parameters, dtype == DType::F64);
    let (data, data_size) = (context.coordinates().data, context.grid().data_parallel_size());
    for step in 0..steps {
        let mut expected = HashMap::new();
        let whole = reference.step_inspected(&problem::micro_batches(step, 0, 1), |gradients| {
            for entry in gradients.entries() {
                let values = unpad(&gradients.values(entry), &entry.placement);
                expected.insert(entry.name.clone(), values);
            }
        })?;
        let mut parts = Vec::new();
        let micro_batches = problem::micro_batches(step, data, data_size);
        let part = sharded.step_inspected(&micro_batches, |gradients| {
            for entry in gradients.entries() {
                let values = gradients.values(entry);
                let reference = &expected[&entry.name];
                parts.extend(compare_shard(&entry.name, reference, &values, &entry.placement));
            }
        })?;
        judge.scalars(step + 1, [part.loss, whole.loss], [part.grad_norm, whole.grad_norm]);
        for part in &parts {
            judge.gradient(step + 1, part, whole.grad_norm);
        }
        let parameters = parameter_differences(sharded.model(), &context, reference.model(), &single)?;
        for part in &parameters {
            judge.parameter(step + 1, part);
        }
        if let Some(first) = judge.failures().first() {
            anyhow::bail!("{PARITY_BROKEN} on rank {}: {first}", world.rank());
        }
    }
    let validation = [
        sharded.evaluate(problem::micro_batches(steps, data, data_size))?,
        reference.evaluate(problem::micro_batches(steps, 0, 1))?,
    ];
    judge.scalars(steps, validation, [1.0, 1.0]);
    ensure!(
        judge.failures().is_empty(),
        "{PARITY_BROKEN} in validation: {}",
        judge.failures()[0]
    );
    println!(
        "worst differences: loss {:.1e}, gradient {:.1e}, parameter {:.1e}",
        judge.worst_loss(),
        judge.worst_gradient(),
        judge.worst_parameter()
    );
    Ok(())
}

/// Compares this rank's parameters with the one-rank model's.
fn parameter_differences<M: Module<B>>(
    sharded: &M,
    context: &ParallelContext,
    reference: &M,
    single: &ParallelContext,
) -> anyhow::Result<Vec<burn_megatron::parity::PartDifference>> {
    let expected = parameters(reference, single)?;
    let mut differences = Vec::new();
    for (name, (placement, values)) in parameters(sharded, context)? {
        let (whole, reference) = &expected[&name];
        let reference = unpad(reference, whole);
        differences.extend(compare_shard(&name, &reference, &values, &placement));
        ensure!(
            padding_is_zero(&values, &placement),
            "{PARITY_BROKEN}: the padding of {name} is not zero"
        );
    }
    Ok(differences)
}

/// A module's parameters by global name.
fn parameters<M: Module<B>>(
    module: &M,
    context: &ParallelContext,
) -> anyhow::Result<HashMap<String, (Placement, Vec<f64>)>> {
    struct Reader<'a> {
        context: &'a ParallelContext,
        found: HashMap<String, (Placement, Vec<f64>)>,
        undeclared: usize,
    }
    impl<T: Backend> ModuleVisitor<T> for Reader<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<T, D>>) {
            match self.context.registry().declaration(param.id) {
                Some(declaration) => {
                    let values = read_host(param.val());
                    self.found.insert(declaration.name, (declaration.placement, values));
                }
                None => self.undeclared += 1,
            }
        }
    }
    let mut reader = Reader {
        context,
        found: HashMap::new(),
        undeclared: 0,
    };
    module.visit(&mut reader);
    ensure!(
        reader.undeclared == 0,
        "{} parameters are undeclared",
        reader.undeclared
    );
    Some(reader.found).context("parameters")
}

/// The elements of a one-rank array in logical order, without padding.
fn unpad(values: &[f64], placement: &Placement) -> Vec<f64> {
    let mut logical = vec![0.0; placement.logical_len()];
    for run in placement.runs() {
        logical[run.logical..run.logical + run.length].copy_from_slice(&values[run.local..run.local + run.length]);
    }
    logical
}
