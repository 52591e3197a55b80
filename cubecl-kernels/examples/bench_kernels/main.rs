//! Times every operation on CubeCL's runtimes, forward and backward, at the sizes of a GPT: against what the device's
//! memory and matrix units can do, measured in the same run, and against PyTorch on the same device, in turn.
//!
//! ```text
//! cargo run --release -p cubecl-kernels --features cublaslt --example bench_kernels -- \
//!     --device cuda --dtype bf16 --against-pytorch python3
//! cargo run -p cubecl-kernels --features cublaslt,vulkan --example bench_kernels -- --device vulkan --dtype f32 \
//!     --small
//! ```
//!
//! [`cases`] says what is measured and how many bytes each operation must move, [`timing`] how, and [`table`] what is
//! printed.

mod cases;
mod copying;
mod cuda;
mod cuda_copy;
mod driver;
mod overlap;
#[path = "../passes/mod.rs"]
mod passes;
mod products;
mod pytorch;
mod sizes;
mod step_products;
mod table;
mod timing;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::ensure;
use burn::tensor::{DType, Device};
use clap::{Parser, ValueEnum};

use cases::{Case, Setting};
use copying::Copying;
use pytorch::PyTorch;
use sizes::Sizes;
use table::{Measured, Rates};
use timing::{Clock, Timing};

