//! What the ranks do where the gradients of weights are added to their buckets as products, by cuBLASLt.

use burn::tensor::{DType, Device, FloatDType, IntDType, Tensor, TensorData};
use burn_megatron::collectives::{GroupConfig, ProcessGroup};
use burn_megatron::context::ParallelContextConfig;
use burn_megatron::cuda::{self, Sharing};
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
use burn_megatron::launch::World;
use burn_megatron::tensor_parallel::ColumnParallelLinearConfig;
use burn_megatron::topology::ParallelConfig;

use crate::devices::nccl::ranks::{Outcome, expect_same};

/// The number of rows: sums of that many small multiples of an eighth are exact in f32 and far from it in bf16.
const ROWS: usize = 515;
const INPUTS: usize = 5;
const OUTPUTS: usize = 7;
const MICRO_BATCHES: usize = 3;

/// The gradients of a layer of bf16 over several micro-batches, exactly; and, of a step with an infinite input, which
/// parameter it met.
pub fn products(world: &World) -> Outcome {
    let gpu = cuda::choose(world.local_rank(), Sharing::Refused)?;
    cuda::enable_cublaslt(gpu)?;
    let mut device = Device::cuda(gpu).autodiff();
    device.configure((FloatDType::BF16, IntDType::I32))?;
    let groups = GroupConfig::new().with_nccl_gpu(Some(gpu));
    let config = ParallelConfig::default();
    let context = ParallelContextConfig::new(config)
        .with_seed(7)
        .with_groups(groups)
        .init(world)?;
    cuda::check_same_matmuls(context.world_group())?;
    let layer = ColumnParallelLinearConfig::new(INPUTS, OUTPUTS).init(&device, &context.scope("layer"))?;
    let mut wrapped = DistributedDataParallel::new(layer, &context, DataParallelConfig::new())?;
    let ranks = world.world_size();
    // Exact after an infinite step too: nothing of it stays.
    for is_finite in [true, false, true] {
        for micro_batch in 0..MICRO_BATCHES {
            let part = match micro_batch + 1 {
                MICRO_BATCHES => StepPart::Last,
                _ => StepPart::More,
            };
            let mut input = numbers(ROWS * INPUTS, 1 + micro_batch + 10 * world.rank());
            if !is_finite && world.rank() + 1 == ranks && micro_batch == 0 {
                input[3] = f64::INFINITY;
            }
            let input = tensor(&input, [ROWS, INPUTS], &device);
            let gradient = tensor(&numbers(ROWS * OUTPUTS, 2), [ROWS, OUTPUTS], &device);
            wrapped.backward(part, |layer| (layer.forward(input) * gradient).sum())?;
        }
        let gradients = wrapped.gradients()?;
        if is_finite {
            let weight = &gradients.entries()[0];
            let found = gradients.values(weight);
            expect_same(&weight.name, &found, &expected(ranks))?;
        }
        let met = (!is_finite && world.rank() + 1 == ranks).then_some("layer.weight");
        if gradients.first_non_finite_received() != met {
            return Err(format!("{:?} instead of {met:?}", gradients.first_non_finite_received()).into());
        }
        wrapped.update(|layer| layer)?;
    }
    Ok(())
}

/// Rank 1 multiplies with burn's own matmul, and every rank reports it.
pub fn other_products(world: &World) -> Outcome {
    let gpu = cuda::choose(world.local_rank(), Sharing::Refused)?;
    if world.rank() != 1 {
        cuda::enable_cublaslt(gpu)?;
    }
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    let group = ProcessGroup::connect(world, "all", &ranks, &GroupConfig::new())?;
    let error = cuda::check_same_matmuls(&group)
        .err()
        .ok_or("they are taken for the same")?;
    let message = error.to_string();
    if [
        "rank 0 computes matmuls with cuBLASLt 13.",
        "rank 1 with burn's own kernels",
    ]
    .iter()
    .all(|part| message.contains(part))
    {
        Ok(())
    } else {
        Err(message.into())
    }
}

/// The mean over the ranks of the sum over micro-batches.
fn expected(ranks: usize) -> Vec<f64> {
    let gradient = numbers(ROWS * OUTPUTS, 2);
    let mut sums = vec![0.0; INPUTS * OUTPUTS];
    for (rank, micro_batch) in
        (0..ranks).flat_map(|rank| (0..MICRO_BATCHES).map(move |micro_batch| (rank, micro_batch)))
    {
        let input = numbers(ROWS * INPUTS, 1 + micro_batch + 10 * rank);
        for (place, sum) in sums.iter_mut().enumerate() {
            let (i, j) = (place / OUTPUTS, place % OUTPUTS);
            let products = (0..ROWS).map(|row| input[row * INPUTS + i] * gradient[row * OUTPUTS + j]);
            *sum += products.sum::<f64>();
        }
    }
    sums.iter().map(|sum| sum / ranks as f64).collect()
}

/// Small multiples of an eighth.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    let of = |place: usize| (place * 37 + seed * 101) % 61;
    (0..count).map(|place| (of(place) as f64 - 25.0) / 8.0).collect()
}

fn tensor(values: &[f64], shape: [usize; 2], device: &Device) -> Tensor<2> {
    let data = TensorData::new(values.to_vec(), shape).convert_dtype(DType::BF16);
    Tensor::from_data(data, (device, DType::BF16))
}
