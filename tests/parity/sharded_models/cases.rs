//! The layouts, and the trials of each model in each.

use anyhow::{Context as _, ensure};
use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module, ModuleMapper, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{AdamW, AdamWConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, DoublePrecisionSettings, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, FloatDType, Int, IntDType, Tensor, set_default_dtypes};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::collectives::catch_collective_error;
use burn_megatron::data_parallel::DataParallelConfig;
use burn_megatron::initialize;
use burn_megatron::launch::World;
use burn_megatron::parameters::list_parameters;
use burn_megatron::random::RandomStream;
use burn_megatron::sharded::{
    AxisRole, Explanation, Mesh, Phase, PlacedDataParallel, Plan, Sharded, ShardedBackend, TrafficKind, TrafficRecord,
    backward, backward_unplaced, cast_parameters, check_replicas, clip_gradients, distribute, explain, parallelize,
    place_gradients, whole_record,
};
use burn_megatron::topology::ParallelConfig;
use libtest_mimic::Trial;
use plain_models::classifier::Classifier;
use plain_models::convolutional::ConvNet;
use plain_models::gpt::PlainGpt;
use plain_models::recurrent::Recurrent;

use super::compared;
use super::learner;
use super::subjects::{PlaceBatch, Subject};
use super::training::{Options, Passes, Run, STEPS, compare, train};
use super::wrapped::{self, Ranks, Wrapped};
use tests::harness::{Case, Job};

/// The serial program's backend, and the one whose tensors are placed.
type Plain = Autodiff<Flex>;
pub type Placed = Autodiff<Sharded<Flex>>;

const SEED: u64 = 11;
/// Of each model.
const RANDOM_PLACEMENTS: u64 = 50;

/// How the ranks of a case are laid out.
#[derive(Clone, Copy, Debug)]
struct Layout {
    name: &'static str,
    axes: &'static [(AxisRole, usize)],
    /// Whether parameters are cut over the last data axis, too.
    fully_sharded: bool,
    sequence: bool,
}

const DATA: AxisRole = AxisRole::Data;
const TENSOR: AxisRole = AxisRole::Tensor;

const LAYOUTS: &[Layout] = &[
    layout("dp2", &[(DATA, 2)]),
    layout("tp2", &[(TENSOR, 2)]),
    layout("tp4", &[(TENSOR, 4)]),
    layout("tp2sp", &[(TENSOR, 2)]).sequence(),
    layout("tp2dp2", &[(DATA, 2), (TENSOR, 2)]),
    layout("fsdp2", &[(DATA, 2)]).fully_sharded(),
    layout("fsdp4", &[(DATA, 4)]).fully_sharded(),
    layout("hsdp2x2", &[(DATA, 2), (DATA, 2)]).fully_sharded(),
    layout("tp2fsdp2sp", &[(DATA, 2), (TENSOR, 2)])
        .fully_sharded()
        .sequence(),
];

const fn layout(name: &'static str, axes: &'static [(AxisRole, usize)]) -> Layout {
    Layout {
        name,
        axes,
        fully_sharded: false,
        sequence: false,
    }
}

impl Layout {
    const fn fully_sharded(self) -> Self {
        Self {
            fully_sharded: true,
            ..self
        }
    }

    const fn sequence(self) -> Self {
        Self { sequence: true, ..self }
    }

    fn world_size(&self) -> usize {
        self.axes.iter().map(|axis| axis.1).product()
    }

    fn mesh(&self, world: &World) -> anyhow::Result<Mesh> {
        let mesh = Mesh::connect(world, self.axes, &GroupConfig::new())?;
        Ok(if self.sequence {
            mesh.with_sequence_dimension(1)
        } else {
            mesh
        })
    }

    fn plan(&self, tensor_plan: Plan) -> Plan {
        let has = |role| self.axes.iter().any(|axis| axis.0 == role);
        let plan = if has(TENSOR) { tensor_plan } else { Plan::new() };
        if self.fully_sharded {
            plan.fully_shard(DATA)
        } else {
            plan
        }
    }
}

