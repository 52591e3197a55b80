//! Operations and their gradients against the host's f64, on the CPU, and with the feature `cuda` on the emulator of
//! CUDA, for which this program starts itself again.

use burn::tensor::{DType, Device, Distribution, Tensor, TensorData};
use cubecl_kernels::adamw::{AdamWBuffers, AdamWStep, adamw, host as adamw_host};
use cubecl_kernels::swiglu::{host as swiglu_host, swiglu};
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
    let mut trials = of_device("flex", Device::flex, &[DType::F64, DType::F32, DType::F16, DType::BF16]);
    trials.push(Trial::test("swiglu_refuses_odd_columns", swiglu_refuses_odd_columns));
    trials.push(Trial::test("adamw_refuses_short_moments", adamw_refuses_short_moments));
    #[cfg(feature = "cuda")]
    trials.push(Trial::test("all_on_cuda", run_on_cuda));
    libtest_mimic::run(&arguments, trials).exit();
}

/// Returns the trials of every operation on a device.
fn of_device(name: &str, device: impl Fn() -> Device + Copy + Send + 'static, types: &[DType]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for &dtype in types {
        for (rows, columns) in SHAPES {
            let name = format!("{name}_swiglu_of_{rows}_x_{columns}_in_{dtype:?}");
            trials.push(Trial::test(name, move || {
                swiglu_matches(&device(), dtype, rows, columns)
            }));
        }
        let at_limits = format!("{name}_swiglu_at_its_limits_in_{dtype:?}");
        trials.push(Trial::test(at_limits, move || {
            swiglu_reaches_its_limits(&device(), dtype)
        }));
        for (count, copy) in [
            (1, None),
            (5003, None),
            (300, Some(DType::BF16)),
            (37, Some(DType::F32)),
        ] {
            let name = format!("{name}_adamw_of_{count}_in_{dtype:?}_with_copy_{copy:?}");
            trials.push(Trial::test(name, move || adamw_matches(&device(), dtype, count, copy)));
        }
    }
    trials
}

/// Trials of a process with the emulator; none in a build without CUDA.
#[cfg(not(feature = "cuda"))]
fn on_cuda() -> Vec<Trial> {
    Vec::new()
}

#[cfg(feature = "cuda")]
fn on_cuda() -> Vec<Trial> {
    let types = [DType::F32, DType::F16, DType::BF16];
    let mut trials = of_device("cuda", || Device::cuda(0), &types);
    for dtype in types {
        let has_kernels = move || {
            let tensor = Tensor::<1>::ones([3], (&Device::cuda(0), dtype));
            if cubecl_kernels::operation::runs_kernels(tensor) {
                Ok(())
            } else {
                Err(format!("the references run for {dtype:?}").into())
            }
        };
        trials.push(Trial::test(format!("cuda_has_kernels_for_{dtype:?}"), has_kernels));
    }
    trials
}

/// Runs this program on the emulator.
#[cfg(feature = "cuda")]
fn run_on_cuda() -> Result<(), Failed> {
    use std::io::{Read as _, Seek as _};
    use std::time::Duration;

    use wait_timeout::ChildExt as _;

    /// Longer than compiling all kernels takes on a busy machine.
    const LIMIT: Duration = Duration::from_secs(600);
    let folder = cuda_emulator::library_folder()?;
    let mut output = tempfile::tempfile()?;
    let mut child = std::process::Command::new(std::env::current_exe()?)
        .arg("--test-threads=1")
        .env(ON_CUDA, "1")
        .envs(cuda_emulator::environment(folder.path()))
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .spawn()?;
    let status = match child.wait_timeout(LIMIT)? {
        Some(status) => status,
        None => {
            child.kill()?;
            child.wait()?
        }
    };
    let mut said = String::new();
    output.rewind()?;
    output.read_to_string(&mut said)?;
    let has_run = said.contains(" passed") && !said.contains(" 0 passed");
    if status.success() && has_run {
        Ok(())
    } else {
        Err(format!("{status}\n{said}").into())
    }
}

/// Returns the largest error of a result around 1, of several roundings.
fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-14,
        DType::F32 => 2e-6,
        DType::F16 => 2e-3,
        _ => 1e-2,
    }
}

/// Returns numbers around 0 that no two seeds share.
fn draw(count: usize, seed: f64) -> Vec<f64> {
    (0..count)
        .map(|index| 3.0 * (1.7 * index as f64 + seed).sin())
        .collect()
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().convert::<f64>().try_to_vec().expect("numbers")
}

fn swiglu_matches(device: &Device, dtype: DType, rows: usize, columns: usize) -> Result<(), Failed> {
    let tensor = |shape: [usize; 2], seed| {
        let data = TensorData::new(draw(shape[0] * shape[1], seed), shape);
        Tensor::<2>::from_data(data, (&device.clone().autodiff(), dtype))
    };
    let input = tensor([rows, 2 * columns], 0.3).require_grad();
    let weight = tensor([rows, columns], 0.9);
    let output = swiglu(input.clone())?;
    let [x, g, y] = [input.clone(), weight.clone(), output.clone()].map(numbers);
    compare("the output", &y, &swiglu_host::forward(&x, columns), limit(dtype))?;
    let gradients = (output * weight).sum().backward();
    let gradient = numbers(input.grad(&gradients).ok_or("no gradient")?);
    compare(
        "the gradient",
        &gradient,
        &swiglu_host::backward(&x, &g, columns),
        limit(dtype),
    )
}

