//! `Plan::suggest` on models that know nothing of ranks.

use anyhow::ensure;
use burn::tensor::Device;
use burn_megatron::collectives::GroupConfig;
use burn_megatron::initialize;
use burn_megatron::launch::World;
use burn_megatron::sharded::{
    Candidate, Explanation, Mesh, Plan, SuggestConfig, Suggestion, backward, explain, parallelize,
};
use tests::harness::Case;

use super::layouts::{DATA, Layout, TENSOR};
use super::passes::Passes;
use super::subjects::Subject;

/// A machine on which models of this size gain by being cut.
fn machine() -> SuggestConfig {
    SuggestConfig::new()
        .with_operations_per_second(1e9)
        .with_bytes_per_second(1e9)
        .with_latency_secs(1e-6)
}

fn step<M: Subject>(plan: &Plan, mesh: &Mesh, device: &Device) -> anyhow::Result<Explanation> {
    let model = parallelize(initialize(M::make(0.0, device)), plan, mesh)?;
    let (explanation, step) = explain(&model, mesh, || {
        backward(model.loss_of(0..8, &Passes::OnMesh(mesh.clone()), device), &model)
    });
    step?;
    Ok(explanation)
}

fn suggest<M: Subject>(mesh: &Mesh, config: &SuggestConfig, device: &Device) -> anyhow::Result<Suggestion> {
    let model: M = M::make(0.0, device);
    Ok(Plan::suggest(&model, mesh, config, |plan| {
        step::<M>(plan, mesh, device)
    })?)
}

fn whole(suggestion: &Suggestion) -> &Candidate {
    let mut candidates = suggestion.candidates().iter();
    candidates
        .find(|candidate| candidate.plan.to_string().is_empty())
        .expect("it is tried first")
}

/// On tensor-parallel ranks it finds the plan of the tests, or a cheaper one, which nearly halves what a rank computes.
pub fn tensor<M: Subject>(case: &Case, world: &World, device: &Device) -> anyhow::Result<()> {
    let mesh = Layout::of(case)?.mesh(world)?;
    let suggestion = suggest::<M>(&mesh, &machine(), device)?;
    let by_hand = machine().seconds(&step::<M>(&M::tensor_plan(), &mesh, device)?, &mesh);
    let (best, whole) = (&suggestion.candidates()[0], whole(&suggestion));
    if world.rank() == 0 {
        println!("by hand {by_hand:.3e} s\n{suggestion}");
    }
    ensure!(best.seconds <= by_hand, "{by_hand} by hand, against\n{suggestion}");
    // Under sequence parallelism a layer whose weights are whole computes for its rank's tokens alone.
    ensure!(
        10 * best.operations <= 7 * whole.operations && best.parameter_bytes < whole.parameter_bytes,
        "{suggestion}"
    );
    // Where collectives cost more than all the arithmetic nothing is cut.
    let slow = suggest::<M>(&mesh, &machine().with_latency_secs(1.0), device)?;
    ensure!(slow.candidates()[0].collectives == 0, "{slow}");
    Ok(())
}

/// A step that fails on one rank is an error of both at once.
pub fn failing<M: Subject>(world: &World, device: &Device) -> anyhow::Result<()> {
    let mesh = Mesh::connect(world, &[(TENSOR, 2)], &GroupConfig::new())?;
    let model: M = M::make(0.0, device);
    let mut steps = 0;
    let start = std::time::Instant::now();
    let result = Plan::suggest(&model, &mesh, &machine(), |plan| {
        steps += 1;
        ensure!((steps, world.rank()) != (2, 1), "no memory");
        step::<M>(plan, &mesh, device)
    });
    let error = result
        .map(|suggestion| suggestion.to_string())
        .expect_err("rank 1 failed")
        .to_string();
    ensure!(error.contains("no memory") && error.contains("column("), "{error}");
    ensure!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    Ok(())
}

/// On data-parallel ranks parameters are cut if there is no room for them, and not otherwise.
pub fn data<M: Subject>(world: &World, device: &Device) -> anyhow::Result<()> {
    let mesh = Mesh::connect(world, &[(DATA, 2)], &GroupConfig::new())?;
    let roomy = suggest::<M>(&mesh, &machine(), device)?;
    ensure!(roomy.plan().to_string().is_empty(), "{roomy}");
    let bytes = roomy.candidates()[0].parameter_bytes;
    let narrow = suggest::<M>(&mesh, &machine().with_parameter_bytes(6 * bytes / 10), device)?;
    ensure!(narrow.plan().to_string() == "fully_shard(Data)\n", "{narrow}");
    ensure!(narrow.candidates()[0].parameter_bytes <= 6 * bytes / 10, "{narrow}");
    ensure!(
        narrow.candidates()[0].seconds >= roomy.candidates()[0].seconds,
        "{narrow}"
    );
    let error = suggest::<M>(&mesh, &machine().with_parameter_bytes(bytes / 10), device)
        .map(|suggestion| suggestion.to_string())
        .expect_err("there are two ranks")
        .to_string();
    let start = format!(
        "no plan that was tried leaves {} bytes of parameters on a rank",
        bytes / 10
    );
    ensure!(
        error.starts_with(&start) && error.contains("fully_shard(Data)"),
        "{error}"
    );
    Ok(())
}

/// On a grid of both it cuts the layers over one axis and, if there is little room, everything over the other.
pub fn grid<M: Subject>(world: &World, device: &Device) -> anyhow::Result<()> {
    let mesh = Mesh::connect(world, &[(DATA, 2), (TENSOR, 2)], &GroupConfig::new())?;
    let bytes = step::<M>(&Plan::new(), &mesh, device)?.local_parameter_bytes();
    let suggestion = suggest::<M>(&mesh, &machine().with_parameter_bytes(35 * bytes / 100), device)?;
    let plan = suggestion.plan().to_string();
    ensure!(
        plan.contains("fully_shard(Data)") && plan.contains("column("),
        "{suggestion}"
    );
    Ok(())
}