const MODELS: [&str; 4] = ["classifier", "convolutional", "recurrent", "gpt"];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for model in MODELS {
        let has_tokens = ["classifier", "gpt"].contains(&model);
        let case = |kind: &str, layout: &str, dtype: &str, dropout: f64| {
            Case::new(kind)
                .with("model", model)
                .with("layout", layout)
                .with("dtype", dtype)
                .with("dropout", dropout)
        };
        let one = case("unplaced", "dp2", "f64", 0.0);
        trials.push(Job::new(one, 1).succeeds(format!("{model}_on_one_rank_is_plain_burns_to_the_bit")));
        for layout in LAYOUTS {
            // Without a sequence there is none to cut.
            if layout.sequence && !has_tokens {
                continue;
            }
            let ranks = layout.world_size();
            let name = layout.name;
            let placed = case("placed", name, "f64", 0.0);
            trials.push(Job::new(placed, ranks).succeeds(format!("{model}_trains_as_on_one_rank_in_{name}_f64")));
            if ["tp2", "tp2fsdp2sp", "fsdp2"].contains(&name) {
                let placed = case("placed", name, "f32", 0.0)
                    .with("accumulates", true)
                    .with("clips", true);
                let trial = format!("{model}_accumulates_and_clips_as_on_one_rank_in_{name}_f32");
                trials.push(Job::new(placed, ranks).succeeds(trial));
            }
            if has_tokens && ["tp2dp2", "tp2sp", "fsdp4"].contains(&name) {
                let dropping = case("placed", name, "f64", 0.2).with("accumulates", true);
                trials.push(Job::new(dropping, ranks).succeeds(format!("{model}_drops_as_on_one_rank_in_{name}_f64")));
            }
        }
    }
    for model in MODELS {
        let case = Case::new("random")
            .with("model", model)
            .with("dtype", "f64")
            .with("dropout", 0.0);
        trials.push(Job::new(case, 4).succeeds(format!("{model}_trains_as_on_one_rank_however_it_is_placed")));
    }
    for (layout, data, tensor, ..) in wrapped::LAYOUTS {
        let case = |dtype: &str| Case::new("wrapped").with("layout", layout).with("dtype", dtype);
        let trial = |model: &str, case: Case, name: &str| {
            let job = Job::new(case.with("model", model), data * tensor);
            job.succeeds(format!("{model}_in_distributed_data_parallel_{name}_in_{layout}"))
        };
        trials.push(trial("gpt", case("f64").with("dropout", 0.1), "trains_as_on_one_rank"));
        let accumulating = case("f32")
            .with("dropout", 0.0)
            .with("accumulates", true)
            .with("clips", true);
        trials.push(trial(
            "convolutional",
            accumulating,
            "accumulates_and_clips_as_on_one_rank",
        ));
    }
    let one = Case::new("wrapped_alone")
        .with("model", "gpt")
        .with("dtype", "bf16")
        .with("dropout", 0.0);
    trials.push(
        Job::new(one, 1).succeeds("gpt_in_distributed_data_parallel_on_one_rank_has_the_bits_of_plain_burn_in_bf16"),
    );
    for (layout, ranks) in [("tp2", 2), ("fsdp2", 2)] {
        let case = Case::new("learned").with("model", "classifier").with("layout", layout);
        let case = case.with("dtype", "f64").with("dropout", 0.1);
        trials.push(Job::new(case, ranks).succeeds(format!("burns_learner_trains_as_on_one_rank_in_{layout}")));
    }
    let case = Case::new("wrapped_fully_sharded")
        .with("model", "gpt")
        .with("dtype", "f32")
        .with("dropout", 0.0);
    trials.push(Job::new(case, 2).fails_with(
        "distributed_data_parallel_refuses_parameters_that_are_cut_over_its_ranks",
        &[
            "parameter tokens.weight is cut over the data-parallel ranks",
            "leave fully_shard(Data) out of the plan",
        ],
    ));
    for model in ["gpt", "convolutional"] {
        let case = Case::new("wrapped_resumed")
            .with("model", model)
            .with("dtype", "f64")
            .with("dropout", 0.0);
        trials.push(Job::new(case, 2).succeeds(format!(
            "a_checkpoint_of_{model}_in_dp2_resumes_in_tp2sp_as_on_one_rank"
        )));
    }
    for (layout, ranks) in [("fsdp2", 2), ("tp2fsdp2sp", 4)] {
        let case = Case::new("half").with("model", "gpt").with("layout", layout);
        let case = case.with("dtype", "f32").with("dropout", 0.0);
        trials.push(Job::new(case, ranks).succeeds(format!("gpt_in_bf16_is_near_one_rank_in_{layout}")));
    }
    for dtype in ["f64", "f32"] {
        let compared = Case::new("compared").with("dtype", dtype);
        trials.push(Job::new(compared, 2).succeeds(format!("compare_finds_no_tensor_that_differs_in_{dtype}")));
    }
    let mistakes = Case::new("mistakes");
    trials.push(Job::new(mistakes, 2).succeeds("compare_names_the_first_tensor_that_a_mistake_changes"));
    for (layout, ranks) in [("tp2", 2), ("fsdp2", 2), ("tp2fsdp2sp", 4)] {
        let case = Case::new("resumed").with("model", "gpt").with("layout", layout);
        let case = case.with("dtype", "f32").with("dropout", 0.0);
        trials.push(Job::new(case, ranks).succeeds(format!("a_run_that_is_resumed_in_{layout}_is_one_that_was_not")));
    }
    let case = Case::new("watched")
        .with("model", "convolutional")
        .with("dtype", "f32")
        .with("dropout", 0.0);
    trials.push(Job::new(case, 2).succeeds("a_replica_that_differs_is_named"));
    let case = Case::new("read_alone")
        .with("model", "gpt")
        .with("dtype", "f32")
        .with("dropout", 0.0);
    trials.push(Job::new(case, 2).fails_with(
        "a_read_on_one_rank_names_both_calls",
        &[
            "while rank 0 called all_reduce sum of 1 f32",
            "this rank was in place_gradients of a sharded tensor",
            "is a collective that every rank must call",
        ],
    ));
    for (layout, ranks) in [("tp2", 2), ("tp2sp", 2)] {
        let case = Case::new("explained")
            .with("model", "classifier")
            .with("layout", layout);
        let case = case.with("dtype", "f32").with("dropout", 0.0);
        trials.push(
            Job::new(case, ranks).succeeds(format!("a_step_of_{layout}_makes_the_collectives_of_megatrons_layers")),
        );
    }
    trials
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    match case.name.as_str() {
        "compared" => return compared::equal(case, world),
        "mistakes" => return compared::mistakes(world),
        _ => {}
    }
    let model: String = case.setting("model")?;
    match model.as_str() {
        "classifier" => run_model::<Classifier<Plain>, Classifier<Placed>>(case, world),
        "convolutional" => run_model::<ConvNet<Plain>, ConvNet<Placed>>(case, world),
        "recurrent" => run_model::<Recurrent<Plain>, Recurrent<Placed>>(case, world),
        "gpt" => run_model::<PlainGpt<Plain>, PlainGpt<Placed>>(case, world),
        other => anyhow::bail!("there is no model {other}"),
    }
}

