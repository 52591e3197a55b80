//! What the ranks of a pipeline do: kernels are loaded in the first step, and receives are posted ahead after it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::context::{ParallelContext, ParallelContextConfig};
use burn_megatron::cuda::{self, Sharing};
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel};
use burn_megatron::launch::World;
use burn_megatron::pipeline_parallel::schedule::{ScheduleConfig, ScheduleKind};
use burn_megatron::pipeline_parallel::{PipelineExecutor, PipelineStage, StageOutput};
use burn_megatron::topology::ParallelConfig;

use crate::devices::nccl::memory::bytes_in_use;
use crate::devices::nccl::ranks::Outcome;

const ROWS: usize = 5;
const COLUMNS: usize = 33;
const MICRO_BATCHES: usize = 5;
const STEPS: usize = 3;

/// `tanh(input * weight)`; the last stage ends in the mean of its squares.
#[derive(Module, Debug)]
struct Stage {
    weight: Param<Tensor<2>>,
    number: usize,
    is_last: bool,
}

/// What a step has come to.
#[derive(Debug, PartialEq)]
struct Step {
    losses: Vec<f32>,
    gradient: Vec<f64>,
}

/// Chooses this rank's GPU and connects a pipeline of all ranks.
fn join(world: &World) -> anyhow::Result<(Device, ParallelContext)> {
    let gpu = cuda::choose(world.local_rank(), Sharing::Refused)?;
    let layout = ParallelConfig::new().with_pipeline_parallel_size(world.world_size());
    let context = ParallelContextConfig::new(layout)
        .with_seed(7)
        .with_groups(GroupConfig::new().with_nccl_gpu(Some(gpu)))
        .init(world)?;
    Ok((Device::cuda(gpu).autodiff(), context))
}

fn schedule(num_stages: usize, num_micro_batches: usize) -> ScheduleConfig {
    ScheduleConfig {
        kind: ScheduleKind::OneForwardOneBackward,
        num_stages,
        num_chunks: 1,
        num_micro_batches,
    }
}

/// Steps on the same weights and samples: the first, whose transfers are in their places, and those whose receives are
/// posted ahead give the same bits.
pub fn pipeline(world: &World) -> Outcome {
    let stages = world.world_size();
    let (device, context) = join(world)?;
    let executor = PipelineExecutor::new(schedule(stages, MICRO_BATCHES).init()?, &context)?;
    let stage = Stage::new(world.rank(), stages, &device);
    let mut wrapped = DistributedDataParallel::new(vec![stage], &context, DataParallelConfig::new())?;
    let micro_batches: Vec<usize> = (0..MICRO_BATCHES).collect();
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        let losses = executor.train(&mut wrapped, &micro_batches, |_, losses: Tensor<1>| losses.mean())?;
        let gradients = wrapped.gradients()?;
        steps.push(Step {
            losses: losses.into_iter().map(|loss| loss.into_scalar::<f32>()).collect(),
            gradient: gradients.values(&gradients.entries()[0]),
        });
    }
    if world.rank() + 1 == stages {
        expect_losses(&steps[0].losses, stages)?;
    }
    for (number, step) in steps.iter().enumerate() {
        if *step != steps[0] {
            return Err(format!("step {number} gives {step:?}, and the first {:?}", steps[0]).into());
        }
    }
    Ok(())
}

/// A stage that takes its time if it is the last, and watches its memory if it is not.
#[derive(Module, Debug)]
struct Paced {
    stage: Stage,
}

/// The most bytes that were in use before a forward pass.
static MOST: AtomicU64 = AtomicU64::new(0);