/// The limits at ±∞ and far from 0, and NaN of NaN.
fn swiglu_reaches_its_limits(device: &Device, dtype: DType) -> Result<(), Failed> {
    let gates = [f64::INFINITY, f64::NEG_INFINITY, 1000.0, -1000.0, 0.0];
    let input: Vec<f64> = gates.into_iter().chain([0.5; 5]).collect();
    let device = device.clone().autodiff();
    let tensor =
        |values: &[f64]| Tensor::<2>::from_data(TensorData::new(values.to_vec(), [1, values.len()]), (&device, dtype));
    let x = tensor(&input).require_grad();
    let output = swiglu(x.clone())?;
    let expected = [f64::INFINITY, 0.0, 500.0, 0.0, 0.0];
    compare("the output", &numbers(output.clone()), &expected, limit(dtype))?;
    let gradients = output.backward();
    let gradient = numbers(x.grad(&gradients).ok_or("no gradient")?);
    compare(
        "the gradient",
        &gradient[..5],
        &[0.5, 0.0, 0.5, 0.0, 0.25],
        limit(dtype),
    )?;
    let output = numbers(swiglu(tensor(&[f64::NAN, 1.0]))?);
    if output[0].is_nan() {
        Ok(())
    } else {
        Err(format!("of NaN it is {}", output[0]).into())
    }
}

/// Several steps by gradients of a type, with parameters in the type that it is computed in.
fn adamw_matches(device: &Device, dtype: DType, count: usize, copy: Option<DType>) -> Result<(), Failed> {
    let main = if dtype == DType::F64 { dtype } else { DType::F32 };
    let tensor =
        |values: &[f64], dtype| Tensor::<1>::from_data(TensorData::new(values.to_vec(), [count]), (device, dtype));
    let mut buffers = AdamWBuffers {
        parameter: tensor(&draw(count, 0.1), main),
        moment_1: tensor(&vec![0.0; count], main),
        moment_2: tensor(&vec![0.0; count], main),
    };
    let mut expected = adamw_host::Buffers {
        parameter: numbers(buffers.parameter.clone()),
        moment_1: vec![0.0; count],
        moment_2: vec![0.0; count],
    };
    // Held by another: not written over.
    let held = buffers.parameter.clone();
    let first = expected.parameter.clone();
    for time in 1..=4 {
        let step = AdamWStep { time, ..STEP };
        let gradient = tensor(&draw(count, time as f64), dtype);
        expected.step(&numbers(gradient.clone()), &step);
        let (updated, copied) = adamw(buffers, gradient, &step, copy)?;
        let limit = limit(main) * time as f64;
        for (what, actual, expected) in [
            ("the parameter", &updated.parameter, &expected.parameter),
            ("moment 1", &updated.moment_1, &expected.moment_1),
            ("moment 2", &updated.moment_2, &expected.moment_2),
        ] {
            compare(what, &numbers(actual.clone()), expected, limit)?;
        }
        match (copied, copy) {
            (Some(copied), Some(dtype)) => {
                let rounded = numbers(updated.parameter.clone().cast(burn::tensor::FloatDType::from(dtype)));
                compare("the copy", &numbers(copied), &rounded, 0.0)?;
            }
            (None, None) => {}
            (copied, _) => return Err(format!("a copy of {copy:?}: {copied:?}").into()),
        }
        buffers = updated;
    }
    compare("what another holds", &numbers(held), &first, 0.0)
}

const STEP: AdamWStep = AdamWStep {
    learning_rate: 0.05,
    beta_1: 0.9,
    beta_2: 0.999,
    epsilon: 1e-8,
    weight_decay: 0.1,
    gradient_scale: 0.5,
    time: 1,
};

fn compare(what: &str, actual: &[f64], expected: &[f64], limit: f64) -> Result<(), Failed> {
    if actual.len() != expected.len() {
        return Err(format!("{what} has {} numbers, expected {}", actual.len(), expected.len()).into());
    }
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let difference = (actual - expected).abs();
        let is_far = difference.is_nan() || difference > limit * expected.abs().max(1.0);
        if actual != expected && is_far {
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

fn adamw_refuses_short_moments() -> Result<(), Failed> {
    let [parameter, moment_1, moment_2, gradient] =
        [4, 4, 3, 4].map(|count| Tensor::<1>::ones([count], &Device::flex()));
    let buffers = AdamWBuffers {
        parameter,
        moment_1,
        moment_2,
    };
    match adamw(buffers, gradient, &STEP, None) {
        Err(error) if error.to_string() == "adamw: the second moment must have the shape [4], got [3]" => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