/// Time the kernels of every operation.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Where they run
    #[arg(long, value_enum, default_value_t = Runtime::Vulkan)]
    device: Runtime,
    /// The type of inputs and outputs
    #[arg(long, value_enum, default_value_t = Type::F32)]
    dtype: Type,
    /// Only these operations, by name: see the first column of the table
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    operations: Vec<String>,
    /// Only these widths of the model
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    widths: Vec<usize>,
    /// Sizes for a machine without a GPU, where figures mean nothing but that everything runs
    #[arg(long)]
    small: bool,
    /// An interpreter with PyTorch, which is measured in turn: on the CPU where ours runs on Vulkan
    #[arg(long, value_name = "PYTHON")]
    against_pytorch: Option<PathBuf>,
    /// PyTorch without its compiler: faster to start, and where the operation is several kernels no fair peer
    #[arg(long)]
    no_compile: bool,
    /// How long PyTorch may take for a case, compilation included
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    pytorch_timeout: f64,
    /// Samples of each side and case, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 9)]
    samples: usize,
    /// How long the calls of a sample take together, about
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 5.0)]
    sample_millis: f64,
    /// No case is begun after this long; what is left out is named
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<f64>,
    /// Time every kind of matrix product that CubeCL's library has instead of the operations
    #[arg(long)]
    products: bool,
    /// Time the matmuls of a GPT's step by shape instead, on CUDA: cuBLASLt's first kernel and the best of eight
    #[arg(long, conflicts_with = "products")]
    step_products: bool,
    /// Time matmuls next to a kernel that occupies multiprocessors instead, on CUDA
    #[arg(long, conflicts_with_all = ["products", "step_products"])]
    overlap: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Runtime {
    Vulkan,
    Cuda,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Type {
    F32,
    F16,
    Bf16,
}

impl Type {
    fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(
        arguments.samples > 0 && arguments.sample_millis > 0.0 && arguments.pytorch_timeout > 0.0,
        "--samples, --sample-millis and --pytorch-timeout must be above 0, got {}, {} and {}",
        arguments.samples,
        arguments.sample_millis,
        arguments.pytorch_timeout
    );
    let is_for_cuda = arguments.step_products || arguments.overlap;
    ensure!(
        arguments.device == Runtime::Cuda || !is_for_cuda,
        "--step-products and --overlap need --device cuda"
    );
    match arguments.device {
        #[cfg(feature = "vulkan")]
        Runtime::Vulkan => bench(arguments, Device::vulkan(burn::prelude::DeviceKind::DefaultDevice)),
        #[cfg(not(feature = "vulkan"))]
        Runtime::Vulkan => anyhow::bail!("--device vulkan needs a build with --features vulkan"),
        Runtime::Cuda => {
            cuda::look().map_err(anyhow::Error::msg)?;
            let (step, dtype) = (sizes::StepSizes::new(arguments.small), arguments.dtype.dtype());
            if arguments.step_products {
                return step_products::print(step, dtype);
            }
            if arguments.overlap {
                return overlap::print(step, dtype, arguments.small);
            }
            bench(arguments, Device::cuda(0))
        }
    }
}

/// Measures on a device and prints the table.
fn bench(arguments: &Arguments, device: Device) -> anyhow::Result<()> {
    let (dtype, name) = (arguments.dtype.dtype(), arguments.dtype.name());
    ensure!(
        device.supports_dtype(dtype),
        "the device {device:?} does not compute with {name}"
    );
    println!("device {device:?}, {name}, medians of {} samples", arguments.samples);
    let busy_bytes = if arguments.small { 1 << 20 } else { 1 << 29 };
    let clock = Clock::new(
        device,
        arguments.samples,
        Duration::from_secs_f64(arguments.sample_millis / 1e3),
        (arguments.device == Runtime::Cuda).then_some(busy_bytes),
    )?;
    if arguments.small {
        println!("small sizes: these times show that everything runs, and nothing about speed");
    }
    let sizes = Sizes::new(arguments.small, &arguments.widths);
    if arguments.products {
        return products::print_all(&clock, dtype, sizes.product);
    }
    let mut pytorch = match &arguments.against_pytorch {
        None => None,
        Some(python) => Some(PyTorch::start(
            python,
            pytorch::Options {
                device: if arguments.device == Runtime::Cuda {
                    "cuda"
                } else {
                    "cpu"
                },
                dtype: name,
                is_compiled: !arguments.no_compile,
                timeout: Duration::from_secs_f64(arguments.pytorch_timeout),
                samples: arguments.samples,
                sample: Duration::from_secs_f64(arguments.sample_millis / 1e3),
            },
        )?),
    };
    measure_all(arguments, &sizes, &Setting { clock, dtype }, pytorch.as_mut())?;
    pytorch.map_or(Ok(()), PyTorch::finish)
}

fn measure_all(
    arguments: &Arguments,
    sizes: &Sizes,
    setting: &Setting,
    mut pytorch: Option<&mut PyTorch>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let chosen = |case: &Case| {
        arguments.operations.is_empty() || arguments.operations.iter().any(|wanted| wanted == case.operation)
    };
    let cases: Vec<_> = cases::all(sizes, setting.dtype).into_iter().filter(chosen).collect();
    ensure!(
        !cases.is_empty(),
        "no operation is named any of {:?}",
        arguments.operations
    );
    let mut copying = Copying::new(&setting.clock);
    let matrix_rate = products::best_rate(&setting.clock, setting.dtype, sizes.product)?;
    let peer_rate = pytorch
        .as_mut()
        .map(|pytorch| pytorch.product_rate(sizes.product))
        .transpose()?;
    println!("{}", table::rates_line(sizes.product, matrix_rate, peer_rate.as_ref()));
    let peer_rate = peer_rate.and_then(Result::ok);
    let matrix_rate = matrix_rate.into_iter().chain(peer_rate).reduce(f64::max);
    println!("{}", table::header());
    let [mut failed, mut left_out] = [Vec::new(), Vec::new()];
    let mut verdicts = Vec::new();
    for case in &cases {
        if arguments
            .deadline
            .is_some_and(|seconds| start.elapsed().as_secs_f64() > seconds)
        {
            left_out.push(case.title());
            continue;
        }
        let rates = Rates {
            copied: match case.work {
                cases::Work::Bytes(bytes) => Some(copying.bytes_per_second(bytes)?),
                cases::Work::Operations { .. } => None,
            },
            matrix: matrix_rate,
            is_judged: !arguments.small,
        };
        let ours = match time(case, setting) {
            Ok(ours) => ours,
            Err(error) => {
                println!("{} failed: {error:#}", case.title());
                failed.push(case.title());
                continue;
            }
        };
        let theirs = match pytorch.as_mut().map(|pytorch| pytorch.time(case.request())).transpose() {
            Ok(theirs) => theirs,
            Err(error) => {
                println!("continuing without PyTorch: {error:#}");
                failed.push(format!("PyTorch at {}", case.title()));
                pytorch = None;
                None
            }
        };
        let measured = Measured { ours, theirs };
        println!("{}", table::line(case, &measured, &rates));
        verdicts.push(table::verdict(case, &measured, &rates));
    }
    println!("{}", copying.line());
    println!("{}", table::summary(&verdicts));
    println!("{}", table::NOTES);
    ensure!(failed.is_empty(), "failed: {}", failed.join("; "));
    ensure!(
        left_out.is_empty(),
        "out of time: not measured: {}",
        left_out.join("; ")
    );
    Ok(())
}

/// Times a case, and gives the memory of its inputs back.
fn time(case: &Case, setting: &Setting) -> anyhow::Result<Timing> {
    // CubeCL panics at what it cannot compile.
    let timing = catch_unwind(AssertUnwindSafe(|| (case.time)(setting)));
    // PyTorch may need it.
    let cleaned = setting.clock.clean();
    let timing = timing.unwrap_or_else(|_| Err(anyhow::anyhow!("it panicked")))?;
    cleaned.map(|()| timing)
}
