//! What a stage holds, counted at the allocator: the micro-batches that its schedule has in flight, and nothing that
//! grows from step to step.

use anyhow::ensure;
use burn::tensor::{Distribution, Tensor};
use burn_megatron::data::MicroBatch;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel};
use burn_megatron::parameters::list_parameters;
use burn_megatron::pipeline_parallel::schedule::{Pass, Schedule, ScheduleConfig, ScheduleKind};
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes, PipelineExecutor, PipelineStage, StageOutput};
use burn_megatron::training::TokenBatch;
use burn_megatron::training::memory::{allocated_bytes, peak_bytes, restart_peak};
use models::gpt::{Gpt, GptConfig};
use models::layers::LayerRecompute;

use super::nets::mean;
use super::{Check, PP2, PP2V2, PP4, Run};
use crate::parity::cases::checks::{F32, checks};
use crate::parity::cases::problem::{self, Recompute, Stages, Variant};

pub const CHECKS: &[Check] = checks! {
    a_step_leaves_no_byte_behind: &[PP2, PP2V2], F32;
    a_step_with_recomputation_leaves_no_byte_behind: &[PP2, PP2V2], F32;
    a_stage_holds_the_micro_batches_under_way: &[PP2, PP4, PP2V2], F32;
};

/// The bytes of a tensor that is sent from stage to stage.
const BOUNDARY_BYTES: usize = BATCH * SEQ * D_MODEL * size_of::<f32>();
/// The most receives between two tasks, which the executor posts before the first of them.
const RECEIVES_AHEAD: usize = 2;
/// What burn's tables of graphs hold of each parameter of a task in flight, about.
const GRAPH_BYTES: usize = 1024;
/// One node of a graph per step, of some hundred bytes, would be more in a hundred steps, and so would the smallest
/// activation. One of burn's hash tables may double now and then (17 KiB, seen once in some runs); until they are full,
/// the flight recorder's tables grow.
const FLAT_BYTES: usize = 32 * 1024;
const MICRO_BATCHES: usize = 8;
const SEQ: usize = 64;
const BATCH: usize = 4;
/// What may be held of a task in flight in addition to the inputs of recomputed blocks, in units of these: the head's
/// graph, and about a kibibyte per parameter and segment in burn's tables of graphs, until the next backward pass.
const EXTRA_INPUTS: usize = 6;
const D_MODEL: usize = 64;
const N_LAYERS: usize = 8;

fn a_step_leaves_no_byte_behind(run: &Run) -> anyhow::Result<()> {
    flat_with(run, Recompute::Nothing)
}

fn a_step_with_recomputation_leaves_no_byte_behind(run: &Run) -> anyhow::Result<()> {
    flat_with(run, Recompute::Layers(LayerRecompute::Uniform(1)))
}

fn flat_with(run: &Run, recompute: Recompute) -> anyhow::Result<()> {
    let variant = Variant {
        recompute,
        ..Variant::USUAL
    };
    let stages = Stages {
        num_chunks: run.num_chunks,
        ..Stages::default()
    };
    let (warm, steps) = (150, 260);
    let mut trainer = problem::trainer(variant, steps, &stages, &run.scene.context)?;
    let mut bytes = Vec::with_capacity(steps as usize);
    for step in 0..steps {
        trainer.step(&problem::micro_batches(step, 0, 1))?;
        // What other ranks wait for is on its way on other threads.
        run.scene.context.world_group().barrier()?;
        bytes.push(allocated_bytes());
    }
    let after = &bytes[warm..];
    let (least, most) = (after.iter().min().unwrap_or(&0), after.iter().max().unwrap_or(&0));
    let facts = format!("{least} to {most} bytes after each of the steps {warm} to {steps}");
    println!("{facts}");
    ensure!(*least > 0, "nothing is counted");
    ensure!(most - least <= FLAT_BYTES, "{facts}");
    Ok(())
}

/// The sizes are such that activations outweigh all else.
fn chunks(run: &Run, recompute: LayerRecompute) -> anyhow::Result<Vec<Gpt>> {
    let context = &run.scene.context;
    let sizes = LayerSizes {
        n_layers: N_LAYERS,
        num_stages: context.grid().pipeline_parallel_size(),
        num_chunks: run.num_chunks,
    };
    let model = GptConfig::new(N_LAYERS, D_MODEL, 4, SEQ, 64)
        .with_padded_vocab_size(Some(64))
        .with_layer_recompute(recompute);
    Ok(model.init_stage(&LayerLayout::even(sizes)?, &tests::device(), context)?)
}

fn batches() -> Vec<TokenBatch> {
    let batch = |number: usize| {
        let samples = (number * BATCH) as u64..((number + 1) * BATCH) as u64;
        let token = |place: usize| ((number * 31 + place * 7) % 64) as i32;
        let micro_batch = MicroBatch {
            micro_batch_size: BATCH,
            seq_length: SEQ,
            tokens: (0..BATCH * SEQ).map(token).collect(),
            targets: (1..=BATCH * SEQ).map(token).collect(),
            sample_ids: samples.collect(),
            ..MicroBatch::default()
        };
        TokenBatch::new(&micro_batch, 1, 0)
    };
    (0..MICRO_BATCHES).map(batch).collect()
}

