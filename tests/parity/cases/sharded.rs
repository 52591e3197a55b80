//! A sharded optimizer against one that is not, on the same ranks: every loss, norm and parameter has the same bits.

use anyhow::ensure;
use burn_megatron::launch::World;
use burn_megatron::parameters::list_parameters;
use libtest_mimic::Trial;

use super::comparison::{DP2, DP4, Layout, connect, layout};
use super::wrapper::nets::named;
use super::{B, problem};
use crate::harness::{Case, Job};

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
            let case = layout.describe(Case::new("sharded"), dtype);
            let name = format!("sharded_optimizer_has_the_bits_of_a_whole_one_{}_{dtype}", layout.name);
            trials.push(Job::new(case, layout.world_size()).succeeds(name));
        }
    }
    trials
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let updates = [
        problem::Update::Whole,
        problem::Update::Sharded,
        problem::Update::ShardedInTurn,
    ];
    let mut trails = Vec::new();
    for update in updates {
        let context = connect(case, world)?;
        let variant = problem::Variant {
            update,
            ..problem::Variant::USUAL
        };
        let mut trainer = problem::trainer(variant, STEPS, &problem::Stages::one_chunk(), &context)?;
        let (data, data_size) = (context.coordinates().data, context.grid().data_parallel_size());
        let mut figures = Vec::new();
        for step in 0..STEPS {
            let result = trainer.step(&problem::micro_batches(step, data, data_size))?;
            ensure!(
                result.grad_norm > 1.0,
                "gradients of norm {} are not clipped",
                result.grad_norm
            );
            figures.push((result.loss.to_bits(), result.grad_norm.to_bits()));
        }
        let count = list_parameters::<B, _>(trainer.model()).len();
        ensure!(count > 10, "{count} parameters");
        trails.push((figures, named(trainer.model(), None).values));
    }
    let (figures, values) = &trails[0];
    for (update, (other_figures, other_values)) in updates.iter().zip(&trails).skip(1) {
        ensure!(
            figures == other_figures,
            "{update:?}: losses and norms {other_figures:x?}, not {figures:x?}"
        );
        for (name, value) in values {
            let same = value
                .iter()
                .zip(&other_values[name])
                .all(|(a, b)| a.to_bits() == b.to_bits());
            ensure!(same, "{update:?}: parameter {name} has other bits");
        }
    }
    Ok(())
}
