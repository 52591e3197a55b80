//! Every parallel layer against burn's own layer with the same weights: values and every gradient, in every layout.

mod attention;
mod chunked;
mod cross_entropy;
mod dropout;
mod embedding;
mod init;
mod linear;
mod norm;
mod records;
mod regions;
mod shared_columns;
mod transformer;

use burn_megatron::launch::World;
use libtest_mimic::Trial;

use super::checks::{self, BOTH_TYPES, F32, checks, expect_refused};
use super::comparison::{Layout, ONE, Scene, TP2, TP2SP, TP4, TP4SP};
use tests::harness::{Case, Job};

type Check = checks::Check<Scene>;

const ALL: &[Layout] = &[ONE, TP2, TP4, TP2SP, TP4SP];
const TENSOR: &[Layout] = &[ONE, TP2, TP4];
const SEQUENCE: &[Layout] = &[TP2SP, TP4SP];
/// Where several ranks share each layer.
const SHARED: &[Layout] = &[TP2, TP4, TP2SP, TP4SP];

fn checks() -> impl Iterator<Item = &'static Check> {
    [
        linear::CHECKS,
        shared_columns::CHECKS,
        chunked::CHECKS,
        embedding::CHECKS,
        norm::CHECKS,
        cross_entropy::CHECKS,
        regions::CHECKS,
        dropout::CHECKS,
        attention::CHECKS,
        transformer::CHECKS,
        init::CHECKS,
        records::CHECKS,
    ]
    .into_iter()
    .flatten()
}

pub fn trials() -> Vec<Trial> {
    let mut trials = checks::trials("layer", checks());
    let case = TP2.describe(Case::new("parity", "layer").with("check", regions::INDIVISIBLE), "f32");
    trials.push(Job::new(case, 2).fails_with(
        "a_dimension_that_does_not_split_ends_the_job_with_its_sizes",
        &["dimension 0 of length 5 does not split over the 2 ranks of group tensor"],
    ));
    trials
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let scene = Scene::new(case, world)?;
    if case.setting::<String>("check")? == regions::INDIVISIBLE {
        regions::split_an_odd_dimension(&scene);
        return Ok(());
    }
    checks::run(case, checks(), &scene)?;
    println!("worst difference: {:.1e}", scene.worst());
    Ok(())
}