fn a_stage_holds_the_micro_batches_under_way(run: &Run) -> anyhow::Result<()> {
    let context = &run.scene.context;
    let stage = context.coordinates().pipeline;
    let kinds = match run.num_chunks {
        1 => vec![ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward],
        _ => vec![ScheduleKind::Interleaved { group_size: None }],
    };
    for kind in kinds {
        let config = ScheduleConfig {
            kind,
            num_stages: context.grid().pipeline_parallel_size(),
            num_chunks: run.num_chunks,
            num_micro_batches: MICRO_BATCHES,
        };
        let schedule = config.init()?;
        let report = schedule.check(0)?.stages[stage];
        let model = chunks(run, LayerRecompute::Nothing)?;
        let per_chunk = bytes_per_chunk(&model);
        let parameters = model.iter().map(|chunk| list_parameters(chunk).len());
        let graphs = report.peak_activations * parameters.max().unwrap_or(0) * GRAPH_BYTES;
        let expected = peak_held(&schedule, stage, &per_chunk);
        let kept = peak_of(run, LayerRecompute::Nothing, &schedule)?;
        let working = working_bytes(run, config, &per_chunk)?;
        let recomputed = peak_of(run, LayerRecompute::Uniform(1), &schedule)?;
        let facts = format!(
            "{kind}, stage {stage}: {} tasks under way, of {per_chunk:?} bytes per chunk, are {expected} bytes; the \
             peak is {kept}, with recomputation {recomputed}; one task works in {working}",
            report.peak_activations
        );
        println!("{facts}");
        let smallest = per_chunk.iter().min().unwrap_or(&0);
        ensure!(expected >= report.peak_activations * smallest, "{facts}");
        // With a micro-batch too many in memory, a single task would seem to work in more than it holds.
        ensure!(working < *smallest, "{facts}");
        let most = expected + working + in_transit(run, report.peak_activations) + graphs;
        ensure!(expected <= kept && kept <= most, "{facts}; {graphs} of graphs");
        // A task under way holds the inputs of its blocks only; one block is run at a time.
        let blocks = N_LAYERS / (config.num_stages * config.num_chunks);
        let one_block = per_chunk.iter().max().unwrap_or(&0) / blocks;
        let inputs = report.peak_activations * (blocks + EXTRA_INPUTS) * BATCH * SEQ * D_MODEL * size_of::<f32>();
        ensure!(
            recomputed <= inputs + 2 * one_block + working,
            "{facts}; {inputs} of inputs, {one_block} of a block"
        );
        ensure!(recomputed < kept, "{facts}");
    }
    Ok(())
}

/// The most bytes of boundary tensors that have arrived early or are still being sent. Sends do not block: where a
/// neighbour is late, activations and gradients of all the tasks in flight may wait for it.
fn in_transit(run: &Run, tasks: usize) -> usize {
    let context = &run.scene.context;
    let (stage, last) = (
        context.coordinates().pipeline,
        context.grid().pipeline_parallel_size() - 1,
    );
    let directions = match run.num_chunks {
        1 => usize::from(stage > 0) + usize::from(stage < last),
        _ => 2,
    };
    (RECEIVES_AHEAD + directions * tasks) * BOUNDARY_BYTES
}

/// What one micro-batch holds of each chunk between forward and backward, measured without a pipeline.
fn bytes_per_chunk(chunks: &[Gpt]) -> Vec<usize> {
    let batch = &batches()[0];
    let held = |chunk: &Gpt| {
        let shape = chunk.input_shape(batch);
        let before = allocated_bytes();
        let input = Tensor::<2>::random(shape, Distribution::Default, &tests::device()).require_grad();
        let size = shape.iter().product::<usize>() * size_of::<f32>();
        let output = chunk.forward(Some(input), batch);
        let after = allocated_bytes() - before;
        match output {
            // Sent to the next stage, so not counted.
            StageOutput::Activation(_) => after - size,
            StageOutput::Losses(_) => after,
        }
    };
    // In the first forward pass parameters get their values.
    chunks.iter().map(held).for_each(drop);
    chunks.iter().map(held).collect()
}

/// The bytes that running a task takes in addition to what the tasks in flight hold: a backward step's own gradients
/// and the buffers in which matmuls pack their factors, whose size depends on the processor. Measured with as few
/// micro-batches as the schedule allows.
fn working_bytes(run: &Run, config: ScheduleConfig, per_chunk: &[usize]) -> anyhow::Result<usize> {
    let num_micro_batches = match config.num_chunks {
        1 => 1,
        _ => config.num_stages,
    };
    let schedule = ScheduleConfig {
        num_micro_batches,
        ..config
    }
    .init()?;
    let stage = run.scene.context.coordinates().pipeline;
    let peak = peak_of(run, LayerRecompute::Nothing, &schedule)?;
    Ok(peak.saturating_sub(peak_held(&schedule, stage, per_chunk)))
}

/// The most bytes that the tasks under way hold at one time.
fn peak_held(schedule: &Schedule, stage: usize, per_chunk: &[usize]) -> usize {
    let (mut held, mut peak) = (0, 0);
    for (pass, task) in schedule.stages[stage].iter().filter_map(|action| action.compute()) {
        match pass {
            Pass::Forward => held += per_chunk[task.chunk],
            Pass::Backward => held -= per_chunk[task.chunk],
        }
        peak = peak.max(held);
    }
    peak
}

/// The most bytes that a step allocates.
fn peak_of(run: &Run, recompute: LayerRecompute, schedule: &Schedule) -> anyhow::Result<usize> {
    let config = DataParallelConfig::new().with_bucket_size(Some(100_000));
    let mut wrapped = DistributedDataParallel::new(chunks(run, recompute)?, &run.scene.context, config)?;
    let executor = PipelineExecutor::new(schedule.clone(), &run.scene.context)?;
    let batches = &batches()[..schedule.num_micro_batches];
    let mut peak = 0;
    // In the first step threads start and tables grow.
    for _ in 0..2 {
        let before = allocated_bytes();
        restart_peak();
        executor.train(&mut wrapped, batches, |_, losses| mean(losses))?;
        peak = peak_bytes() - before;
        drop(wrapped.gradients()?);
    }
    Ok(peak)
}
