//! The trials of each model in each layout.

use anyhow::{Context as _, ensure};
use burn::tensor::{DType, FloatDType};
use burn_megatron::collectives::{GroupConfig, catch_collective_error};
use burn_megatron::data_parallel::DataParallelConfig;
use burn_megatron::initialize;
use burn_megatron::launch::World;
use burn_megatron::sharded::{Mesh, PlacedDataParallel, Plan, backward, parallelize};
use burn_megatron::topology::ParallelConfig;
use libtest_mimic::Trial;
use plain_models::classifier::Classifier;
use plain_models::convolutional::ConvNet;
use plain_models::fused_gpt::FusedGpt;
use plain_models::gpt::PlainGpt;
use plain_models::recurrent::Recurrent;
use tests::harness::{Case, Job};
use tests::one_in;

use super::layouts::{DATA, LAYOUTS, Layout};
use super::passes::{Passes, placed_device, plain_device};
use super::records::{maker, record_of};
use super::subjects::{OddPair, Subject};
use super::training::{Options, Run, STEPS, compare, read_parameters, train};
use super::wrapped::{self, Ranks, Wrapped};
use super::{SEED, checks, compared, learner, loading, mistakes, suggested};

/// Of each model.
const RANDOM_PLACEMENTS: u64 = 50;

const MODELS: [&str; 6] = [
    "classifier",
    "convolutional",
    "recurrent",
    "gpt",
    "fused_gpt",
    "odd_pair",
];

