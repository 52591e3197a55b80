//! burn's gradient clipping in every layout: by value and by the norm of each whole parameter, against plain burn in
//! one process.
//!
//! Most parameters are cut over tensor-parallel ranks, one of them in three matrices side by side and one with padding;
//! with a bucket for each, some are cut over data-parallel ranks as well.

mod nets;

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use burn::grad_clipping::GradientClipping;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer, MuonConfig, SgdConfig};
use burn::tensor::Tensor;
use burn_megatron::collectives::ReduceOp;
use burn_megatron::data_parallel::{
    DataParallelConfig, DistributedDataParallel, ElementWise, ElementWiseOptimizer, ShardingStrategy, StepPart,
    clip_each_gradient, sum_partial_gradients,
};
use burn_megatron::launch::World;
use burn_megatron::optimizer::{AdafactorConfig, ShardedOptimizer};
use burn_megatron::parameters::{Placement, list_parameters, read_host};
use libtest_mimic::Trial;

use self::nets::{CutNet, PlainNet, Tokens};
use super::comparison::{Closeness, DP2, Layout, ONE, Scene, TP2, TP2SP, layout};
use super::wrapper::nets::{MICRO_BATCHES, micro_batches_of, named, plain_optimizer};
use tests::harness::{Case, Job};

const TP2SPDP2: Layout = layout("tp2spdp2", 2, true, 2);
const STEPS: usize = 4;
const LEARNING_RATE: f64 = 0.05;

type Wrapped = DistributedDataParallel<CutNet>;
type Values = BTreeMap<String, Vec<f64>>;

pub fn trials() -> Vec<Trial> {
    let mut trials = comparisons();
    let muon = TP2.describe(Case::new("parity", "clipping").with("check", "muon"), "f64");
    let name = "burns_muon_is_refused_with_the_parameter_that_is_cut_tp2";
    trials.push(Job::new(muon, TP2.world_size()).fails_with(
        name,
        &[
            "optimizer ModuleOptimizer may need whole parameters",
            "each of 2 tensor-parallel ranks holds a part of run 0.embedding.weight",
        ],
    ));
    let adafactor = TP2.describe(Case::new("parity", "clipping").with("check", "adafactor"), "f64");
    let name = "adafactor_is_refused_by_name_without_the_sums_of_other_ranks_tp2";
    trials.push(Job::new(adafactor, TP2.world_size()).fails_with(
        name,
        &[
            "optimizer Adafactor may need whole parameters",
            "each of 2 tensor-parallel ranks holds a part of",
        ],
    ));
    trials
}