fn run_model<P: Subject<Plain>, M: Subject<Placed>>(case: &Case, world: &World) -> anyhow::Result<()> {
    let device = FlexDevice;
    let dtype: String = case.setting("dtype")?;
    let (dtype, float) = match dtype.as_str() {
        "f64" => (DType::F64, FloatDType::F64),
        "bf16" => (DType::BF16, FloatDType::BF16),
        _ => (DType::F32, FloatDType::F32),
    };
    set_default_dtypes::<Placed>(&device, float, IntDType::I64)?;
    let dropout: f64 = case.setting("dropout")?;
    let options = Options {
        accumulates: case.setting("accumulates").unwrap_or(false),
        clips: case.setting("clips").unwrap_or(false),
        is_half: case.name == "half",
    };
    match case.name.as_str() {
        "unplaced" => {
            Plain::seed(&device, SEED);
            let plain = initialize(P::make(dropout, &device));
            // burn loads what is f32: from here on both have the same.
            let plain = with_record::<Plain, P>(plain.clone(), record_of::<Plain, P>(&plain)?, &device)?;
            let record = record_of::<Plain, P>(&plain)?;
            let unplaced = with_record::<Placed, M>(initialize(M::make(dropout, &device)), record.clone(), &device)?;
            ensure!(record_of::<Placed, M>(&unplaced)? == record, "the records differ");
            let reference = train(plain, &Serial, options, &device)?;
            let run = train(unplaced, &Serial, options, &device)?;
            ensure!(
                reference.losses == run.losses,
                "{:?} and {:?}",
                reference.losses,
                run.losses
            );
            compare(dtype, &reference, &run)
        }
        "placed" => {
            let layout: String = case.setting("layout")?;
            let layout = LAYOUTS
                .iter()
                .find(|other| other.name == layout)
                .context("a layout of the list")?;
            Placed::seed(&device, SEED);
            let whole = initialize(M::make(dropout, &device));
            let whole = with_record::<Placed, M>(whole.clone(), record_of::<Placed, M>(&whole)?, &device)?;
            let record = record_of::<Placed, M>(&whole)?;
            Placed::seed(&device, SEED + 1);
            let reference = train(whole, &Serial, options, &device)?;

            let mesh = layout.mesh(world)?;
            let plan = layout.plan(M::tensor_plan());
            // A record that is loaded is placed as the parameters were.
            let placed = parallelize(M::make(dropout, &device), &plan, &mesh)?;
            let placed = with_record::<Placed, M>(placed, record.clone(), &device)?;
            ensure!(
                record_of::<Placed, M>(&placed)? == record,
                "the record of a placed model is not the whole one's"
            );
            Placed::seed(&device, SEED + 1);
            let run = train(placed, &OnMesh(mesh), options, &device)?;
            compare(dtype, &reference, &run)
        }
        "half" => half::<M>(case, world, options, &device),
        "random" => {
            let mesh = LAYOUTS
                .iter()
                .find(|layout| layout.name == "tp2dp2")
                .context("a layout of the list")?
                .mesh(world)?;
            Placed::seed(&device, SEED);
            let record = record_of::<Placed, M>(&initialize(M::make(dropout, &device)))?;
            // Clones would share the running state of a norm.
            let fresh = || with_record::<Placed, M>(initialize(M::make(dropout, &device)), record.clone(), &device);
            let reference = train(fresh()?, &Serial, options, &device)?;
            for seed in 0..RANDOM_PLACEMENTS {
                let whole = fresh()?;
                let plan = random_plan(&whole, seed);
                let placed = parallelize(whole, &plan, &mesh)?;
                let run = train(placed, &OnMesh(mesh.clone()), options, &device)?;
                compare(dtype, &reference, &run).with_context(|| format!("placed by seed {seed}:\n{plan}"))?;
            }
            Ok(())
        }
        "wrapped" | "wrapped_resumed" => {
            Placed::seed(&device, SEED);
            let record = record_of::<Placed, M>(&initialize(M::make(dropout, &device)))?;
            // Clones would share the running state of a norm.
            let fresh = || with_record::<Placed, M>(initialize(M::make(dropout, &device)), record.clone(), &device);
            let whole = fresh()?;
            Placed::seed(&device, SEED + 1);
            let reference = train(whole, &Serial, options, &device)?;
            let run = if case.name == "wrapped" {
                let ranks = Ranks::new(&case.setting::<String>("layout")?, world)?;
                let mut wrapped = Wrapped::new(fresh()?, options, &ranks)?;
                Placed::seed(&device, SEED + 1);
                let mut run = Run::default();
                wrapped.train(0..STEPS, &mut run, &device)?;
                run
            } else {
                let [saving, resuming] = ["dp2_sharded", "tp2sp"].map(|layout| Ranks::new(layout, world));
                wrapped::resume(fresh, [&saving?, &resuming?], &device)?
            };
            compare(dtype, &reference, &run)
        }
        "learned" => {
            let layout: String = case.setting("layout")?;
            let layout = LAYOUTS.iter().find(|other| other.name == layout);
            let layout = layout.context("a layout of the list")?;
            learner::learn(&layout.mesh(world)?, &layout.plan(M::tensor_plan()), &device)
        }
        "wrapped_fully_sharded" => {
            let context = ParallelConfig::new().init(world)?;
            let mesh = Mesh::of(&context)?;
            let model = parallelize(M::make(dropout, &device), &Plan::new().fully_shard(DATA), &mesh)?;
            PlacedDataParallel::<Placed, M>::new(model, &mesh, &context, DataParallelConfig::new())?;
            Ok(())
        }
        "wrapped_alone" => {
            Plain::seed(&device, SEED);
            let plain = initialize(P::make(dropout, &device));
            let record = record_of::<Plain, P>(&plain)?;
            let whole = with_record::<Placed, M>(initialize(M::make(dropout, &device)), record, &device)?;
            wrapped::is_plain_on_one_rank(plain, whole, world, &device)
        }
        "explained" => explained::<M>(case, world, dropout, &device),
        "resumed" => resumed::<M>(case, world, &device),
        "watched" => watched::<M>(world, &device),
        "read_alone" => {
            let mesh = Mesh::connect(world, &[(DATA, 2)], &GroupConfig::new())?;
            let model = parallelize(initialize(M::make(dropout, &device)), &Plan::new(), &mesh)?;
            let loss = model.loss_of(0..8, &OnMesh(mesh), &device);
            if world.rank() == 0 {
                // A mean over samples of which this rank has half: the other rank is not asked.
                catch_collective_error(|| (loss.clone() * 2.0).into_data())?;
            }
            backward(loss, &model)?;
            Ok(())
        }
        other => anyhow::bail!("there is no case {other}"),
    }
}

