//! A sharded optimizer's parameters over a slow NCCL: the next forward pass begins while they are gathered, and each
//! layer waits for its own; sharded gradients and parameters with the same bits.

use std::error::Error;
use std::time::{Duration, Instant};

use burn::module::{Module, Param};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::context::{ParallelContext, ParallelContextConfig};
use burn_megatron::cuda::{self, Sharing};
use burn_megatron::data_parallel::{
    DataParallelConfig, DistributedDataParallel, ElementWiseOptimizer, ShardingStrategy, StepPart,
};
use burn_megatron::launch::World;
use burn_megatron::optimizer::ShardedOptimizer;
use burn_megatron::topology::ParallelConfig;
use tests::takes_all;

use crate::devices::nccl::memory::SLOW;
use crate::devices::nccl::ranks::Outcome;

/// Each with a bucket of its own.
const LAYERS: u32 = 6;
const COLUMNS: usize = 133;
/// Kernels are loaded in the first ones.
const STEPS: usize = 4;
const LEARNING_RATE: f64 = 0.1;

/// `tanh(… tanh(input * weight_0) … * weight_n)`.
#[derive(Module, Debug)]
struct Net {
    weights: Vec<Param<Tensor<2>>>,
}

/// Of the first and of the last layer.
type Outputs = [Vec<f32>; 2];

struct Pass {
    outputs: Outputs,
    /// When they were on the host, from the update before the pass on.
    times: [Duration; 2],
}

/// Steps of a net whose parameters are gathered during the next forward pass, and of one whose are waited for; each
/// with the outputs that one process has on the host.
pub fn gather(world: &World) -> Outcome {
    let gpu = cuda::choose(world.local_rank(), Sharing::Refused)?;
    let device = Device::cuda(gpu).autodiff();
    let context = ParallelContextConfig::new(ParallelConfig::new())
        .with_seed(7)
        .with_groups(GroupConfig::new().with_nccl_gpu(Some(gpu)))
        .init(world)?;
    let gathers = Duration::from_micros(SLOW.parse()?) * LAYERS;
    let overlapped = train(&context, &device, true, ShardingStrategy::Optim)?;
    let in_turn = train(&context, &device, false, ShardingStrategy::Optim)?;
    let ([first, last], [waited, _]) = (overlapped.times, in_turn.times);
    println!("outputs of the first and the last layer after {first:?} and {last:?}; {waited:?} in turn");
    if last < gathers.mul_f64(0.9) || waited < gathers.mul_f64(0.9) {
        return Err(format!("outputs after {last:?} and {waited:?} are before the gathers, {gathers:?}").into());
    }
    if first > gathers / 2 {
        return Err(format!("the first output is here after {first:?}: it waits for all gathers, {gathers:?}").into());
    }
    if overlapped.outputs != in_turn.outputs {
        return Err("parameters that were overlapped with the pass give other bits than those waited for".into());
    }
    let others = [ShardingStrategy::OptimGrads, ShardingStrategy::OptimGradsParams];
    for sharding in others.into_iter().filter(|_| takes_all()) {
        if train(&context, &device, true, sharding)?.outputs != in_turn.outputs {
            return Err(format!("{sharding:?} gives other bits").into());
        }
    }
    Ok(())
}

/// Returns the last forward pass.
fn train(
    context: &ParallelContext,
    device: &Device,
    overlaps: bool,
    sharding: ShardingStrategy,
) -> Result<Pass, Box<dyn Error>> {
    let config = DataParallelConfig::new()
        .with_sharding(sharding)
        .with_overlap_grad_reduce(overlaps)
        .with_overlap_param_gather(overlaps)
        .with_bucket_size(Some(1));
    let mut wrapped = DistributedDataParallel::new(Net::new(device), context, config)?;
    let adam = ElementWiseOptimizer::from(AdamConfig::new().build());
    let mut optimizer = ShardedOptimizer::new(&wrapped, adam)?.with_overlap_param_gather(overlaps);
    let input = Tensor::<2>::from_data(sample(context.rank()), (device, DType::F32));
    let mut begun = Instant::now();
    let mut last = None;
    for expected in train_on_host(context) {
        let mut pass = None;
        wrapped.backward(StepPart::Last, |net: Net| {
            let (output, of_pass) = net.run(input.clone(), begun);
            pass = Some(of_pass);
            (output.clone() * output).mean()
        })?;
        let pass = pass.ok_or("the pass was not run")?;
        expect_close(&pass.outputs, &expected)?;
        last = Some(pass);
        let gradients = wrapped.gradients()?;
        device.sync()?;
        begun = Instant::now();
        optimizer.step(LEARNING_RATE, &mut wrapped, gradients)?;
    }
    last.ok_or_else(|| "no steps".into())
}

