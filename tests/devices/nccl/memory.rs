//! What memory a rank holds while its GPU is in NCCL and the host runs far ahead.

use std::time::{Duration, Instant};

use burn::tensor::{DType, Device, Tensor};
use burn_megatron::collectives::{Movement, ReduceOp, TensorCall, move_data, start};
use burn_megatron::launch::World;
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, accumulate};

use crate::devices::nccl::ranks::{Gpu, Outcome, expect_same, value};

/// How much longer each operation takes, in microseconds.
pub const SLOW: &str = "200000";
const ROUNDS: usize = 8;
/// Collectives of a round.
const CALLS: u32 = 3;
/// Columns, which nothing divides, of four rows for each rank.
const COLUMNS: usize = 9973;

/// Rounds of collectives and kernels that the host queues while the first of them runs.
pub fn slow(world: &World) -> Outcome {
    let gpu = Gpu::of(world)?;
    let rows = 4 * gpu.group.size();
    let mut bucket = Bucket::new(&gpu, rows);
    // Kernels are loaded, and pages of memory allocated.
    for _ in 0..2 {
        bucket = bucket.round(&gpu)?;
    }
    bucket.expect(&gpu, 2)?;
    let before = bytes_in_use(&gpu.device)?;
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        bucket = bucket.round(&gpu)?;
    }
    let held = bytes_in_use(&gpu.device)?.saturating_sub(before);
    let took = begun.elapsed();
    let calls = Duration::from_micros(SLOW.parse()?) * CALLS * ROUNDS as u32;
    if took > calls / 2 {
        return Err(format!("the host has waited for NCCL: {took:?}, where the calls take {calls:?}").into());
    }
    // That of no round but the last: nothing has ended yet.
    let round = (3 * rows * COLUMNS * size_of::<f32>()) as u64;
    if held > round {
        return Err(format!("{held} bytes are held after {ROUNDS} rounds, of {round} each").into());
    }
    bucket.expect(&gpu, 2 + ROUNDS)
}

/// Sums that are reduced, and to which is added then.
struct Bucket {
    sums: Tensor<1>,
    flags: Tensor<1>,
}

impl Bucket {
    fn new(gpu: &Gpu, rows: usize) -> Self {
        let device = (&gpu.device, DType::F32);
        Self {
            sums: Tensor::zeros([rows * COLUMNS], device),
            flags: Tensor::zeros([1], device),
        }
    }

    /// Gathers and scatters as a layer does, and reduces the bucket, to whose own shard it writes the sum.
    fn round(self, gpu: &Gpu) -> Result<Self, Box<dyn std::error::Error>> {
        let (group, size) = (&gpu.group, gpu.group.size());
        let [elements] = self.sums.dims();
        let shard = elements / size;
        let own = Tensor::<1>::ones([shard], (&gpu.device, DType::F32)).mul_scalar(value(group.rank(), 0));
        let gathered = move_data(own, Movement::AllGather { dimension: 0 }, group)?;
        let partial = gathered.mul_scalar(2.0);
        let scattered = move_data(partial, Movement::ReduceScatter, group)?;
        let mean = TensorCall::ReduceScatter(ReduceOp::Mean);
        let reduced = start(self.sums.clone(), mean, group).tensor()?;
        let sums = GradientSums {
            sums: self.sums,
            non_finite: self.flags,
        };
        let place = GradientPlace {
            offset: shard * group.rank(),
            parameter: 0,
            is_first: true,
        };
        let written = accumulate(sums, reduced + scattered, place)?;
        Ok(Self {
            sums: written.sums,
            flags: written.non_finite,
        })
    }

    /// Checks the sums after some rounds.
    fn expect(&self, gpu: &Gpu, rounds: usize) -> Outcome {
        let size = gpu.group.size();
        let shard = self.sums.dims()[0] / size;
        // Every rank writes to its own shard only, of which the mean over all ranks is a part, and each of them gets
        // twice what its owner gave, from each rank.
        let of_rank = |rank: usize| {
            (0..rounds).fold(0.0, |sum: f64, _| {
                sum / size as f64 + 2.0 * size as f64 * value(rank, 0)
            })
        };
        let own = gpu.group.rank();
        let expected: Vec<f64> = (0..size * shard)
            .map(|place| if place / shard == own { of_rank(own) } else { 0.0 })
            .collect();
        let found = self.sums.clone().into_data().iter::<f64>().collect::<Vec<_>>();
        expect_same("the sums", &found, &expected)
    }
}

/// The bytes of CubeCL's memory that something holds, when all that has been launched is queued.
pub fn bytes_in_use(device: &Device) -> Result<u64, &'static str> {
    let usage = device.memory_pool_usage().ok_or("CubeCL does not say it")?;
    Ok(usage.bytes_in_use)
}
