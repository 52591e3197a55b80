//! What is checked of a placed model apart from its training: 16 bits, collectives, records, replicas.

use anyhow::{Context as _, ensure};
use burn::module::{Module as _, ModuleMapper, Param};
use burn::optim::{AdamWConfig, ModuleOptimizer, OptimizerRecord};
use burn::tensor::{Bytes, Device, FloatDType, Tensor};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::data_parallel::clip_coefficient;
use burn_megatron::initialize;
use burn_megatron::launch::World;
use burn_megatron::parameters::list_parameters;
use burn_megatron::random::RandomStream;
use burn_megatron::sharded::{
    Explanation, Mesh, Phase, Plan, ReplicaCheck, TrafficKind, TrafficRecord, backward, cast_parameters,
    check_replicas, clip_gradients, explain, parallelize, scale_gradients, whole_record,
};
use plain_models::fused_gpt::FusedGpt;
use plain_models::gpt::PlainGpt;
use tests::harness::Case;

use super::SEED;
use super::layouts::{DATA, Layout, TENSOR};
use super::passes::{Passes, plain_device, value};
use super::records::{maker, record_of};
use super::subjects::Subject;
use super::training::{Options, Run, norm, read_gradients, train};

/// In 16 bits a layout is as near to one rank as that is to 32 bits, and gathers half the bytes.
pub fn half<M: Subject>(case: &Case, world: &World, options: Options, device: &Device) -> anyhow::Result<()> {
    let layout = Layout::of(case)?;
    let mesh = layout.mesh(world)?;
    let passes = Passes::OnMesh(mesh.clone());
    let fresh = maker::<M>(0.0, device)?;
    let placed = || parallelize(fresh(), &layout.plan(M::tensor_plan()), &mesh);
    let half = train(fresh(), &Passes::Serial, options, device)?;
    let single = train(fresh(), &Passes::Serial, Options::default(), device)?;
    let ours = train(placed()?, &passes, options, device)?;
    let distance = |run: &Run, other: &Run| {
        let values = |run: &Run| -> Vec<f64> { run.parameters.iter().flat_map(|array| array.values.clone()).collect() };
        let pairs = values(run).into_iter().zip(values(other));
        pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    };
    let (from_one_rank, from_f32) = (distance(&ours, &half), distance(&half, &single));
    println!("from one rank in bf16 {from_one_rank:.1e}, which is {from_f32:.1e} from f32");
    ensure!(from_f32 > 1e-5, "one rank in bf16 is {from_f32} from f32");
    ensure!(
        from_one_rank < 2.0 * from_f32,
        "{from_one_rank} from one rank, which is {from_f32} from f32"
    );

    // Of floats: tokens are integers.
    let gathered = |model: &M| {
        mesh.start_counting();
        drop(model.loss_of(0..8, &passes, device));
        let of_matmuls =
            |record: &&TrafficRecord| record.kind == TrafficKind::AllGather && record.operation == "float_matmul";
        let records = mesh.stop_counting();
        records
            .iter()
            .filter(of_matmuls)
            .map(|record| record.bytes)
            .sum::<usize>()
    };
    let model = placed()?;
    let (in_f32, in_bf16) = (gathered(&model), gathered(&cast_parameters(&model, FloatDType::BF16)));
    ensure!(
        in_f32 > 0 && 2 * in_bf16 == in_f32,
        "gathered {in_bf16} bytes in bf16, {in_f32} in f32"
    );
    Ok(())
}

/// A plan that cuts some parameters over data-parallel or tensor-parallel ranks, or both.
pub fn random_plan<M: Subject>(model: &M, seed: u64) -> Plan {
    let mut plan = Plan::new();
    for parameter in list_parameters(model) {
        let mut draws = [0.0; 2];
        RandomStream::new(seed, &parameter.path).fill_uniform(0, 1.0, &mut draws);
        let even: Vec<usize> = (0..parameter.shape.len())
            .filter(|&d| parameter.shape[d].is_multiple_of(2))
            .collect();
        let pick = ((draws[0] + 1.0) / 2.0 * (even.len() + 1) as f64) as usize;
        let role = if draws[1] < 0.0 { DATA } else { TENSOR };
        if let Some(&dimension) = even.get(pick) {
            plan = plan.shard(&parameter.path, role, dimension);
        }
    }
    // Half of them are cut over the data-parallel ranks, too.
    if seed.is_multiple_of(2) {
        plan.fully_shard(DATA)
    } else {
        plan
    }
}

