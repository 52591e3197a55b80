//! `DistributedDataParallel` around burn models that know nothing of burn-megatron, against plain burn in one process.

mod agreement;
mod buffers;
mod failures;
mod gradients;
mod inputs;
mod memory;
pub mod nets;
mod resuming;
mod trainer;
mod training;
mod weights;

use burn_megatron::launch::World;
use libtest_mimic::Trial;

use super::checks::{self, BOTH_TYPES, F64, checks, expect_refused};
use super::comparison::{DP2, DP4, Layout, ONE, Scene, TP2, TP2SP, TP4};
use tests::harness::{Case, Job};

type Check = checks::Check<Scene>;

/// A job that must fail, and what must be said.
struct Failure {
    name: &'static str,
    run: fn(&Scene) -> anyhow::Result<()>,
    layout: Layout,
    messages: &'static [&'static str],
}

const ALL: &[Layout] = &[ONE, DP2, DP4];
const SEVERAL: &[Layout] = &[DP2, DP4];

fn checks() -> impl Iterator<Item = &'static Check> {
    [
        gradients::CHECKS,
        training::CHECKS,
        resuming::CHECKS,
        trainer::CHECKS,
        weights::CHECKS,
        buffers::CHECKS,
        memory::CHECKS,
        failures::CHECKS,
        agreement::CHECKS,
        inputs::CHECKS,
    ]
    .into_iter()
    .flatten()
}

fn failures() -> impl Iterator<Item = &'static Failure> {
    [weights::FAILURES, failures::FAILURES, agreement::FAILURES]
        .into_iter()
        .flatten()
}

pub fn trials() -> Vec<Trial> {
    let mut trials = checks::trials("wrapper", checks());
    for Failure {
        name, layout, messages, ..
    } in failures()
    {
        let case = layout.describe(Case::new("parity", "wrapper").with("check", name), "f64");
        trials.push(Job::new(case, layout.world_size()).fails_with(format!("{name}_{}", layout.name), messages));
    }
    trials
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let scene = Scene::new(case, world)?;
    let name: String = case.setting("check")?;
    match failures().find(|failure| failure.name == name) {
        Some(failure) => (failure.run)(&scene)?,
        None => checks::run(case, checks(), &scene)?,
    }
    println!("worst difference: {:.1e}", scene.worst());
    Ok(())
}
