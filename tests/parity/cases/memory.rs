//! What parameters, gradients and Adam's state take of a rank, counted at the allocator, against the formula.

use anyhow::ensure;
use burn::tensor::{DType, FloatDType};
use burn_megatron::collectives::{ReduceOp, shared_memory_bytes};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::data_parallel::{DataParallelConfig, ParameterOffload, ShardingStrategy};
use burn_megatron::launch::World;
use burn_megatron::optimizer::{LossScaleConfig, ParameterGroup, bytes_per_parameter, state_bytes_per_parameter};
use burn_megatron::parameters::{first_undrawn, list_parameters};
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};
use burn_megatron::training::memory::{allocated_bytes, peak_bytes, restart_peak};
use burn_megatron::training::{Trainer, TrainerConfig, TrainingConfig};
use libtest_mimic::Trial;
use models::gpt::{Gpt, GptConfig};
use models::layers::LayerRecompute;

use super::comparison::{DP2, DP4, HSDP2X2, Layout, ONE, connect, layout};
use super::offload::FilesFolder;
use super::problem::{self, Offloads, Update, Variant};
use tests::harness::{Case, Job};

/// How far a rank may be from the formula: what it holds in addition to parameters and the like is small.
const TOLERANCE: f64 = 0.05;
const SEQ_LENGTH: usize = 8;
const VOCAB_SIZE: usize = 61;
const BATCH: usize = 4;
const N_LAYERS: usize = 2;
const D_MODEL: usize = 384;
const TP2SPDP2: Layout = layout("tp2spdp2", 2, true, 2);
/// Layers of a model whose largest bucket is small against the whole.
const N_LAYERS_FOR_PEAK: usize = 14;
const STEPS: u64 = 3;
/// Elements of a bucket.
const BUCKET_SIZE: usize = 200_000;

const COUNTED: [(Layout, &str, &str); 19] = [
    (ONE, "f32", "whole"),
    (ONE, "bf16", "whole"),
    (DP2, "f32", "whole"),
    (DP2, "f32", "sharded"),
    (DP2, "bf16", "whole"),
    (DP2, "bf16", "sharded"),
    (DP4, "f32", "whole"),
    (DP4, "f32", "sharded"),
    (DP4, "bf16", "sharded"),
    (DP4, "f16", "sharded"),
    (DP2, "f32", "sharded_gradients"),
    (DP2, "bf16", "sharded_gradients"),
    (DP4, "f32", "sharded_gradients"),
    (DP4, "bf16", "sharded_gradients"),
    (DP2, "f32", "sharded_parameters"),
    (HSDP2X2, "f32", "sharded_parameters"),
    (DP2, "bf16", "sharded_parameters"),
    (DP4, "f32", "sharded_parameters"),
    (DP4, "bf16", "sharded_parameters"),
];

/// With the optimizer's state in files.
const OFFLOADED: [(Layout, &str, &str); 8] = [
    (ONE, "f32", "whole"),
    (DP2, "f32", "sharded"),
    (DP2, "bf16", "sharded"),
    (DP2, "f32", "sharded_gradients"),
    (DP2, "bf16", "sharded_gradients"),
    (DP2, "f32", "sharded_parameters"),
    (DP2, "bf16", "sharded_parameters"),
    (DP4, "bf16", "sharded_gradients"),
];
/// With the parameters in files, too.
const ALL_OFFLOADED: [(Layout, &str); 2] = [(DP2, "f32"), (DP4, "bf16")];

