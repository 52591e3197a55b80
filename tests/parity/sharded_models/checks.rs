//! What is checked of a placed model apart from its training: 16 bits, collectives, records, replicas.

use anyhow::{Context as _, ensure};
use burn::module::{Module as _, ModuleMapper, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{AdamW, AdamWConfig, Optimizer};
use burn::record::{BinBytesRecorder, DoublePrecisionSettings, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, FloatDType, IntDType, Tensor, TensorData, set_default_dtypes};
use burn_flex::FlexDevice;
use burn_megatron::collectives::GroupConfig;
use burn_megatron::initialize;
use burn_megatron::launch::World;
use burn_megatron::parameters::list_parameters;
use burn_megatron::random::RandomStream;
use burn_megatron::sharded::{
    Explanation, Mesh, Phase, Plan, ReplicaCheck, TrafficKind, TrafficRecord, backward, cast_parameters,
    check_replicas, clip_gradients, explain, parallelize, whole_record,
};
use plain_models::fused_gpt::FusedGpt;
use plain_models::gpt::PlainGpt;
use tests::harness::Case;

use super::SEED;
use super::layouts::{DATA, Layout, TENSOR};
use super::passes::{OnMesh, Placed, Plain, Serial};
use super::records::{maker, record_of, with_record};
use super::subjects::Subject;
use super::training::{Array, Options, Run, read_parameters, train};

/// In 16 bits a layout is as near to one rank as that is to 32 bits, and gathers half the bytes.
pub fn half<M: Subject<Placed>>(
    case: &Case,
    world: &World,
    options: Options,
    device: &FlexDevice,
) -> anyhow::Result<()> {
    let layout = Layout::of(case)?;
    let mesh = layout.mesh(world)?;
    Placed::seed(device, SEED);
    let fresh = maker::<M>(0.0, device)?;
    let placed = || anyhow::Ok(parallelize(fresh()?, &layout.plan(M::tensor_plan()), &mesh)?);
    let half = train(fresh()?, &Serial, options, device)?;
    let single = train(fresh()?, &Serial, Options::default(), device)?;
    let ours = train(placed()?, &OnMesh(mesh.clone()), options, device)?;
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
        drop(model.loss_of(0..8, &OnMesh(mesh.clone()), device));
        let of_matmuls =
            |record: &&TrafficRecord| record.kind == TrafficKind::AllGather && record.operation.contains("linear");
        let records = mesh.stop_counting();
        records
            .iter()
            .filter(of_matmuls)
            .map(|record| record.bytes)
            .sum::<usize>()
    };
    let model = placed()?;
    let (in_f32, in_bf16) = (
        gathered(&model),
        gathered(&cast_parameters::<Placed, M>(&model, FloatDType::BF16)),
    );
    ensure!(
        in_f32 > 0 && 2 * in_bf16 == in_f32,
        "gathered {in_bf16} bytes in bf16, {in_f32} in f32"
    );
    Ok(())
}