/// Every layout and type that is compared with one process.
fn comparisons() -> Vec<Trial> {
    let layouts = [ONE, DP2, TP2, TP2SP, TP2SPDP2];
    let cases = layouts
        .into_iter()
        .flat_map(|layout| ["f64", "f32"].map(|dtype| (layout, dtype)));
    let compared = |(layout, dtype): (Layout, &str)| {
        let case = layout.describe(Case::new("parity", "clipping").with("check", "parity"), dtype);
        let name = format!("burns_clipping_is_that_of_one_process_{}_{dtype}", layout.name);
        Job::new(case, layout.world_size()).succeeds(name)
    };
    cases.map(compared).collect()
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let scene = Scene::new(case, world)?;
    let check: String = case.setting("check")?;
    if check != "parity" {
        let mut wrapped = wrap(&scene, 0, None)?;
        backward(&mut wrapped, &scene, 0)?;
        let gradients = wrapped.gradients()?;
        return Ok(match check.as_str() {
            "muon" => wrapped.step_whole_parameters(LEARNING_RATE, &mut MuonConfig::new().init(), gradients),
            _ => wrapped.step(LEARNING_RATE, &mut AdafactorConfig::new().init(), gradients),
        }?);
    }
    let momentum = MomentumConfig {
        momentum: 0.9,
        dampening: 0.1,
        nesterov: true,
    };
    let sgd = ElementWiseOptimizer::from(SgdConfig::new().with_momentum(Some(momentum)).build());
    let adamw = ElementWiseOptimizer::from(AdamWConfig::new().with_weight_decay(0.1).build());
    let [norm, value] = thresholds(&scene)?;
    let mut runs = 0..;
    for clipping in [GradientClipping::Norm(norm), GradientClipping::Value(value)] {
        // Sgd's steps are as long as the gradients; AdamW hardly looks at a factor of all of them.
        compare(&scene, &sgd.clone().with_grad_clipping(clipping.clone()), &mut runs)?;
        compare(&scene, &adamw.clone().with_grad_clipping(clipping), &mut runs)?;
    }
    // What is clipped must matter.
    let clipped = sgd.clone().with_grad_clipping(GradientClipping::Norm(norm));
    let [with, without] = [clipped, sgd].map(|optimizer| train_plain(&scene, plain_optimizer(&optimizer)).1);
    let difference = |name: &String| {
        let pairs = with[name].iter().zip(&without[name]);
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    ensure!(
        with.keys().filter(|name| difference(name) > 1e-2).count() > 3,
        "clipping changes little"
    );
    println!("worst difference: {:.1e}", scene.worst());
    Ok(())
}

/// A norm that half of the parameters exceed in the first step, and a value that some elements of most do.
fn thresholds(scene: &Scene) -> anyhow::Result<[f32; 2]> {
    let net = PlainNet::new(scene);
    let gradients = named(&net, Some(&plain_loss(&net, scene, 0).backward())).gradients;
    let mut norms: Vec<f64> = gradients
        .values()
        .map(|gradient| gradient.iter().map(|g| g * g).sum::<f64>().sqrt())
        .collect();
    norms.sort_by(f64::total_cmp);
    let median = norms[norms.len() / 2];
    ensure!(norms[0] < 0.9 * median && median.is_normal(), "norms {norms:?}");
    Ok([median as f32, (0.1 * median) as f32])
}

/// Trains in all ways with an optimizer, by plain burn and the module that is cut.
fn compare<O: ElementWise>(
    scene: &Scene,
    optimizer: &ElementWiseOptimizer<O>,
    runs: &mut impl Iterator<Item = usize>,
) -> anyhow::Result<()> {
    let expected = train_plain(scene, plain_optimizer(optimizer));

    let mut own = optimizer.clone();
    let trained = train_cut(scene, runs, None, |wrapped| {
        let gradients = wrapped.gradients()?;
        Ok(wrapped.step(LEARNING_RATE, &mut own, gradients)?)
    })?;
    compare_trail(scene, &trained, &expected).context("each parameter where it is")?;

    if scene.context.data_group().size() == 1 {
        let trained = train_unwrapped(scene, runs, optimizer)?;
        compare_trail(scene, &trained, &expected).context("without the wrapper")?;
    }

    for bucket_size in [1, 200, 1_000_000] {
        let mut made = None;
        let trained = train_cut(scene, runs, Some(bucket_size), |wrapped| {
            let gradients = wrapped.gradients()?;
            if made.is_none() {
                made = Some(ShardedOptimizer::new(wrapped, optimizer.clone())?);
            }
            let sharded = made.as_mut().context("made in the first step")?;
            Ok(sharded.step(LEARNING_RATE, wrapped, gradients)?)
        })?;
        compare_trail(scene, &trained, &expected).with_context(|| format!("in shards, buckets of {bucket_size}"))?;
    }
    Ok(())
}

/// The mean loss of a step's micro-batches by plain burn.
fn plain_loss(net: &PlainNet, scene: &Scene, step: usize) -> Tensor<1> {
    let losses = (0..MICRO_BATCHES).map(|number| net.loss(&Tokens::new(scene, step * MICRO_BATCHES + number)));
    let sum = Tensor::cat(losses.collect(), 0).sum();
    sum.mul_scalar(1.0 / MICRO_BATCHES as f64)
}

/// The loss of each step, and the parameters after the last.
fn train_plain(scene: &Scene, mut optimizer: ModuleOptimizer) -> (Vec<f64>, Values) {
    let mut net = PlainNet::new(scene);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let loss = plain_loss(&net, scene, step);
        losses.extend(read_host(loss.clone()));
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(LEARNING_RATE, net, gradients);
    }
    (losses, named(&net, None).values)
}

/// Wraps this rank's part of the model; in shards if a size of buckets is given.
fn wrap(scene: &Scene, run: usize, sharded: Option<usize>) -> anyhow::Result<Wrapped> {
    let scope = scene.context.scope(format!("run {run}"));
    let config = DataParallelConfig::new()
        .with_bucket_size(Some(sharded.unwrap_or(200)))
        .with_sharding(if sharded.is_some() {
            ShardingStrategy::Optim
        } else {
            ShardingStrategy::NoShard
        });
    let net = CutNet::new(PlainNet::new(scene), &scope)?;
    Ok(DistributedDataParallel::new(net, &scene.context, config)?)
}