pub fn trials() -> Vec<Trial> {
    let offloaded = OFFLOADED.into_iter().map(|(layout, precision, update)| {
        let name = format!(
            "memory_is_without_the_state_in_files_{}_{precision}_{update}",
            layout.name
        );
        let case = layout
            .describe(Case::new("parity", "memory"), "f32")
            .with("precision", precision)
            .with("update", update)
            .with("in_files", "state");
        Job::new(case, layout.world_size()).succeeds(name)
    });
    let all_offloaded = ALL_OFFLOADED.into_iter().map(|(layout, precision)| {
        let name = format!(
            "memory_is_that_of_a_layer_with_all_in_files_{}_{precision}",
            layout.name
        );
        let case = layout
            .describe(Case::new("parity", "memory"), "f32")
            .with("precision", precision)
            .with("update", "sharded_parameters")
            .with("in_files", "all");
        Job::new(case, layout.world_size()).succeeds(name)
    });
    let trial = |(layout, precision, update): (Layout, &str, &str)| {
        let case = layout
            .describe(Case::new("parity", "memory"), "f32")
            .with("precision", precision)
            .with("update", update)
            .with("in_files", "nothing");
        let name = format!("memory_is_that_of_the_formula_{}_{precision}_{update}", layout.name);
        Job::new(case, layout.world_size()).succeeds(name)
    };
    let traffic = [(DP2, 1), (DP2, 4), (DP4, 1)].map(|(layout, micro_batches)| {
        // Which counts each byte that a rank sends.
        let case = layout
            .describe(Case::new("parity", "traffic"), "f32")
            .with("engine", "tcp");
        let name = format!(
            "stages_send_what_the_formulas_say_{}_{micro_batches}_micro_batches",
            layout.name
        );
        Job::new(case.with("micro_batches", micro_batches), layout.world_size()).succeeds(name)
    });
    let peak = DP2.describe(Case::new("parity", "peak"), "f32");
    let name = "peak_of_sharded_parameters_does_not_depend_on_the_layers";
    let peak = Job::new(peak, DP2.world_size()).succeeds(name);
    let start = [(DP2, "f64"), (DP4, "f32"), (TP2SPDP2, "f32"), (HSDP2X2, "f64")].map(|(layout, dtype)| {
        let name = format!("shards_that_are_drawn_alone_start_as_the_whole_{}_{dtype}", layout.name);
        Job::new(
            layout.describe(Case::new("parity", "start"), dtype),
            layout.world_size(),
        )
        .succeeds(name)
    });
    let counted = COUNTED.into_iter().map(trial).chain(offloaded).chain(all_offloaded);
    counted.chain(traffic).chain([peak]).chain(start).collect()
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let context = connect(case, world)?;
    let update: Update = case.setting("update")?;
    let half = match case.setting::<String>("precision")?.as_str() {
        "bf16" => Some(FloatDType::BF16),
        "f16" => Some(FloatDType::F16),
        _ => None,
    };
    let config = training(BATCH, STEPS);
    let folder = FilesFolder::of(world)?;
    let offloads = match case.setting::<String>("in_files")?.as_str() {
        "all" => folder.all(update.sharding),
        "state" => folder.state(),
        _ => Offloads::default(),
    };
    let on_disk = offloads.optimizer.fraction_on_disk();
    let has_parameters = offloads.parameters == ParameterOffload::None;
    // Of what a rank holds then, what is in files would be the most.
    let is_mostly_in_files =
        on_disk > 0.0 && update.sharding.shards_parameters() && (half.is_some() || !has_parameters);
    let n_layers = if is_mostly_in_files {
        N_LAYERS_FOR_PEAK
    } else {
        N_LAYERS
    };
    let layers = one_stage(n_layers)?;
    let options = TrainerConfig {
        data_parallel: data_parallel(update).with_offload_parameters(offloads.parameters),
        overlap_param_gather: true,
        loss_scale: (half == Some(FloatDType::F16)).then_some(LossScaleConfig::Constant { loss_scale: 65536.0 }),
        offload: offloads.optimizer,
        ..TrainerConfig::new()
    };
    warm_up(&config)?;
    let held = || allocated_bytes() + shared_memory_bytes();
    let before = held();
    // Sizes at which parameters outweigh all else that a rank holds.
    let model = GptConfig::new(n_layers, D_MODEL, 4, SEQ_LENGTH, VOCAB_SIZE);
    let context = context.with_layer_segments(update.sharding.shards_parameters());
    let model = model.init_stage(&layers, &tests::device(), &context)?;
    let model = match half {
        Some(half) => problem::in_type(model, half),
        None => model,
    };
    // Before parameters are sharded, which a list of them would gather.
    let entries = list_parameters(&model);
    let mut trainer: Trainer<Gpt> = Trainer::new(model, &config, options, &context, &tests::device())?;
    restart_peak();
    for step in 0..STEPS {
        trainer.step(&micro_batches(step, BATCH, &context))?;
    }
    let peak = peak_bytes() - before;
    if !update.sharding.shards_parameters() {
        // Parameters of the last update are on their way.
        list_parameters(trainer.model());
    }
    // What other ranks wait for is on its way on other threads.
    context.world_group().barrier()?;
    let bytes = held() - before;
    let num_parameters: usize = entries.iter().map(|entry| entry.shape.iter().product::<usize>()).sum();
    let dtype = half.map_or(DType::F32, DType::from);
    let num_shards = context.shard_group().size();
    // Shards of gradients are freed after each update.
    let gradients = if update.sharding.shards_gradients() {
        4.0 / num_shards as f64
    } else {
        0.0
    };
    let state = state_bytes_per_parameter(dtype, config.num_state_tensors(), update.sharding, num_shards);
    let all = bytes_per_parameter(dtype, config.num_state_tensors(), update.sharding, num_shards);
    let expected = all - gradients - on_disk * state;
    let counted = bytes as f64 / num_parameters as f64;
    let facts = format!(
        "{counted:.2} bytes per parameter of {num_parameters} on rank {}, {expected} expected",
        context.rank()
    );
    println!("{facts}");
    if !has_parameters {
        // The first shard, which is read ahead; the buffers of reads and writes are freed.
        let layer = (12 * D_MODEL * D_MODEL * dtype.size() / num_shards) as f64;
        let facts = format!("{bytes} bytes between steps, and a shard of a layer has {layer}");
        ensure!((bytes as f64) < 2.0 * layer, "{facts}");
    } else {
        ensure!((counted / expected - 1.0).abs() <= TOLERANCE, "{facts}");
    }
    if is_mostly_in_files {
        // A run of which what is in files alone does not fit the memory that it takes.
        let peak = peak as f64 / num_parameters as f64;
        let parameters = if has_parameters {
            0.0
        } else {
            dtype.size() as f64 / num_shards as f64
        };
        let in_files = state + parameters;
        let facts = format!("{peak:.2} bytes per parameter at most, and {in_files} in files");
        println!("{facts}");
        ensure!(peak < in_files, "{facts}");
    }
    Ok(())
}