/// A step's collectives by kind, against those that Megatron's layers make, and what a careless plan costs.
pub fn explained<M: Subject>(case: &Case, world: &World, dropout: f64, device: &Device) -> anyhow::Result<()> {
    let layout = Layout::of(case)?;
    let mesh = layout.mesh(world)?;
    let mut explanations = Vec::new();
    for plan in [layout.plan(M::tensor_plan()), layout.plan(M::careless_plan())] {
        let model = parallelize(initialize(M::make(dropout, device)), &plan, &mesh)?;
        let (explanation, step) = explain(&model, &mesh, || {
            backward(model.loss_of(0..8, &Passes::OnMesh(mesh.clone()), device), &model)
        });
        step?;
        if world.rank() == 0 {
            println!("{plan}{explanation}");
        }
        explanations.push(explanation);
    }
    let [planned, careless] = &explanations[..] else {
        anyhow::bail!("two plans")
    };
    expect_collectives(planned, &M::collectives(layout.sequence))?;
    ensure!(planned.careless().next().is_none(), "{planned}");
    let advised: Vec<&str> = careless
        .careless()
        .flat_map(|row| &row.near)
        .map(String::as_str)
        .collect();
    ensure!(
        careless.total().1 > planned.total().1,
        "the careless plan costs no more:\n{careless}"
    );
    ensure!(!advised.is_empty(), "nothing is said of the careless plan:\n{careless}");
    Ok(())
}

/// A data-parallel step communicates its loss and its gradients alone.
pub fn explained_data<M: Subject>(world: &World, device: &Device) -> anyhow::Result<()> {
    let mesh = Mesh::connect(world, &[(DATA, 2)], &GroupConfig::new())?;
    let model = parallelize(initialize(M::make(0.0, device)), &Plan::new(), &mesh)?;
    let (explanation, step) = explain(&model, &mesh, || {
        backward(model.loss_of(0..8, &Passes::OnMesh(mesh.clone()), device), &model)
    });
    step?;
    expect_collectives(&explanation, &[[1, 0, 0], [0, 0, 0], [1, 0, 0]])
}

/// All-reduces, all-gathers and reduce-scatters on the first axis, forward, backward and for gradients.
fn expect_collectives(explanation: &Explanation, expected: &[[usize; 3]]) -> anyhow::Result<()> {
    let kinds = [
        TrafficKind::AllReduce,
        TrafficKind::AllGather,
        TrafficKind::ReduceScatter,
    ];
    let found = [Phase::Forward, Phase::Backward, Phase::Gradients]
        .map(|phase| kinds.map(|kind| explanation.count(phase, 0, kind)));
    ensure!(
        found == expected,
        "collectives {found:?}, expected {expected:?}\n{explanation}"
    );
    Ok(())
}

/// Gradients are scaled, and clipped by a norm in which each element counts once, wherever it is.
pub fn clipped<M: Subject>(case: &Case, world: &World, device: &Device) -> anyhow::Result<()> {
    const MOST: f64 = 0.05;
    let layout = Layout::of(case)?;
    let mesh = layout.mesh(world)?;
    let model = parallelize(initialize(M::make(0.0, device)), &layout.plan(M::tensor_plan()), &mesh)?;
    let (_, mut gradients) = backward(model.loss_of(0..8, &Passes::OnMesh(mesh.clone()), device), &model)?;
    let before = read_gradients(&model, &gradients);
    scale_gradients(&mut gradients, &model, 3.0);
    let found = clip_gradients(&mut gradients, &model, &mesh, MOST)?;
    let (expected, after) = (3.0 * norm(&before), read_gradients(&model, &gradients));
    ensure!(
        expected > MOST && (found / expected - 1.0).abs() <= 1e-12,
        "norm {found}, expected {expected}"
    );
    let factor = 3.0 * clip_coefficient(expected, MOST);
    for (before, after) in before.iter().zip(&after) {
        let pairs = before.values.iter().zip(&after.values);
        let largest = pairs.map(|(before, after)| (factor * before - after).abs());
        let largest = largest.fold(0.0, f64::max);
        ensure!(largest <= 1e-12, "elements of {} differ by {largest}", before.name);
    }
    Ok(())
}