/// Runs this rank's micro-batches of a step; returns the mean loss over all.
fn backward(wrapped: &mut Wrapped, scene: &Scene, step: usize) -> anyhow::Result<f64> {
    let data = scene.context.data_group();
    let mine = micro_batches_of(scene, step, data.rank());
    let share = 1.0 / mine.len() as f64;
    let mut total = [0.0];
    for (round, &number) in mine.iter().enumerate() {
        let part = if round + 1 == mine.len() {
            StepPart::Last
        } else {
            StepPart::More
        };
        let tokens = Tokens::new(scene, number);
        let loss = wrapped.backward(part, |net| net.loss(&tokens).mul_scalar(share))?;
        total[0] += loss.into_data().iter::<f64>().sum::<f64>();
    }
    data.all_reduce(&mut total, ReduceOp::Mean)?;
    Ok(total[0])
}

/// This rank's part of each parameter, by path, and where it is in the whole.
type Parts = BTreeMap<String, (Vec<f64>, Placement)>;

/// The loss of each step, and the parameters after the last.
type Trained = (Vec<f64>, Parts);

fn train_cut(
    scene: &Scene,
    runs: &mut impl Iterator<Item = usize>,
    sharded: Option<usize>,
    mut update: impl FnMut(&mut Wrapped) -> anyhow::Result<()>,
) -> anyhow::Result<Trained> {
    let mut wrapped = wrap(scene, runs.next().context("runs do not end")?, sharded)?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        losses.push(backward(&mut wrapped, scene, step)?);
        update(&mut wrapped)?;
    }
    wrapped.check_replicas()?;
    Ok((losses, parts(scene, wrapped.module())?))
}

/// A loop without the wrapper.
fn train_unwrapped(
    scene: &Scene,
    runs: &mut impl Iterator<Item = usize>,
    optimizer: &ElementWiseOptimizer<impl ElementWise>,
) -> anyhow::Result<Trained> {
    let clipping = optimizer.grad_clipping().context("the optimizers clip")?;
    let mut optimizer = ModuleOptimizer::from(optimizer.optimizer().clone());
    let scope = scene
        .context
        .scope(format!("run {}", runs.next().context("runs do not end")?));
    let mut net = CutNet::new(PlainNet::new(scene), &scope)?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let numbers = step * MICRO_BATCHES..(step + 1) * MICRO_BATCHES;
        let of_micro_batches = numbers.map(|number| net.loss(&Tokens::new(scene, number)));
        let sum = Tensor::cat(of_micro_batches.collect(), 0).sum();
        let loss = sum.mul_scalar(1.0 / MICRO_BATCHES as f64);
        losses.extend(read_host(loss.clone()));
        let mut gradients = GradientsParams::from_grads(loss.backward(), &net);
        sum_partial_gradients(&mut gradients, &net, &scene.context)?;
        clip_each_gradient(&mut gradients, &net, clipping, &scene.context)?;
        net = optimizer.step(LEARNING_RATE, net, gradients);
    }
    Ok((losses, parts(scene, &net)?))
}

fn parts(scene: &Scene, net: &CutNet) -> anyhow::Result<Parts> {
    let mut values = named(net, None).values;
    let parameters = list_parameters(net).into_iter();
    parameters
        .map(|parameter| {
            let declared = scene.context.registry().declaration(parameter.id);
            let placement = declared.context("every parameter is declared")?.placement;
            let value = values.remove(&parameter.path).context("every parameter has a value")?;
            // Our norm holds burn's.
            let path = parameter.path.replace("norm.norm.", "norm.");
            Ok((path, (value, placement)))
        })
        .collect()
}

fn compare_trail(scene: &Scene, (losses, parts): &Trained, expected: &(Vec<f64>, Values)) -> anyhow::Result<()> {
    let steps = Placement::whole([STEPS]);
    scene.close("losses", losses, &expected.0, &steps)?;
    ensure!(parts.keys().eq(expected.1.keys()), "{:?}", parts.keys());
    for (name, (value, placement)) in parts {
        scene.compare(Closeness::Training, name, value, &expected.1[name], placement)?;
    }
    Ok(())
}