/// What the ranks send in a step, against that of the whole on each: the same in stage 1, `(m + 1) / 2` times as much
/// in stage 2 and `3m / 2` times in stage 3, in `m` micro-batches.
pub fn run_traffic(case: &Case, world: &World) -> anyhow::Result<()> {
    let num_micro_batches: usize = case.setting("micro_batches")?;
    let m = num_micro_batches as f64;
    let sent = |sharding| {
        let context = connect(case, world)?;
        let batch = num_micro_batches * context.grid().data_parallel_size();
        let mut trainer = small_trainer(Update::overlapping(sharding), [N_LAYERS, D_MODEL / 2], batch, &context)?;
        let mut sums = [0.0];
        for step in 0..4 {
            // Of the first step nothing has been gathered before, and the order is learnt.
            if step == 1 {
                finish(&trainer, &context)?;
                sums = [-(context.bytes_communicated() as f64)];
            }
            trainer.step(&micro_batches(step, batch, &context))?;
        }
        finish(&trainer, &context)?;
        sums[0] += context.bytes_communicated() as f64;
        context.world_group().all_reduce(&mut sums, ReduceOp::Sum)?;
        Ok::<_, anyhow::Error>(sums[0])
    };
    let whole = sent(ShardingStrategy::NoShard)?;
    let of_stages = [1.0, (m + 1.0) / 2.0, 3.0 * m / 2.0];
    for (sharding, expected) in ShardingStrategy::ALL.into_iter().skip(1).zip(of_stages) {
        let ratio = sent(sharding)? / whole;
        let facts = format!("{sharding:?}: {ratio:.3} times what is sent of the whole, {expected} expected");
        println!("{facts}");
        ensure!((ratio / expected - 1.0).abs() <= TOLERANCE, "{facts}");
    }
    Ok(())
}