/// A plan that cuts some parameters over data-parallel or tensor-parallel ranks, or both.
pub fn random_plan<M: Subject<Placed>>(model: &M, seed: u64) -> Plan {
    let mut plan = Plan::new();
    for parameter in list_parameters::<Placed, M>(model) {
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
pub fn explained<M: Subject<Placed>>(
    case: &Case,
    world: &World,
    dropout: f64,
    device: &FlexDevice,
) -> anyhow::Result<()> {
    let layout = Layout::of(case)?;
    let mesh = layout.mesh(world)?;
    let mut explanations = Vec::new();
    for plan in [layout.plan(M::tensor_plan()), layout.plan(M::careless_plan())] {
        let model = parallelize(initialize(M::make(dropout, device)), &plan, &mesh)?;
        let (explanation, step) = explain(&model, &mesh, || {
            backward(model.loss_of(0..8, &OnMesh(mesh.clone()), device), &model)
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
    let counts = |explanation: &Explanation, phase| {
        [
            TrafficKind::AllReduce,
            TrafficKind::AllGather,
            TrafficKind::ReduceScatter,
        ]
        .map(|kind| explanation.count(phase, 0, kind))
    };
    let expected: Vec<[usize; 3]> = M::collectives(layout.sequence);
    let found = [Phase::Forward, Phase::Backward, Phase::Gradients].map(|phase| counts(planned, phase));
    ensure!(
        found[..] == expected[..],
        "collectives {found:?}, expected {expected:?}\n{planned}"
    );
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

/// A run that is saved with burn's recorder, loaded, and resumed, against one that was not interrupted; both clip by
/// the norm of the whole gradient.
pub fn resumed<M: Subject<Placed>>(case: &Case, world: &World, device: &FlexDevice) -> anyhow::Result<()> {
    let layout = Layout::of(case)?;
    let mesh = layout.mesh(world)?;
    let fresh = maker::<M>(0.0, device)?;
    let steps = |mesh: &Mesh, range: std::ops::Range<usize>, mut model: M, mut optimizer: AdamWOf<M>| {
        let mut losses = Vec::new();
        for step in range {
            let loss = model.loss_of(step * 8..(step + 1) * 8, &OnMesh(mesh.clone()), device);
            let (loss, mut gradients) = backward(loss, &model)?;
            let norm = clip_gradients::<Placed, M>(&mut gradients, &model, mesh, 0.1)?;
            model = optimizer.step(1e-2, model, gradients);
            losses.push([loss.into_data().iter::<f64>().next().context("a loss")?, norm]);
        }
        anyhow::Ok((losses, model, optimizer))
    };
    let one = Mesh::new([])?;
    let (expected, ..) = steps(&one, 0..6, fresh()?, AdamWConfig::new().init())?;

    let plan = layout.plan(M::tensor_plan());
    let (first, model, optimizer) = steps(
        &mesh,
        0..3,
        parallelize(fresh()?, &plan, &mesh)?,
        AdamWConfig::new().init(),
    )?;
    check_replicas(&model, &mesh)?;
    let state = whole_record(optimizer.to_record(), &model, device)?;
    let recorder = BinBytesRecorder::<DoublePrecisionSettings>::default();
    let state = Recorder::<Placed>::record(&recorder, state, ())?;
    let saved = record_of::<Placed, M>(&model)?;
    let model = with_record::<Placed, M>(
        parallelize(initialize(M::make(0.0, device)), &plan, &mesh)?,
        saved,
        device,
    )?;
    let state = Recorder::<Placed>::load(&recorder, state, device)?;
    let optimizer = AdamWConfig::new().init::<Placed, M>().load_record(state);
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

type AdamWOf<M> = OptimizerAdaptor<AdamW, M, Placed>;

/// What is changed on one rank is found, by name.
pub fn watched<M: Subject<Placed>>(world: &World, device: &FlexDevice) -> anyhow::Result<()> {
    struct Change(usize);
    impl ModuleMapper<Placed> for Change {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<Placed, D>>) -> Param<Tensor<Placed, D>> {
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
    let second = &list_parameters::<Placed, M>(&model)[1].path;
    ensure!(
        error.starts_with(&format!(
            "after step 6: parameter {second} is not the same on rank 0 and rank 1"
        )),
        "{error}"
    );
    Ok(())
}

/// Gives parameters these values, of the last the first.
struct Fill(Vec<Array>);

impl ModuleMapper<Plain> for Fill {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<Plain, D>>) -> Param<Tensor<Plain, D>> {
        let values = self.0.pop().expect("one for each parameter").values;
        param.map(|tensor| {
            let data = TensorData::new(values, tensor.dims());
            Tensor::from_data(data, (&tensor.device(), DType::F64)).require_grad()
        })
    }
}

/// The fused model with the plain one's parameters has nearly its loss and gradients: its GELU is the polynomial's.
pub fn near_plain(device: &FlexDevice) -> anyhow::Result<()> {
    set_default_dtypes::<Plain>(device, FloatDType::F64, IntDType::I64)?;
    Plain::seed(device, SEED);
    let plain: PlainGpt<Plain> = initialize(Subject::make(0.0, device));
    let fused: FusedGpt<Plain> = initialize(Subject::make(0.0, device));
    let mut values = read_parameters::<Plain, _>(&plain);
    let names = read_parameters::<Plain, _>(&fused).into_iter().map(|array| array.name);
    ensure!(
        names.eq(values.iter().map(|array| array.name.clone())),
        "other parameters"
    );
    values.reverse();
    let fused = fused.map(&mut Fill(values));
    let options = Options::default();
    let [plain, fused] = [
        train(plain, &Serial, options, device)?,
        train(fused, &Serial, options, device)?,
    ];
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