/// A run that is saved as burn's records, loaded, and resumed, against one that was not interrupted; both clip by
/// the norm of the whole gradient.
pub fn resumed<M: Subject>(case: &Case, world: &World, device: &Device) -> anyhow::Result<()> {
    let layout = Layout::of(case)?;
    let mesh = layout.mesh(world)?;
    let fresh = maker::<M>(0.0, device)?;
    let steps = |mesh: &Mesh, range: std::ops::Range<usize>, mut model: M, mut optimizer: ModuleOptimizer| {
        let mut losses = Vec::new();
        for step in range {
            let loss = model.loss_of(step * 8..(step + 1) * 8, &Passes::OnMesh(mesh.clone()), device);
            let (loss, mut gradients) = backward(loss, &model)?;
            let norm = clip_gradients(&mut gradients, &model, mesh, 0.1)?;
            model = optimizer.step(1e-2, model, gradients);
            losses.push([value(loss)?, norm]);
        }
        anyhow::Ok((losses, model, optimizer))
    };
    let one = Mesh::new([])?;
    let (expected, ..) = steps(&one, 0..6, fresh(), AdamWConfig::new().init())?;

    let plan = layout.plan(M::tensor_plan());
    let (first, model, optimizer) = steps(
        &mesh,
        0..3,
        parallelize(fresh(), &plan, &mesh)?,
        AdamWConfig::new().init(),
    )?;
    check_replicas(&model, &mesh)?;
    let state = whole_record(&optimizer)?.into_bytes()?;
    let placed = parallelize(M::make(0.0, device), &plan, &mesh)?;
    let model = placed.load_record(record_of(&model)?);
    let state = OptimizerRecord::from_bytes(Bytes::from_bytes_vec(state.to_vec()))?;
    let optimizer = AdamWConfig::new().init().load_record(state);
    let (rest, model, _) = steps(&mesh, 3..6, model, optimizer)?;
    check_replicas(&model, &mesh)?;
    for (step, (ours, theirs)) in first.iter().chain(&rest).zip(&expected).enumerate() {
        for (ours, theirs) in ours.iter().zip(theirs) {
            ensure!(
                (ours - theirs).abs() <= 2e-6 * theirs,
                "step {step}: {ours} against {theirs}"
            );
        }
    }
    ensure!(first.len() + rest.len() == expected.len(), "some steps are missing");
    Ok(())
}

/// What is changed on one rank is found, by name.
pub fn watched<M: Subject>(world: &World, device: &Device) -> anyhow::Result<()> {
    struct Change(usize);
    impl ModuleMapper for Change {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.0 += 1;
            if self.0 == 2 {
                param.map(|tensor| tensor + 1.0)
            } else {
                param
            }
        }
    }
    let mesh = Mesh::connect(world, &[(DATA, 2)], &GroupConfig::new())?;
    let model = parallelize(initialize(M::make(0.0, device)), &Plan::new(), &mesh)?;
    check_replicas(&model, &mesh)?;
    let model = if world.rank() == 1 {
        model.map(&mut Change(0))
    } else {
        model
    };
    let mut replicas = ReplicaCheck::every(2).resumed_after(4);
    replicas.after_step(&model, &mesh)?;
    let error = replicas
        .after_step(&model, &mesh)
        .err()
        .context("it was not noticed")?
        .to_string();
    let second = &list_parameters(&model)[1].path;
    ensure!(
        error.starts_with(&format!(
            "after step 6: parameter {second} is not the same on rank 0 and rank 1"
        )),
        "{error}"
    );
    Ok(())
}

/// The fused model with the plain one's parameters has nearly its loss and gradients: its GELU is the polynomial's.
pub fn near_plain() -> anyhow::Result<()> {
    let device = plain_device(FloatDType::F64)?;
    device.seed(SEED);
    let plain: PlainGpt = initialize(Subject::make(0.0, &device));
    // Both have the same parameters: no other record is loaded.
    let fused = <FusedGpt as Subject>::make(0.0, &device).load_record(record_of(&plain)?);
    let plain = train(plain, &Passes::Serial, Options::default(), &device)?;
    let fused = train(fused, &Passes::Serial, Options::default(), &device)?;
    for (step, (ours, theirs)) in fused.losses.iter().zip(&plain.losses).enumerate() {
        ensure!(
            (ours / theirs - 1.0).abs() < 1e-3,
            "step {step}: loss {ours}, and {theirs} of the plain model"
        );
    }
    for (ours, theirs) in fused.gradients[0].iter().zip(&plain.gradients[0]) {
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let pairs = ours.values.iter().zip(&theirs.values);
        let difference = norm(&mut pairs.map(|(a, b)| a - b));
        let size = norm(&mut theirs.values.iter().copied()).max(1e-3);
        ensure!(ours.name == theirs.name, "{} in place of {}", ours.name, theirs.name);
        ensure!(difference < 1e-2 * size, "{}: {difference} of {size}", ours.name);
    }
    Ok(())
}
