//! GPUs that lose work: what is asked for does not fit their memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use anyhow::ensure;
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Distribution, Tensor};
use burn_megatron::context::ParallelContext;
use burn_megatron::cuda::{self, Sharing};
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel};
use tests::program::{end, start};

use crate::devices::{LIMIT, emulate, run_on_cuda};

/// Asks this program to be one that trains, started by nothing of ours.
const TRAINS: &str = "LOST_WORK_TRAINS";
/// Megabytes with room for the workspace of cuBLASLt, and not for the pages of all that a step needs.
const TOO_LITTLE: &str = "40";
/// Elements of f32 that are larger than the emulated GPU.
const TOO_MANY: usize = 1 << 29;
const STEPS: usize = 5;

/// What every message says: what was asked for, what there is, and what can be changed.
const WORDS: [&str; 7] = [
    "out of GPU memory: asked for",
    "in use and",
    "free",
    "--micro-batch-size",
    "--recompute-granularity full",
    "--tensor-model-parallel-size",
    "--use-distributed-optimizer",
];

/// `pretrain_gpt` reports no step of which the GPU has lost something.
pub fn ends_the_run(layout: &[&str]) -> anyhow::Result<()> {
    let libraries = cuda_emulator::library_folder()?;
    let flags = [&["--device", "cuda", "--dtype", "f32", "--eval-iters", "0"], layout].concat();
    let memory = [("CUDA_EMULATOR_MEMORY_MB", TOO_LITTLE.as_ref())];
    let ended = run_on_cuda(&flags, libraries.path(), &memory)?;
    ensure!(
        !ended.stdout.contains("| loss "),
        "a step is reported:\n{}{}",
        ended.stdout,
        ended.stderr
    );
    ensure!(ended.code == Some(1), "it ends with {:?}: {}", ended.code, ended.stderr);
    for word in WORDS {
        ensure!(ended.stderr.contains(word), "{word:?} is not in {:?}", ended.stderr);
    }
    Ok(())
}

/// A program of a user's own, on one rank, gets an error in the place of the next step.
pub fn is_an_error_of_the_next_step() -> anyhow::Result<()> {
    let libraries = cuda_emulator::library_folder()?;
    let mut command = Command::new(std::env::current_exe()?);
    emulate(&mut command, libraries.path());
    let ended = end(start(command.env(TRAINS, "1"))?, LIMIT)?;
    ended.expect_code(0)?;
    let error = ended.stdout.lines().find(|line| line.starts_with("step 2: "));
    let error =
        error.ok_or_else(|| anyhow::anyhow!("the second step has no error:\n{}{}", ended.stdout, ended.stderr))?;
    for word in WORDS {
        ensure!(error.contains(word), "{word:?} is not in {error:?}");
    }
    Ok(())
}

pub fn is_asked_for() -> bool {
    std::env::var_os(TRAINS).is_some()
}

/// Makes a tensor in each step that does not fit, and that the loss depends on.
pub fn train() {
    let gpu = cuda::choose(0, Sharing::Refused).expect("the emulator has a GPU");
    let device = Device::cuda(gpu).autodiff();
    let layer = LinearConfig::new(3, 2).init(&device);
    let context = ParallelContext::single(1);
    let mut wrapped = DistributedDataParallel::new(layer, &context, DataParallelConfig::new()).expect("one rank");
    let mut optimizer = AdamWConfig::new().init();
    for step in 1..=STEPS {
        // Its kernel writes all of them, with whatever it is fused. A sum of them is 0, and no error (limits.md).
        let lost = Tensor::<1>::random([TOO_MANY], Distribution::Default, &device).narrow(0, 0, 1);
        let input = Tensor::<2>::ones([4, 3], &device);
        let outcome = wrapped.train_step(1e-3, &mut optimizer, |layer: Linear| layer.forward(input).sum() + lost);
        match outcome {
            // burn panics where it is read.
            Ok(loss) => match catch_unwind(AssertUnwindSafe(|| loss.into_scalar::<f32>())) {
                Ok(loss) => println!("step {step} has the loss {loss}"),
                Err(_) => println!("step {step} has no loss"),
            },
            Err(error) => return println!("step {step}: {error}"),
        }
    }
}
