//! Sharded optimizer, gradients and parameters against whole ones, on the same ranks: every loss, norm and parameter
//! has the same bits, with one micro-batch. With several, sharded gradients are summed over the ranks first. Buckets of
//! sharded parameters are others, and squares are summed shard by shard: so the norm may have other last bits, and
//! nothing is clipped.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use burn_megatron::data_parallel::ShardingStrategy;
use burn_megatron::launch::World;
use burn_megatron::parameters::list_parameters;
use burn_megatron::training::TrainingConfig;
use libtest_mimic::Trial;

use super::comparison::{DP2, DP4, Layout, connect, layout};
use super::problem;
use super::problem::Update;
use super::wrapper::nets::named;
use tests::harness::{Case, Job};

const LAYOUTS: [Layout; 4] = [
    DP2,
    DP4,
    layout("tp2spdp2", 2, true, 2),
    layout("pp2dp2", 1, false, 2).stages(2, 1),
];
const STEPS: u64 = 4;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for layout in LAYOUTS {
        for dtype in ["f32", "f64"] {
            let case = layout.describe(Case::new("parity", "sharded"), dtype);
            let name = format!("shards_have_the_bits_of_the_whole_{}_{dtype}", layout.name);
            trials.push(Job::new(case, layout.world_size()).succeeds(name));
        }
    }
    trials
}

/// What a training gave.
pub(super) struct Trail {
    losses: Vec<f64>,
    norms: Vec<f64>,
    parameters: BTreeMap<String, Vec<f64>>,
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let in_stages = connect(case, world)?.grid().pipeline_parallel_size() > 1;
    let shardings = if in_stages {
        &ShardingStrategy::ALL[1..2]
    } else {
        &ShardingStrategy::ALL[1..3]
    };
    let both_ways = |&sharding: &ShardingStrategy| [Update::overlapping(sharding), Update::in_turn(sharding)];
    let trained = |update, clip| {
        train(
            case,
            world,
            problem::Variant {
                update,
                clip,
                ..problem::Variant::USUAL
            },
        )
    };

    let whole = trained(Update::WHOLE, true)?;
    for update in shardings.iter().flat_map(both_ways) {
        whole
            .compare(&trained(update, true)?, 0.0)
            .with_context(|| format!("{update:?}"))?;
    }
    if !in_stages {
        let whole = trained(Update::WHOLE, false)?;
        for update in both_ways(&ShardingStrategy::OptimGradsParams) {
            whole
                .compare(&trained(update, false)?, 1e-14)
                .with_context(|| format!("{update:?}"))?;
        }
    }
    Ok(())
}

/// Trains for some steps, of one micro-batch where there are no stages.
fn train(case: &Case, world: &World, variant: problem::Variant) -> anyhow::Result<Trail> {
    train_offloaded(case, world, variant, &problem::Offloads::default())
}

/// The same with the optimizer's state, the parameters or activations elsewhere.
pub(super) fn train_offloaded(
    case: &Case,
    world: &World,
    variant: problem::Variant,
    offloads: &problem::Offloads,
) -> anyhow::Result<Trail> {
    let context = connect(case, world)?;
    let (data, data_size) = (context.coordinates().data, context.grid().data_parallel_size());
    let micro_batch_size = match context.grid().pipeline_parallel_size() {
        1 => 8 / data_size,
        _ => 2,
    };
    let config = TrainingConfig {
        micro_batch_size,
        ..problem::training(variant, STEPS)
    };
    let stages = problem::Stages::one_chunk();
    let mut trainer = problem::trainer_offloaded(variant, &config, &stages, &context, offloads)?;
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        let micro_batches = problem::micro_batches_of(micro_batch_size as u64, step, data, data_size);
        let result = trainer.step(&micro_batches)?;
        let norm = result.grad_norm;
        ensure!(norm > 1.0, "gradients of norm {norm} would not be clipped");
        losses.push(result.loss);
        norms.push(norm);
    }
    let count = list_parameters(trainer.model()).len();
    ensure!(count > 10, "{count} parameters");
    let parameters = named(trainer.model(), None).values.into_iter().collect();
    Ok(Trail {
        losses,
        norms,
        parameters,
    })
}

impl Trail {
    /// Checks that another training gave the same bits; that of the norms may differ by `tolerance` of them.
    pub(super) fn compare(&self, other: &Self, tolerance: f64) -> anyhow::Result<()> {
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let losses = [self, other].map(|trail| bits(&trail.losses));
        ensure!(
            losses[0] == losses[1],
            "losses {:?}, not {:?}",
            other.losses,
            self.losses
        );
        for (norm, other) in self.norms.iter().zip(&other.norms) {
            ensure!((other / norm - 1.0).abs() <= tolerance, "a norm of {other}, not {norm}");
        }
        for (name, values) in &self.parameters {
            ensure!(
                bits(values) == bits(&other.parameters[name]),
                "parameter {name} has other bits"
            );
        }
        Ok(())
    }
}