/// A first stage that is fast does not run ahead of a slow one, and hold what it has made, where no gradients come
/// back. The first evaluation loads the kernels.
pub fn evaluation(world: &World) -> Outcome {
    const MANY: usize = 80;
    let stages = world.world_size();
    let (device, context) = join(world)?;
    let executor = PipelineExecutor::new(schedule(stages, MANY).forward_only()?, &context)?;
    let stage = Stage::new(world.rank(), stages, &device).valid();
    let chunks = vec![Paced { stage }];
    let micro_batches: Vec<usize> = (0..MANY).collect();
    let mut held = [0; 2];
    for held in &mut held {
        let before = bytes_in_use(&device)?;
        MOST.store(0, Ordering::Relaxed);
        executor.evaluate(&chunks, &micro_batches, |_, _| ())?;
        *held = MOST.load(Ordering::Relaxed).saturating_sub(before);
    }
    // Of the tensors that one stage makes: those that wait to be sent, those on their way, and what a pass takes.
    let tensors = held.map(|held| held as usize / (ROWS * COLUMNS * size_of::<f32>()));
    println!("rank {} holds {tensors:?} tensors", world.rank());
    if tensors[1] > MANY / 2 {
        return Err(format!("{tensors:?} tensors of {MANY} are held in the two evaluations").into());
    }
    Ok(())
}

impl PipelineStage<2> for Paced {
    type MicroBatch = usize;

    fn input_shape(&self, micro_batch: &usize) -> [usize; 2] {
        self.stage.input_shape(micro_batch)
    }

    fn forward(&self, input: Option<Tensor<2>>, micro_batch: &usize) -> StageOutput<2> {
        if self.stage.is_last {
            std::thread::sleep(Duration::from_millis(10));
        } else {
            let bytes = bytes_in_use(&self.stage.weight.val().device());
            MOST.fetch_max(bytes.expect("CubeCL says it"), Ordering::Relaxed);
        }
        self.stage.forward(input, micro_batch)
    }
}

impl Stage {
    fn new(number: usize, stages: usize, device: &Device) -> Self {
        let values: Vec<f32> = (0..COLUMNS).map(|column| weight(number, column) as f32).collect();
        let weight = Tensor::from_data(TensorData::new(values, [1, COLUMNS]), (device, DType::F32));
        Self {
            weight: Param::from_tensor(weight),
            number,
            is_last: number + 1 == stages,
        }
    }
}

impl PipelineStage<2> for Stage {
    type MicroBatch = usize;

    fn input_shape(&self, _: &usize) -> [usize; 2] {
        [ROWS, COLUMNS]
    }

    fn forward(&self, input: Option<Tensor<2>>, micro_batch: &usize) -> StageOutput<2> {
        let weight = self.weight.val();
        let input = input.unwrap_or_else(|| {
            let values: Vec<f32> = (0..ROWS * COLUMNS)
                .map(|place| sample(*micro_batch, place) as f32)
                .collect();
            Tensor::from_data(
                TensorData::new(values, [ROWS, COLUMNS]),
                (&weight.device(), weight.dtype()),
            )
        });
        let output = (input * weight).tanh();
        if self.is_last {
            StageOutput::Losses((output.clone() * output).mean_dim(1).flatten(0, 1))
        } else {
            StageOutput::Activation(output)
        }
    }
}

fn weight(stage: usize, column: usize) -> f64 {
    0.25 + ((column * 7 + stage * 3) % 11) as f64 / 8.0
}

fn sample(micro_batch: usize, place: usize) -> f64 {
    ((place * 5 + micro_batch * 17) % 23) as f64 / 8.0 - 1.375
}

/// Compares the losses with those of the whole net, computed here.
fn expect_losses(found: &[f32], stages: usize) -> Outcome {
    let output = |micro_batch: usize, place: usize| {
        (0..stages).fold(sample(micro_batch, place), |value, stage| {
            (value * weight(stage, place % COLUMNS)).tanh()
        })
    };
    let expected: Vec<f64> = (0..MICRO_BATCHES)
        .map(|micro_batch| {
            let squares = (0..ROWS * COLUMNS).map(|place| output(micro_batch, place).powi(2));
            squares.sum::<f64>() / (ROWS * COLUMNS) as f64
        })
        .collect();
    // f32, and few roundings.
    let is_close = |(found, expected): (&f32, &f64)| (f64::from(*found) - expected).abs() < 1e-6 * expected;
    if found.len() == expected.len() && found.iter().zip(&expected).all(is_close) {
        Ok(())
    } else {
        Err(format!("the losses are {found:?} instead of {expected:?}").into())
    }
}
