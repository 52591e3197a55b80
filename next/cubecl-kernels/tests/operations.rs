//! Operations and their gradients against the host's f64, on the CPU, and with the feature `cuda` on the emulator of
//! CUDA, for which this program starts itself again.

use burn::tensor::{DType, Device, Distribution, Tensor, TensorData};
use cubecl_kernels::swiglu::{host, swiglu};
use libtest_mimic::{Arguments, Failed, Trial};

/// Set for a process that finds the emulator in the place of NVIDIA's libraries.
const ON_CUDA: &str = "KERNEL_TESTS_ON_CUDA";

/// Rows and columns of outputs.
const SHAPES: [(usize, usize); 4] = [(1, 1), (3, 5), (37, 96), (0, 4)];

fn main() {
    let arguments = Arguments::from_args();
    if std::env::var_os(ON_CUDA).is_some() {
        libtest_mimic::run(&arguments, on_cuda()).exit();
    }
    let mut trials = Vec::new();
    for dtype in [DType::F64, DType::F32, DType::BF16] {
        for (rows, columns) in SHAPES {
            let name = format!("flex_swiglu_of_{rows}_x_{columns}_in_{dtype:?}");
            trials.push(Trial::test(name, move || {
                swiglu_matches(&Device::flex(), dtype, rows, columns)
            }));
        }
    }
    trials.push(Trial::test("swiglu_refuses_odd_columns", swiglu_refuses_odd_columns));
    #[cfg(feature = "cuda")]
    trials.push(Trial::test("all_on_cuda", run_on_cuda));
    libtest_mimic::run(&arguments, trials).exit();
}

/// Trials of a process with the emulator; none in a build without CUDA.
#[cfg(not(feature = "cuda"))]
fn on_cuda() -> Vec<Trial> {
    Vec::new()
}

#[cfg(feature = "cuda")]
fn on_cuda() -> Vec<Trial> {
    let mut trials = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        for (rows, columns) in SHAPES {
            let name = format!("cuda_swiglu_of_{rows}_x_{columns}_in_{dtype:?}");
            trials.push(Trial::test(name, move || {
                swiglu_matches(&Device::cuda(0), dtype, rows, columns)
            }));
        }
    }
    trials
}

/// Runs this program on the emulator.
#[cfg(feature = "cuda")]
fn run_on_cuda() -> Result<(), Failed> {
    let folder = cuda_emulator::library_folder()?;
    let ended = std::process::Command::new(std::env::current_exe()?)
        .arg("--test-threads=1")
        .env(ON_CUDA, "1")
        .envs(cuda_emulator::environment(folder.path()))
        .output()?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let has_run = said.contains(" passed") && !said.contains(" 0 passed");
    if ended.status.success() && has_run {
        return Ok(());
    }
    Err(format!("{said}\n{}", String::from_utf8_lossy(&ended.stderr)).into())
}

fn swiglu_matches(device: &Device, dtype: DType, rows: usize, columns: usize) -> Result<(), Failed> {
    let draw = |shape: [usize; 2], seed: f64| {
        let count = shape[0] * shape[1];
        let values: Vec<f64> = (0..count)
            .map(|index| 3.0 * (1.7 * index as f64 + seed).sin())
            .collect();
        Tensor::<2>::from_data(TensorData::new(values, shape), (&device.clone().autodiff(), dtype))
    };
    let input = draw([rows, 2 * columns], 0.3).require_grad();
    let weight = draw([rows, columns], 0.9);
    let output = swiglu(input.clone())?;
    let numbers = |tensor: Tensor<2>| tensor.into_data().convert::<f64>().try_to_vec::<f64>();
    let [x, g, y] = [input.clone(), weight.clone(), output.clone()].map(|tensor| numbers(tensor).expect("numbers"));
    let limit = match dtype {
        DType::F64 => 1e-14,
        DType::F32 => 1e-6,
        _ => 1e-2,
    };
    compare("the output", &y, &host::forward(&x, columns), limit)?;
    let gradients = (output * weight).sum().backward();
    let gradient = numbers(input.grad(&gradients).ok_or("no gradient")?).expect("numbers");
    compare("the gradient", &gradient, &host::backward(&x, &g, columns), limit)
}

fn compare(what: &str, actual: &[f64], expected: &[f64], limit: f64) -> Result<(), Failed> {
    if actual.len() != expected.len() {
        return Err(format!("{what} has {} numbers, expected {}", actual.len(), expected.len()).into());
    }
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let difference = (actual - expected).abs();
        if difference.is_nan() || difference > limit * expected.abs().max(1.0) {
            return Err(format!("{what} at {index} is {actual}, expected {expected}").into());
        }
    }
    Ok(())
}

fn swiglu_refuses_odd_columns() -> Result<(), Failed> {
    let input = Tensor::<2>::random([2, 3], Distribution::Default, &Device::flex());
    match swiglu(input) {
        Err(error) if error.to_string() == "swiglu: the input's columns must be even, got 3" => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
