//! Pipelines around models that know nothing of burn-megatron, and what pipelines promise of bits, memory and ends.

mod faults;
mod memory;
mod nets;
mod recomputation;
mod training;

use anyhow::Context as _;
use burn_megatron::launch::World;
use libtest_mimic::Trial;

use super::comparison::{Layout, PP2, Scene, layout};
use crate::harness::{Case, Job};

/// A claim, the function that checks it on a rank, and the layouts it is checked in.
struct Check {
    name: &'static str,
    run: fn(&Run) -> anyhow::Result<()>,
    layouts: &'static [Layout],
    dtypes: &'static [&'static str],
}

/// What a check gets.
struct Run<'a> {
    scene: Scene,
    case: &'a Case,
    world: &'a World,
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
    let mut trials = Vec::new();
    for check in checks() {
        for layout in check.layouts {
            for dtype in check.dtypes {
                let case = layout
                    .describe(Case::new("pipeline").with("check", check.name), dtype)
                    .with("chunks", layout.chunks);
                let name = format!("{}_{}_{dtype}", check.name, layout.name);
                trials.push(Job::new(case, layout.world_size()).succeeds(name));
            }
        }
    }
    trials.extend(faults::trials());
    trials
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let run = Run {
        scene: Scene::new(case, world)?,
        case,
        world,
        num_chunks: case.setting("chunks")?,
    };
    let name: String = case.setting("check")?;
    if name == faults::NAME {
        return faults::run(&run);
    }
    let check = checks().find(|check| check.name == name);
    (check.with_context(|| format!("there is no check {name}"))?.run)(&run)?;
    println!("worst difference: {:.1e}", run.scene.worst());
    Ok(())
}