/// In 16 bits a layout is as near to one rank as that is to 32 bits, and gathers half the bytes.
fn half<M: Subject<Placed>>(case: &Case, world: &World, options: Options, device: &FlexDevice) -> anyhow::Result<()> {
    let layout: String = case.setting("layout")?;
    let layout = LAYOUTS
        .iter()
        .find(|other| other.name == layout)
        .context("a layout of the list")?;
    let mesh = layout.mesh(world)?;
    Placed::seed(device, SEED);
    let record = record_of::<Placed, M>(&initialize(M::make(0.0, device)))?;
    let fresh = || with_record::<Placed, M>(initialize(M::make(0.0, device)), record.clone(), device);
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
fn random_plan<M: Subject<Placed>>(model: &M, seed: u64) -> Plan {
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
fn explained<M: Subject<Placed>>(case: &Case, world: &World, dropout: f64, device: &FlexDevice) -> anyhow::Result<()> {
    let layout: String = case.setting("layout")?;
    let layout = LAYOUTS
        .iter()
        .find(|other| other.name == layout)
        .context("a layout of the list")?;
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
        careless.total().0 > planned.total().0,
        "the careless plan costs no more:\n{careless}"
    );
    ensure!(!advised.is_empty(), "nothing is said of the careless plan:\n{careless}");
    Ok(())
}

/// A run that is saved with burn's recorder, loaded, and resumed, against one that was not interrupted; both clip by
/// the norm of the whole gradient.
fn resumed<M: Subject<Placed>>(case: &Case, world: &World, device: &FlexDevice) -> anyhow::Result<()> {
    let layout: String = case.setting("layout")?;
    let layout = LAYOUTS
        .iter()
        .find(|other| other.name == layout)
        .context("a layout of the list")?;
    let mesh = layout.mesh(world)?;
    let record = record_of::<Placed, M>(&initialize(M::make(0.0, device)))?;
    let fresh = || with_record::<Placed, M>(initialize(M::make(0.0, device)), record.clone(), device);
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
fn watched<M: Subject<Placed>>(world: &World, device: &FlexDevice) -> anyhow::Result<()> {
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
    let error = check_replicas(&model, &mesh)
        .err()
        .context("it was not noticed")?
        .to_string();
    let second = &list_parameters::<Placed, M>(&model)[1].path;
    ensure!(
        error.contains(&format!("parameter {second} is not the same on rank 0 and rank 1")),
        "{error}"
    );
    Ok(())
}

/// A model's record as bytes; parameters keep their names and lose what burn draws of their identity.
fn record_of<B: AutodiffBackend, M: Module<B>>(model: &M) -> anyhow::Result<Vec<u8>> {
    Ok(BinBytesRecorder::<DoublePrecisionSettings>::default().record(model.clone().into_record(), ())?)
}

fn with_record<B: AutodiffBackend, M: Module<B>>(model: M, record: Vec<u8>, device: &B::Device) -> anyhow::Result<M> {
    let record = BinBytesRecorder::<DoublePrecisionSettings>::default().load(record, device)?;
    Ok(model.load_record(record))
}

/// burn's own passes, of tensors that have no mesh.
pub struct Serial;

impl<B: Backend> PlaceBatch<B> for Serial {
    fn floats<const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        tensor
    }

    fn ints<const D: usize>(&self, tensor: Tensor<B, D, Int>) -> Tensor<B, D, Int> {
        tensor
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> Passes<B, M> for Serial {
    fn backward(&self, loss: Tensor<B, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        let value = loss.clone().into_data().iter::<f64>().next().context("a loss")?;
        Ok((value, GradientsParams::from_grads(loss.backward(), model)))
    }

    fn backward_part(&self, loss: Tensor<B, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        self.backward(loss, model)
    }

    fn finish(&self, gradients: GradientsParams, _model: &M) -> anyhow::Result<GradientsParams> {
        Ok(gradients)
    }
}

/// A batch cut over the data-parallel ranks.
pub struct OnMesh(pub Mesh);

impl<B: ShardedBackend> PlaceBatch<B> for OnMesh {
    fn floats<const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        distribute(tensor, &self.0, DATA, 0)
    }

    fn ints<const D: usize>(&self, tensor: Tensor<B, D, Int>) -> Tensor<B, D, Int> {
        distribute(tensor, &self.0, DATA, 0)
    }
}

impl<M: AutodiffModule<Placed>> Passes<Placed, M> for OnMesh {
    fn backward(&self, loss: Tensor<Placed, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        let (loss, gradients) = backward(loss, model)?;
        // Every rank has it.
        let value = loss.into_data().iter::<f64>().next().context("a loss")?;
        Ok((value, gradients))
    }

    fn backward_part(&self, loss: Tensor<Placed, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        let value = loss.clone().into_data().iter::<f64>().next().context("a loss")?;
        Ok((value, backward_unplaced(loss, model)?))
    }

    fn finish(&self, gradients: GradientsParams, model: &M) -> anyhow::Result<GradientsParams> {
        Ok(place_gradients(gradients, model)?)
    }
}
