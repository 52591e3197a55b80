//! A sharded optimizer's parameters over a slow NCCL: the next forward pass begins while they are gathered, and each
//! layer waits for its own.

use std::error::Error;
use std::time::{Duration, Instant};

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module, Param};
use burn::optim::AdamConfig;
use burn::tensor::{DType, Tensor, TensorData, backend::Backend};
use burn_cuda::CudaDevice;
use burn_megatron::collectives::GroupConfig;
use burn_megatron::context::{ParallelContext, ParallelContextConfig};
use burn_megatron::cuda::{self, Sharing};
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
use burn_megatron::launch::World;
use burn_megatron::optimizer::ShardedOptimizer;
use burn_megatron::topology::ParallelConfig;

use crate::memory::SLOW;
use crate::ranks::{Cuda, Outcome};

type B = Autodiff<Cuda>;

/// Each with a bucket of its own.
const LAYERS: u32 = 6;
const COLUMNS: usize = 133;
/// Kernels are loaded in the first ones.
const STEPS: usize = 4;

/// `tanh(… tanh(input * weight_0) … * weight_n)`.
#[derive(Module, Debug)]
struct Net<B: Backend> {
    weights: Vec<Param<Tensor<B, 2>>>,
}

/// The last forward pass of some steps.
struct Pass {
    /// Of the first and of the last layer.
    outputs: [Vec<f32>; 2],
    /// When they were on the host, from the update before the pass on.
    times: [Duration; 2],
}

/// Steps of a net whose parameters are gathered during the next forward pass, and of one whose are waited for.
pub fn gather(world: &World) -> Outcome {
    let device = cuda::choose(world.local_rank(), Sharing::Refused)?;
    let context = ParallelContextConfig::new(ParallelConfig::new())
        .with_seed(7)
        .with_groups(GroupConfig::new().with_nccl_gpu(Some(device.index)))
        .init(world)?;
    let gathers = Duration::from_micros(SLOW.parse()?) * LAYERS;
    let overlapped = train(&context, &device, true)?;
    let in_turn = train(&context, &device, false)?;
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
    Ok(())
}

fn train(context: &ParallelContext, device: &CudaDevice, overlaps: bool) -> Result<Pass, Box<dyn Error>> {
    let config = DataParallelConfig::new()
        .with_shard_gradients(true)
        .with_bucket_size(Some(1));
    let mut wrapped = DistributedDataParallel::<B, _>::new(Net::new(device), context, config)?;
    let mut optimizer = ShardedOptimizer::new(&wrapped, AdamConfig::new().init())?.with_overlap_param_gather(overlaps);
    let values = (0..COLUMNS).map(|column| 0.5 + ((column * 3 + context.rank()) % 7) as f32 / 8.0);
    let input = TensorData::new(values.collect::<Vec<f32>>(), [1, COLUMNS]);
    let input = Tensor::<Cuda, 2>::from_data(input, (device, DType::F32));
    let mut begun = Instant::now();
    let mut last = None;
    for _ in 0..STEPS {
        let mut pass = None;
        wrapped.backward(StepPart::Last, |net| {
            let (output, of_pass) = net.run(Tensor::from_inner(input.clone()), begun);
            pass = Some(of_pass);
            (output.clone() * output).mean()
        })?;
        let pass = pass.ok_or("the pass was not run")?;
        // All parameters are here now.
        let (_, again) = wrapped.module().valid().run(input.clone(), begun);
        expect_close(&pass.outputs, &again.outputs)?;
        last = Some(pass);
        let gradients = wrapped.gradients()?;
        Cuda::sync(device).map_err(|error| format!("{error:?}"))?;
        begun = Instant::now();
        optimizer.step(0.1, &mut wrapped, gradients)?;
    }
    last.ok_or_else(|| "no steps".into())
}

impl Net<B> {
    fn new(device: &CudaDevice) -> Self {
        let weight = |layer| {
            let values = (0..COLUMNS).map(|column| 0.25 + ((column * 7 + layer * 3) % 11) as f32 / 8.0);
            let values = TensorData::new(values.collect::<Vec<f32>>(), [1, COLUMNS]);
            Param::from_tensor(Tensor::from_data(values, (device, DType::F32)))
        };
        Self {
            weights: (0..LAYERS as usize).map(weight).collect(),
        }
    }
}

impl<T: Backend> Net<T> {
    /// Returns the output, and what was seen of the pass: as a layer is run, its parameters are waited for.
    fn run(&self, input: Tensor<T, 2>, begun: Instant) -> (Tensor<T, 2>, Pass) {
        let read = |hidden: &Tensor<T, 2>| {
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

/// Compares outputs of the same parameters: kernels may be fused in another way.
fn expect_close(found: &[Vec<f32>; 2], expected: &[Vec<f32>; 2]) -> Outcome {
    let differs = |(found, expected): (&f32, &f32)| (found - expected).abs() > 1e-5 || found.is_nan();
    for (layer, (found, expected)) in ["first", "last"].iter().zip(found.iter().zip(expected)) {
        if found.is_empty() || found.iter().zip(expected).any(differs) {
            return Err(format!(
                "the {layer} layer has not waited for its parameters: parity is broken: {:?}…, and once they are \
                 here {:?}…",
                &found[..found.len().min(3)],
                &expected[..3]
            )
            .into());
        }
    }
    Ok(())
}
