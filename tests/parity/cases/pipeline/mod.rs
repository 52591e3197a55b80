//! Pipelines around models that know nothing of burn-megatron, and what pipelines promise of bits, memory and ends.

pub mod faults;
mod memory;
mod nets;
mod recomputation;
mod training;

use burn_megatron::launch::World;
use libtest_mimic::Trial;

use super::checks;
use super::comparison::{Layout, PP2, Scene, layout};
use tests::harness::Case;

type Check = checks::Check<Run>;

/// What a check gets.
struct Run {
    scene: Scene,
    case: Case,
    world: World,
    num_chunks: usize,
}

const PP1: Layout = layout("pp1", 1, false, 1);
const PP4: Layout = layout("pp4", 1, false, 1).stages(4, 1);
const PP2DP2: Layout = layout("pp2dp2", 1, false, 2).stages(2, 1);
const PP2V2: Layout = layout("pp2v2", 1, false, 1).stages(2, 2);

fn checks() -> impl Iterator<Item = &'static Check> {
    [training::CHECKS, recomputation::CHECKS, memory::CHECKS]
        .into_iter()
        .flatten()
}

pub fn trials() -> Vec<Trial> {
    checks::trials("pipeline", checks())
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let run = Run {
        scene: Scene::new(case, world)?,
        case: case.clone(),
        world: world.clone(),
        num_chunks: case.setting("chunks")?,
    };
    if case.setting::<String>("check")? == faults::NAME {
        return faults::run(&run);
    }
    checks::run(case, checks(), &run)?;
    println!("worst difference: {:.1e}", run.scene.worst());
    Ok(())
}