/// What a rank with sharded parameters needs at once above what it keeps does not depend on the number of layers: when
/// it is made, in a step, in which each layer runs again, and in an evaluation.
pub fn run_peak(case: &Case, world: &World) -> anyhow::Result<()> {
    let above = |n_layers| {
        let context = connect(case, world)?;
        let update = Update::overlapping(ShardingStrategy::OptimGradsParams);
        let highest = || {
            let peak = peak_bytes();
            context.world_group().barrier()?;
            let above = peak - allocated_bytes();
            context.world_group().barrier()?;
            restart_peak();
            Ok::<_, anyhow::Error>(above)
        };
        restart_peak();
        let mut trainer = small_trainer(update, [n_layers, D_MODEL], BATCH, &context)?;
        let start = highest()?;
        trainer.step(&micro_batches(0, BATCH, &context))?;
        highest()?;
        trainer.step(&micro_batches(1, BATCH, &context))?;
        let step = highest()?;
        trainer.evaluate(micro_batches(2, BATCH, &context))?;
        Ok::<_, anyhow::Error>([start, step, highest()?])
    };
    warm_up(&problem::training(Variant::USUAL, STEPS))?;
    let (few, many) = (above(4)?, above(8)?);
    let layer = 12 * D_MODEL * D_MODEL * size_of::<f32>();
    // Gradients, whose shards are freed after the step, are part of both.
    let gradients = 4 * layer / 2;
    for (place, (what, freed)) in [("the start", 0), ("a step", gradients), ("an evaluation", 0)]
        .into_iter()
        .enumerate()
    {
        let [few, many] = [few[place], many[place]];
        let facts = format!(
            "{what}: {few} bytes above what is kept with 4 layers, {many} with 8; one layer has {layer}, rank {}",
            world.rank()
        );
        println!("{facts}");
        // A bucket is on its way while another is in use, or is not: that is a matter of time.
        let on_its_way = layer;
        ensure!(many < few + freed + on_its_way + layer / 4, "{facts}");
    }
    Ok(())
}

/// Ranks that draw their shards alone start and train as ranks that have held the whole, to the bit, and evaluate
/// alike; so where data-parallel ranks have unequally many micro-batches to evaluate.
pub fn run_start(case: &Case, world: &World) -> anyhow::Result<()> {
    let folder = FilesFolder::of(world)?;
    let frozen: ParameterGroup = "h.1.mlp.**:frozen".parse()?;
    let losses = |sharding: ShardingStrategy, is_lazy, offload| {
        let context = connect(case, world)?
            .with_layer_segments(sharding.shards_parameters())
            .with_lazy_parameters(is_lazy);
        let is_first = context.coordinates().data == 0;
        let model = GptConfig::new(N_LAYERS, 24, 4, SEQ_LENGTH, VOCAB_SIZE).with_hidden_dropout(0.1);
        let model = model.init_stage(&one_stage(N_LAYERS)?, &tests::device(), &context)?;
        ensure!(
            first_undrawn(&model).is_some() == is_lazy,
            "parameters have values, or none, against what was asked"
        );
        let options = TrainerConfig {
            data_parallel: data_parallel(Update::overlapping(sharding)).with_offload_parameters(offload),
            ..TrainerConfig::new()
        };
        // One micro-batch for each rank, of which the sums are the same in every stage.
        let batch = context.grid().data_parallel_size();
        let config = TrainingConfig {
            param_groups: Some(vec![frozen.clone()].into()),
            ..training(batch, 10)
        };
        let mut trainer: Trainer<Gpt> = Trainer::new(model, &config, options, &context, &tests::device())?;
        let mut losses = Vec::new();
        for step in 0..3 {
            losses.push(trainer.step(&micro_batches(step, batch, &context))?.loss);
            let batches = micro_batches(step, 2 * batch, &context);
            losses.push(trainer.evaluate(batches.clone())?);
            let some = batches.into_iter().skip(usize::from(!is_first));
            losses.push(trainer.evaluate(some)?);
        }
        Ok::<_, anyhow::Error>(losses)
    };
    let has_instances = connect(case, world)?.replica_group().size() > 1;
    let first = if has_instances {
        ShardingStrategy::Optim
    } else {
        ShardingStrategy::NoShard
    };
    let whole = losses(first, false, ParameterOffload::None)?;
    for (is_lazy, offload) in [
        (false, ParameterOffload::None),
        (true, ParameterOffload::None),
        (true, folder.parameters()),
    ] {
        let facts = format!("drawn alone: {is_lazy}, {offload:?}");
        let sharded = losses(ShardingStrategy::OptimGradsParams, is_lazy, offload)?;
        // An evaluation of sharded parameters runs the functions of autodiff, which may round the last bit differently.
        let are_same = whole
            .iter()
            .zip(&sharded)
            .enumerate()
            .all(|(number, (whole, sharded))| {
                let is_trained = number % 3 == 0;
                whole == sharded || !is_trained && (whole - sharded).abs() < 4.0 * f64::EPSILON * whole
            });
        ensure!(are_same, "{whole:?}, sharded {sharded:?}, {facts}");
    }
    Ok(())
}

