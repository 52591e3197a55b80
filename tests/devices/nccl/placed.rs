//! A model of burn's own layers that a plan places, over NCCL, against the same on one rank, there and on the CPU.

use burn::backend::{Cube, CubeDevice, CudaDevice};
use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::context::{ParallelContext, ParallelContextConfig};
use burn_megatron::cuda::{self, Sharing};
use burn_megatron::data_parallel::{DataParallelConfig, ElementWiseOptimizer, StepPart};
use burn_megatron::launch::World;
use burn_megatron::optimizer::ShardedOptimizer;
use burn_megatron::sharded::{self, AxisRole, Mesh, PlacedDataParallel, Plan, backward, distribute, parallelize};
use burn_megatron::topology::ParallelConfig;

use crate::devices::nccl::ranks::Outcome;

const STEPS: usize = 3;
const WIDTH: usize = 6;
const TOKENS: usize = 4;

#[derive(Module, Debug)]
struct Mlp {
    norm: LayerNorm,
    inner: Linear,
    outer: Linear,
}

impl Mlp {
    /// The same numbers on every device.
    fn new(device: &Device) -> Self {
        let linear = |from: usize, to: usize| {
            let mut layer = LinearConfig::new(from, to).with_bias(false).init(device);
            let values = (0..from * to).map(|index| ((index * 7 + to) % 11) as f32 / 22.0 - 0.2);
            let values = TensorData::new(values.collect::<Vec<f32>>(), [from, to]);
            layer.weight = layer
                .weight
                .map(|_| Tensor::from_data(values, (device, DType::F32)).require_grad());
            layer
        };
        Self {
            norm: LayerNormConfig::new(WIDTH).init(device),
            inner: linear(WIDTH, 2 * WIDTH),
            outer: linear(2 * WIDTH, WIDTH),
        }
    }

    fn loss(&self, input: Tensor<3>) -> Tensor<1> {
        let hidden = Gelu::new().forward(self.inner.forward(self.norm.forward(input.clone())));
        MseLoss::new().forward(self.outer.forward(hidden), input * 0.5, Reduction::Mean)
    }
}

/// Two tensor-parallel ranks, then two data-parallel ones that hold half of every parameter.
pub fn placed(world: &World) -> Outcome {
    let one = Mesh::new([])?;
    let gpu = cuda::choose(world.local_rank(), Sharing::Refused)?;
    let device = sharded::device::<Cube>(CubeDevice::Cuda(CudaDevice::new(gpu))).autodiff();
    let expected = train(&device, &one, &Plan::new())?;
    let on_cpu = train(&sharded::device::<Flex>(FlexDevice).autodiff(), &one, &Plan::new())?;
    // Matmuls of f32 are in TF32 on the device.
    expect_close("one rank", &expected, &on_cpu, 1e-3)?;
    let tensor_plan = Plan::new().column("inner").row("outer");
    let data_plan = Plan::new().fully_shard(AxisRole::Data);
    for (layout, tensor, plan) in [("tp2", 2, tensor_plan), ("fsdp2", 1, data_plan)] {
        let context = ParallelContextConfig::new(ParallelConfig::new().with_tensor_parallel_size(tensor))
            .with_groups(GroupConfig::new().with_nccl_gpu(Some(gpu)))
            .init(world)?;
        let mesh = Mesh::of(&context)?;
        let losses = train(&device, &mesh, &plan)?;
        expect_close(layout, &losses, &expected, 1e-5)?;
        println!("losses of a placed model in {layout}: {losses:?}");
        let context = if tensor > 1 { context } else { context.fully_sharded()? };
        let losses = train_wrapped(&device, &mesh, &plan, &context)?;
        expect_close(layout, &losses, &expected, 1e-5)?;
        println!("losses in DistributedDataParallel in {layout}: {losses:?}");
    }
    Ok(())
}

fn train(device: &Device, mesh: &Mesh, plan: &Plan) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let mut model = parallelize(Mlp::new(device), plan, mesh)?;
    let mut optimizer = AdamWConfig::new().init();
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let (loss, gradients) = backward(model.loss(input(step, device, mesh)), &model)?;
        losses.push(loss.into_data().iter::<f32>().next().ok_or("a loss")?);
        model = optimizer.step(1e-2, model, gradients);
    }
    Ok(losses)
}

/// In `DistributedDataParallel`: fully sharded parameters are gathered ahead, gradients scattered during the pass.
fn train_wrapped(
    device: &Device,
    mesh: &Mesh,
    plan: &Plan,
    context: &ParallelContext,
) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let model = parallelize(Mlp::new(device), plan, mesh)?;
    let mut model = PlacedDataParallel::new(model, mesh, context, DataParallelConfig::new())?;
    let mut optimizer = ShardedOptimizer::new(model.local(), ElementWiseOptimizer::from(AdamWConfig::new().build()))?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let input = input(step, device, mesh);
        let loss = model.backward(StepPart::Last, |model: Mlp| model.loss(input))?;
        losses.push(loss.into_data().iter::<f32>().next().ok_or("a loss")?);
        let gradients = model.gradients()?;
        model.step(1e-2, &mut optimizer, gradients)?;
    }
    Ok(losses)
}

/// The same numbers in every layout.
fn input(step: usize, device: &Device, mesh: &Mesh) -> Tensor<3> {
    let values = (0..4 * TOKENS * WIDTH).map(|index| ((index * 5 + step) % 13) as f32 / 6.0 - 1.0);
    let values = TensorData::new(values.collect::<Vec<f32>>(), [4, TOKENS, WIDTH]);
    let input = Tensor::from_data(values, (device, DType::F32));
    distribute(input, mesh, AxisRole::Data, 0)
}

fn expect_close(layout: &str, losses: &[f32], expected: &[f32], tolerance: f32) -> Outcome {
    let differs = |(loss, expected): (&f32, &f32)| (loss - expected).abs() > tolerance * expected || loss.is_nan();
    if losses.len() != expected.len() || losses.iter().zip(expected).any(differs) {
        return Err(format!("parity is broken in {layout}: losses {losses:?}, expected {expected:?}").into());
    }
    Ok(())
}