/// A case of a model, in one type and with a dropout.
fn case(kind: &str, model: &str, dtype: &str, dropout: f64) -> Case {
    Case::new("sharded_models", kind)
        .with("model", model)
        .with("dtype", dtype)
        .with("dropout", dropout)
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for model in MODELS {
        let has_tokens = ["classifier", "gpt", "fused_gpt"].contains(&model);
        let one = case("unplaced", model, "f64", 0.0);
        trials.push(Job::new(one, 1).succeeds(format!("{model}_on_one_rank_is_plain_burns_to_the_bit")));
        for layout in LAYOUTS {
            // Without a sequence there is none to cut.
            if layout.sequence && !has_tokens && model != "odd_pair" {
                continue;
            }
            let ranks = layout.world_size();
            let name = layout.name;
            let placed = |dtype: &str, dropout: f64| case("placed", model, dtype, dropout).with("layout", name);
            trials.push(
                Job::new(placed("f64", 0.0), ranks).succeeds(format!("{model}_trains_as_on_one_rank_in_{name}_f64")),
            );
            if ["tp2", "tp2fsdp2sp", "fsdp2"].contains(&name) {
                let placed = placed("f32", 0.0).with("accumulates", true).with("clips", true);
                let trial = format!("{model}_accumulates_and_clips_as_on_one_rank_in_{name}_f32");
                trials.push(Job::new(placed, ranks).succeeds(trial));
            }
            if has_tokens && ["tp2dp2", "tp2sp", "fsdp4"].contains(&name) {
                let dropping = placed("f64", 0.2).with("accumulates", true);
                trials.push(Job::new(dropping, ranks).succeeds(format!("{model}_drops_as_on_one_rank_in_{name}_f64")));
            }
        }
    }
    for model in MODELS {
        let random = case("random", model, "f64", 0.0);
        trials.push(Job::new(random, 4).succeeds(format!("{model}_trains_as_on_one_rank_however_it_is_placed")));
    }
    for model in ["classifier", "odd_pair"] {
        let unplaced = case("placed", model, "f64", 0.0)
            .with("layout", "tp2")
            .with("unplaced", true);
        let trial = format!("{model}_trains_as_on_one_rank_in_tp2_with_burns_own_backward_pass");
        trials.push(Job::new(unplaced, 2).succeeds(trial));
    }
    for wrapped in wrapped::LAYOUTS {
        let layout = wrapped.name;
        let trial = |model: &str, case: Case, name: &str| {
            let job = Job::new(case.with("layout", layout), wrapped.world_size());
            job.succeeds(format!("{model}_in_distributed_data_parallel_{name}_in_{layout}"))
        };
        for model in ["gpt", "fused_gpt"] {
            let dropping = case("wrapped", model, "f64", 0.1);
            trials.push(trial(model, dropping, "trains_as_on_one_rank"));
        }
        let accumulating = case("wrapped", "convolutional", "f32", 0.0)
            .with("accumulates", true)
            .with("clips", true);
        trials.push(trial(
            "convolutional",
            accumulating,
            "accumulates_and_clips_as_on_one_rank",
        ));
    }
    let one = case("wrapped_alone", "gpt", "bf16", 0.0);
    trials.push(
        Job::new(one, 1).succeeds("gpt_in_distributed_data_parallel_on_one_rank_has_the_bits_of_plain_burn_in_bf16"),
    );
    for (layout, ranks) in [("tp2", 2), ("fsdp2", 2)] {
        let learned = case("learned", "classifier", "f64", 0.1).with("layout", layout);
        trials.push(Job::new(learned, ranks).succeeds(format!("burns_learner_trains_as_on_one_rank_in_{layout}")));
    }
    let refused = case("wrapped_fully_sharded", "gpt", "f32", 0.0);
    trials.push(Job::new(refused, 2).fails_with(
        "distributed_data_parallel_refuses_parameters_that_are_cut_over_its_replicas",
        &[
            "parameter tokens.weight is cut over the data-parallel ranks [0, 1]",
            "give context.fully_sharded()",
        ],
    ));
    let drifts = case("wrapped_drifts", "gpt", "f32", 0.0);
    trials.push(Job::new(drifts, 2).fails_with(
        "a_replica_in_distributed_data_parallel_that_differs_is_named_at_the_next_check",
        &["after step 2: parameter tokens.weight differs between rank 0 and rank 1"],
    ));
    for (model, saved, resumed) in [
        ("gpt", "dp2_sharded", "tp2sp"),
        ("convolutional", "dp2_sharded", "tp2sp"),
        ("gpt", "tp2", "fsdp2"),
        ("convolutional", "fsdp2", "dp2"),
    ] {
        let case = case("wrapped_resumed", model, "f64", 0.0)
            .with("saved", saved)
            .with("resumed", resumed);
        trials.push(Job::new(case, 2).succeeds(format!(
            "a_checkpoint_of_{model}_in_{saved}_resumes_in_{resumed}_as_on_one_rank"
        )));
    }
    for (layout, ranks) in [("fsdp2", 2), ("tp2fsdp2sp", 4)] {
        let half = case("half", "gpt", "f32", 0.0).with("layout", layout);
        trials.push(Job::new(half, ranks).succeeds(format!("gpt_in_bf16_is_near_one_rank_in_{layout}")));
    }
    for dtype in ["f64", "f32"] {
        let compared = Case::new("sharded_models", "compared").with("dtype", dtype);
        trials.push(Job::new(compared, 2).succeeds(format!("compare_finds_no_tensor_that_differs_in_{dtype}")));
    }
    let mistakes = Case::new("sharded_models", "mistakes");
    trials.push(Job::new(mistakes, 2).succeeds("compare_names_the_first_tensor_that_a_mistake_changes"));
    for (layout, ranks) in [("tp2", 2), ("fsdp2", 2), ("tp2fsdp2sp", 4)] {
        let resumed = case("resumed", "gpt", "f32", 0.0).with("layout", layout);
        trials
            .push(Job::new(resumed, ranks).succeeds(format!("a_run_that_is_resumed_in_{layout}_is_one_that_was_not")));
    }
    for (model, layout) in [
        ("gpt", "tp2"),
        ("classifier", "tp2"),
        ("gpt", "tp2sp"),
        ("recurrent", "tp2"),
    ] {
        let suggested = case("suggested", model, "f32", 0.0).with("layout", layout);
        let trial = format!("the_plan_that_is_suggested_for_{model}_in_{layout}_costs_no_more_than_one_by_hand");
        trials.push(Job::new(suggested, 2).succeeds(trial));
    }
    let failing = case("suggestion_fails", "gpt", "f32", 0.0);
    trials.push(Job::new(failing, 2).succeeds("a_step_that_fails_on_one_rank_ends_the_search_for_a_plan_on_all"));
    for (model, ranks) in [("gpt", 2), ("convolutional", 2), ("gpt", 4)] {
        let suggested = case("suggested_for_memory", model, "f32", 0.0);
        let trial = format!("on_{ranks}_ranks_{model}_is_fully_sharded_if_there_is_little_room");
        trials.push(Job::new(suggested, ranks).succeeds(trial));
    }
    let watched = case("watched", "convolutional", "f32", 0.0);
    trials.push(Job::new(watched, 2).succeeds("a_replica_that_differs_is_named"));
    let alone = case("read_alone", "gpt", "f32", 0.0);
    trials.push(Job::new(alone, 2).fails_with(
        "a_read_on_one_rank_names_both_calls",
        &[
            "called all_reduce sum of 1 f32",
            "of a sharded tensor",
            "is a collective that every rank must call",
        ],
    ));
    for model in ["classifier", "fused_gpt"] {
        for layout in ["tp2", "tp2sp"] {
            let explained = case("explained", model, "f32", 0.0).with("layout", layout);
            let trial = format!("a_step_of_{model}_in_{layout}_makes_these_collectives");
            trials.push(Job::new(explained, 2).succeeds(trial));
        }
    }
    let data = case("explained_data", "odd_pair", "f32", 0.0);
    trials.push(Job::new(data, 2).succeeds("a_data_parallel_step_communicates_its_loss_and_gradients_alone"));
    for layout in ["tp2", "fsdp2"] {
        let clipped = case("clipped", "classifier", "f64", 0.0).with("layout", layout);
        let trial = format!("gradients_are_clipped_by_the_norm_of_the_whole_model_in_{layout}");
        trials.push(Job::new(clipped, 2).succeeds(trial));
    }
    let near = case("near_plain", "fused_gpt", "f64", 0.0);
    trials.push(Job::new(near, 1).succeeds("fused_gpt_is_plain_gpt_but_for_the_polynomial_of_its_gelu"));
    trials.extend(loading::trials());
    trials.extend(mistakes::trials());
    one_in(3, trials)
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    match case.name.as_str() {
        "compared" => return compared::equal(case, world),
        "mistakes" => return compared::mistakes(world),
        "mistaken" => return mistakes::run(case, world),
        "near_plain" => return checks::near_plain(),
        "loaded" | "loaded_in_training" | "loaded_without_the_rest" => return loading::run(case, world),
        _ => {}
    }
    let model: String = case.setting("model")?;
    match model.as_str() {
        "classifier" => run_model::<Classifier>(case, world),
        "convolutional" => run_model::<ConvNet>(case, world),
        "recurrent" => run_model::<Recurrent>(case, world),
        "gpt" => run_model::<PlainGpt>(case, world),
        "fused_gpt" => run_model::<FusedGpt>(case, world),
        "odd_pair" => run_model::<OddPair>(case, world),
        other => anyhow::bail!("there is no model {other}"),
    }
}