/// Waits until nothing that training started is on its way.
fn finish(trainer: &Trainer<Gpt>, context: &ParallelContext) -> anyhow::Result<()> {
    // Parameters of the last update.
    let _ = trainer.model();
    Ok(context.world_group().barrier()?)
}

/// Steps of micro-batches of one sample.
fn training(batch: usize, steps: u64) -> TrainingConfig {
    TrainingConfig {
        seq_length: SEQ_LENGTH,
        micro_batch_size: 1,
        global_batch_size: batch,
        train_samples: steps * batch as u64,
        ..problem::training(Variant::USUAL, steps)
    }
}

fn one_stage(n_layers: usize) -> anyhow::Result<LayerLayout> {
    Ok(LayerLayout::even(LayerSizes {
        n_layers,
        num_stages: 1,
        num_chunks: 1,
    })?)
}

fn data_parallel(update: Update) -> DataParallelConfig {
    DataParallelConfig::new()
        .with_sharding(update.sharding)
        .with_bucket_size(Some(BUCKET_SIZE))
}

/// A trainer of a small model, each layer of which runs again in the backward pass.
fn small_trainer(
    update: Update,
    [n_layers, d_model]: [usize; 2],
    batch: usize,
    context: &ParallelContext,
) -> anyhow::Result<Trainer<Gpt>> {
    let is_sharded = update.sharding.shards_parameters();
    let context = context
        .clone()
        .with_layer_segments(is_sharded)
        .with_lazy_parameters(is_sharded);
    let config = training(batch, 10);
    let layers = one_stage(n_layers)?;
    let options = TrainerConfig {
        data_parallel: data_parallel(update),
        ..TrainerConfig::new()
    };
    let model =
        GptConfig::new(n_layers, d_model, 4, SEQ_LENGTH, VOCAB_SIZE).with_layer_recompute(LayerRecompute::Uniform(1));
    let model = model.init_stage(&layers, &tests::device(), &context)?;
    Ok(Trainer::new(model, &config, options, &context, &tests::device())?)
}

/// Trains another model for a step, and drops it. Threads keep the buffers in which matmuls pack their factors, whose
/// size depends on the processor: 2 MiB where its L2 cache has that many.
fn warm_up(config: &TrainingConfig) -> anyhow::Result<()> {
    let single = ParallelContext::single(problem::SEED);
    let model = GptConfig::new(1, D_MODEL, 4, SEQ_LENGTH, VOCAB_SIZE).init(&tests::device(), &single)?;
    let mut trainer: Trainer<Gpt> = Trainer::new(vec![model], config, TrainerConfig::new(), &single, &tests::device())?;
    trainer.step(&micro_batches(0, BATCH, &single))?;
    Ok(())
}

fn micro_batches(step: u64, batch: usize, context: &ParallelContext) -> Vec<MicroBatch> {
    let per_rank = batch / context.grid().data_parallel_size();
    let first = step * batch as u64 + (context.coordinates().data * per_rank) as u64;
    let batch = |sample: u64| MicroBatch {
        micro_batch_size: 1,
        seq_length: SEQ_LENGTH,
        tokens: (0..SEQ_LENGTH as i32)
            .map(|place| (place * 7 + sample as i32) % VOCAB_SIZE as i32)
            .collect(),
        targets: (1..=SEQ_LENGTH as i32)
            .map(|place| (place * 7 + sample as i32) % VOCAB_SIZE as i32)
            .collect(),
        sample_ids: vec![sample],
        ..MicroBatch::default()
    };
    (first..first + per_rank as u64).map(batch).collect()
}
