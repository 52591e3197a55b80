//! Optimizers other than AdamW against PyTorch: every loss and the final parameters of 20 steps, by Adam with weight
//! decay in the gradient, gradient descent, Lion, Muon and Adafactor.
//!
//! `fixtures/optimizers.py` makes the files. The model, its start and its batches are those of `fixtures`.

use anyhow::{Context as _, ensure};
use burn_megatron::data_parallel::{DataParallelConfig, ShardingStrategy};
use burn_megatron::launch::World;
use burn_megatron::optimizer::{OptimizerChoice, OptimizerKind, ParameterGroup};
use burn_megatron::parity::{Judge, Tolerance};
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};
use burn_megatron::training::{LearningRateConfig, Trainer, TrainerConfig, TrainingConfig};
use libtest_mimic::Trial;
use models::ModelConfig;

use super::fixtures::{Fixture, conclude, is_noise, judged_steps, load, model_config, parameters, training_config};
use crate::parity::cases::comparison::{DP2, Layout, ONE, PP2, Scene, TP2, TP2SP, connect};
use crate::parity::cases::problem;
use tests::harness::{Case, Job};

/// Lion takes signs, which rounding in f32 flips.
const RUNS: [(&str, &[&str]); 5] = [
    ("adam_l2", &["f64", "f32"]),
    ("sgd", &["f64", "f32"]),
    ("lion", &["f64"]),
    ("muon", &["f64", "f32"]),
    ("adafactor", &["f64", "f32"]),
];

/// Each layout, and whether its data-parallel ranks each update a shard.
const LAYOUTS: [(Layout, bool); 4] = [(ONE, false), (TP2, false), (TP2SP, false), (DP2, true)];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (optimizer, dtypes) in RUNS {
        for dtype in dtypes {
            for (layout, is_sharded) in LAYOUTS {
                let case = Case::new("parity", "optimizer")
                    .with("optimizer", optimizer)
                    .with("sharded", is_sharded);
                let name = format!("{}_matches_pytorch_{dtype}_{optimizer}", layout.name);
                trials.push(Job::new(layout.describe(case, dtype), layout.world_size()).succeeds(name));
            }
        }
    }
    let case = PP2.describe(Case::new("parity", "unmatched_group"), "f32");
    let name = "a_group_that_names_nothing_is_refused_on_every_stage_with_the_nearest_names";
    trials.push(Job::new(case, PP2.world_size()).succeeds(name.to_owned()));
    trials
}

/// Fails unless a misspelt group is refused, with names of the last stage on the first as well.
pub fn unmatched_group(case: &Case, world: &World) -> anyhow::Result<()> {
    let context = connect(case, world)?;
    let variant = problem::Variant::USUAL;
    let group: ParameterGroup = "h.3.attn.c_attn.wieght:lr_mult=2".parse()?;
    let config = TrainingConfig {
        param_groups: Some(vec![group].into()),
        ..problem::training(variant, 1)
    };
    let error = problem::trainer_of(variant, &config, &problem::Stages::one_chunk(), &context).err();
    let error = error.context("the group was taken")?.to_string();
    ensure!(
        error.starts_with("the pattern \"h.3.attn.c_attn.wieght\" names no parameter of the model; the nearest are")
            && error.contains("h.3.attn.c_attn.weight"),
        "{error}"
    );
    Ok(())
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let scene = Scene::new(case, world)?;
    let (name, dtype): (String, String) = (case.setting("optimizer")?, case.setting("dtype")?);
    let weights = Fixture::read("gpt_weights")?;
    let batches = Fixture::read("gpt_batches")?;
    let start = Fixture::read(&format!("gpt_tied_{dtype}"))?;
    let truth = Fixture::read(&format!("optimizers_{dtype}"))?;
    let model_config = model_config(&truth.meta);
    let layers = LayerLayout::even(LayerSizes {
        n_layers: model_config.n_layers,
        num_stages: 1,
        num_chunks: 1,
    })?;
    let model = load(
        model_config.init_stage(&layers, &tests::device(), &scene.context)?,
        &weights,
        &scene,
    )?;
    let rate = truth.meta["learning_rates"][&name].as_f64();
    let kind: OptimizerKind = name.parse().map_err(anyhow::Error::msg)?;
    let mut choice = OptimizerChoice::new(kind);
    choice.adafactor.eps1 = truth.meta["adafactor_eps1"].as_f64();
    let config = TrainingConfig {
        learning_rate: LearningRateConfig::constant(rate.expect("each run has one")),
        optimizer: Some(choice),
        ..training_config(&truth.meta, "clipped")
    };
    let options = TrainerConfig {
        data_parallel: DataParallelConfig::new().with_bucket_size(Some(1000)).with_sharding(
            if case.setting("sharded")? {
                ShardingStrategy::Optim
            } else {
                ShardingStrategy::NoShard
            },
        ),
        ..TrainerConfig::new()
    };
    let mut trainer = Trainer::new(model, &config, options, &scene.context, &tests::device())?;

    let mut judge = Judge::new(Tolerance::of(scene.dtype), model_config.num_parameters(), false);
    let losses = truth.values(&format!("{name}.loss"))?;
    let norms = truth.values(&format!("{name}.gradient_norm"))?;
    judged_steps(
        &mut trainer,
        &batches,
        &scene,
        &mut judge,
        [&losses, &norms],
        |gradients, judge| {
            // Which parameters have a gradient that is more than rounding.
            start.compare("gradient.", gradients, &scene.context, |part| {
                if !(part.name.ends_with("attn.c_attn.bias[1]") || is_noise(&part, scene.dtype)) {
                    judge.gradient(1, &part, norms[0]);
                }
            })
        },
    )?;
    let parameters = parameters(trainer.model(), &scene.context)?;
    truth.compare(&format!("{name}.final."), &parameters, &scene.context, |part| {
        judge.parameter(losses.len() as u64, &part)
    })?;
    conclude(&judge, &scene)
}