fn run_model<M: Subject>(case: &Case, world: &World) -> anyhow::Result<()> {
    let dtype: String = case.setting("dtype")?;
    let (dtype, float) = match dtype.as_str() {
        "f64" => (DType::F64, FloatDType::F64),
        "bf16" => (DType::BF16, FloatDType::BF16),
        _ => (DType::F32, FloatDType::F32),
    };
    let device = placed_device(float)?;
    device.seed(SEED);
    let dropout: f64 = case.setting("dropout")?;
    let options = Options {
        accumulates: case.setting("accumulates").unwrap_or(false),
        clips: case.setting("clips").unwrap_or(false),
        is_half: case.name == "half",
    };
    match case.name.as_str() {
        "unplaced" => {
            let plain_device = plain_device(float)?;
            let plain = initialize(M::make(dropout, &plain_device));
            let unplaced = M::make(dropout, &device).load_record(record_of(&plain)?);
            ensure!(
                read_parameters(&unplaced) == read_parameters(&plain),
                "the records differ"
            );
            let reference = train(plain, &Passes::Serial, options, &plain_device)?;
            let run = train(unplaced, &Passes::Serial, options, &device)?;
            ensure!(
                reference.losses == run.losses,
                "{:?} and {:?}",
                reference.losses,
                run.losses
            );
            compare(dtype, &reference, &run)
        }
        "placed" => {
            let layout = Layout::of(case)?;
            let whole = initialize(M::make(dropout, &device));
            let (record, parameters) = (record_of(&whole)?, read_parameters(&whole));
            device.seed(SEED + 1);
            let reference = train(whole, &Passes::Serial, options, &device)?;

            let mesh = layout.mesh(world)?;
            let plan = layout.plan(M::tensor_plan());
            // A record that is loaded is placed as the parameters were.
            let placed = parallelize(M::make(dropout, &device), &plan, &mesh)?.load_record(record);
            let again = M::make(dropout, &device).load_record(record_of(&placed)?);
            ensure!(
                read_parameters(&again) == parameters,
                "the record of a placed model is not the whole one's"
            );
            device.seed(SEED + 1);
            let passes = if case.setting("unplaced").unwrap_or(false) {
                Passes::Unplaced(mesh)
            } else {
                Passes::OnMesh(mesh)
            };
            let run = train(placed, &passes, options, &device)?;
            compare(dtype, &reference, &run)
        }
        "half" => checks::half::<M>(case, world, options, &device),
        "random" => {
            let mesh = Layout::named("tp2dp2")?.mesh(world)?;
            let fresh = maker::<M>(dropout, &device)?;
            let reference = train(fresh(), &Passes::Serial, options, &device)?;
            for seed in 0..RANDOM_PLACEMENTS {
                let whole = fresh();
                let plan = checks::random_plan(&whole, seed);
                let placed = parallelize(whole, &plan, &mesh)?;
                let run = train(placed, &Passes::OnMesh(mesh.clone()), options, &device)?;
                compare(dtype, &reference, &run).with_context(|| format!("placed by seed {seed}:\n{plan}"))?;
            }
            Ok(())
        }
        "wrapped" | "wrapped_resumed" => {
            let fresh = maker::<M>(dropout, &device)?;
            device.seed(SEED + 1);
            let reference = train(fresh(), &Passes::Serial, options, &device)?;
            let run = if case.name == "wrapped" {
                let ranks = Ranks::new(&case.setting::<String>("layout")?, world)?;
                let mut wrapped = Wrapped::new(fresh(), options, &ranks)?;
                device.seed(SEED + 1);
                let mut run = Run::default();
                wrapped.train(0..STEPS, &mut run, &device)?;
                run
            } else {
                let ranks = |which: &str| Ranks::new(&case.setting::<String>(which)?, world);
                wrapped::resume(fresh, [&ranks("saved")?, &ranks("resumed")?], &device)?
            };
            compare(dtype, &reference, &run)
        }
        "learned" => {
            let layout = Layout::of(case)?;
            learner::learn(&layout.mesh(world)?, &layout.plan(M::tensor_plan()), &device)
        }
        "wrapped_fully_sharded" => {
            let context = ParallelConfig::new().init(world)?;
            let mesh = Mesh::of(&context)?;
            let model = parallelize(M::make(dropout, &device), &Plan::new().fully_shard(DATA), &mesh)?;
            PlacedDataParallel::new(model, &mesh, &context, DataParallelConfig::new())?;
            Ok(())
        }
        "wrapped_drifts" => wrapped::drift(initialize(M::make(dropout, &device)), world, &device),
        "wrapped_alone" => {
            let plain_device = plain_device(float)?;
            let plain = initialize(M::make(dropout, &plain_device));
            let whole = M::make(dropout, &device).load_record(record_of(&plain)?);
            wrapped::is_plain_on_one_rank([plain, whole], world, [&plain_device, &device])
        }
        "suggested" => suggested::tensor::<M>(case, world, &device),
        "suggestion_fails" => suggested::failing::<M>(world, &device),
        "suggested_for_memory" if world.world_size() == 2 => suggested::data::<M>(world, &device),
        "suggested_for_memory" => suggested::grid::<M>(world, &device),
        "explained" => checks::explained::<M>(case, world, dropout, &device),
        "explained_data" => checks::explained_data::<M>(world, &device),
        "clipped" => checks::clipped::<M>(case, world, &device),
        "resumed" => checks::resumed::<M>(case, world, &device),
        "watched" => checks::watched::<M>(world, &device),
        "read_alone" => {
            let mesh = Mesh::connect(world, &[(DATA, 2)], &GroupConfig::new())?;
            let model = parallelize(initialize(M::make(dropout, &device)), &Plan::new(), &mesh)?;
            let loss = model.loss_of(0..8, &Passes::OnMesh(mesh), &device);
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