/// Returns what this rank's outputs are in each step: the samples of all ranks in one process, with burn's optimizer.
fn train_on_host(context: &ParallelContext) -> Vec<Outputs> {
    let device = tests::device();
    let samples = (0..context.data_group().size()).map(|rank| Tensor::<2>::from_data(sample(rank), &device));
    let input = Tensor::cat(samples.collect(), 0);
    let mut net = Net::new(&device);
    let mut optimizer = AdamConfig::new().init();
    let of_rank = |values: &Vec<f32>| values[context.rank() * COLUMNS..][..COLUMNS].to_vec();
    let steps = (0..STEPS).map(|_| {
        let (output, pass) = net.run(input.clone(), Instant::now());
        let gradients = (output.clone() * output).mean().backward();
        let gradients = GradientsParams::from_grads(gradients, &net);
        net = optimizer.step(LEARNING_RATE, net.clone(), gradients);
        pass.outputs.each_ref().map(of_rank)
    });
    steps.collect()
}

/// A rank's sample, `[1, COLUMNS]`.
fn sample(rank: usize) -> TensorData {
    let values = (0..COLUMNS).map(|column| 0.5 + ((column * 3 + rank) % 7) as f32 / 8.0);
    TensorData::new(values.collect::<Vec<f32>>(), [1, COLUMNS])
}

impl Net {
    fn new(device: &Device) -> Self {
        let weight = |layer| {
            let values = (0..COLUMNS).map(|column| 0.25 + ((column * 7 + layer * 3) % 11) as f32 / 8.0);
            let values = TensorData::new(values.collect::<Vec<f32>>(), [1, COLUMNS]);
            Param::from_tensor(Tensor::from_data(values, (device, DType::F32)))
        };
        Self {
            weights: (0..LAYERS as usize).map(weight).collect(),
        }
    }

    /// Returns the output, and what was seen of the pass: as a layer is run, its parameters are waited for.
    fn run(&self, input: Tensor<2>, begun: Instant) -> (Tensor<2>, Pass) {
        let read = |hidden: &Tensor<2>| {
            let values = hidden.to_data().iter::<f32>().collect();
            (values, begun.elapsed())
        };
        let [first, last]: [usize; 2] = [0, self.weights.len() - 1];
        let (mut hidden, mut outputs, mut times) = (input, [Vec::new(), Vec::new()], [Duration::ZERO; 2]);
        for (layer, weight) in self.weights.iter().enumerate() {
            hidden = (hidden * weight.val()).tanh();
            if layer == first {
                (outputs[0], times[0]) = read(&hidden);
            }
            if layer == last {
                (outputs[1], times[1]) = read(&hidden);
            }
        }
        (hidden, Pass { outputs, times })
    }
}

/// Compares outputs with those on the host. An element's gradient is a sum of two numbers of one sign, so that Adam
/// rounds as they do; a step without its update differs by 1e-2 and more.
fn expect_close(found: &Outputs, expected: &Outputs) -> Outcome {
    let differs = |(found, expected): (&f32, &f32)| (found - expected).abs() > 1e-5 || found.is_nan();
    for (layer, (found, expected)) in ["first", "last"].iter().zip(found.iter().zip(expected)) {
        if found.len() != expected.len() || found.iter().zip(expected).any(differs) {
            return Err(format!(
                "the {layer} layer has not waited for its parameters: parity is broken: {:?}…, on the host {:?}…",
                &found[..found.len().min(3)],
                &expected[..3]
            )
            .into());
        }
    }
    Ok(())
}
