//! Products by cuBLASLt, on an emulated GPU: against those of the CPU, in the order of their streams, and in place.
//!
//! This program starts itself again with the emulator of CUDA, whose streams take their time.

#[path = "operations/support/emulator.rs"]
mod emulator;

use std::process::ExitCode;

use anyhow::{Context as _, Error, ensure};
use burn::tensor::{DType, Device, Tensor, TensorData};
use cubecl::cuda::CudaDevice;
use cubecl_kernels::accumulate::GradientPlace;
use cubecl_kernels::cublaslt::measured::{Choice, Product, Products};
use cubecl_kernels::cublaslt::{enable, enabled};
use cubecl_kernels::linear::blocks::{BlockProduct, RowBlocks, affine_blocks};
use cubecl_kernels::linear::{
    LinearInputs, WeightOrder, add_product, affine, linear, linear_transposed, multiplies_in_library,
};
use cudarc::driver::{result, sys::CUstream};
use half::bf16;
use libtest_mimic::{Arguments, Trial};

/// Microseconds that an operation of the emulator waits at most: far more than one takes, so that those of several
/// streams come in any order.
const JITTER: &str = "300";
/// While it is set, products of the emulator fail.
const FAILS: &str = "CUDA_EMULATOR_CUBLASLT_FAILS";
/// Bytes that the emulator wants operands to be aligned to.
const ALIGNMENT: &str = "CUDA_EMULATOR_CUBLASLT_ALIGNMENT";

fn main() -> ExitCode {
    // SAFETY: there is no other thread yet.
    unsafe { std::env::set_var("CUDA_EMULATOR_JITTER_US", JITTER) };
    if let Some(code) = emulator::run_again() {
        return code.into();
    }
    let trial = |name: &str, claim: fn() -> anyhow::Result<()>| {
        Trial::test(name, move || claim().map_err(|error| format!("{error:#}").into()))
    };
    let trials = vec![
        trial("layers_match_the_cpu", layers_match),
        trial("products_are_rounded_once", rounded_once),
        trial("products_are_added_to_sums", added_to_sums),
        trial("products_are_added_in_place", added_in_place),
        trial("blocks_come_to_their_places", blocks_match),
        trial("threads_share_what_products_read_and_write", threads_share),
        trial("what_the_library_has_no_kernel_for_is_multiplied", without_kernel),
        trial("reading_a_product_that_failed_says_why", failing),
        trial("products_are_those_that_layers_run_when_they_are_measured", measured),
    ];
    // One after another: some set variables of the emulator.
    let arguments = Arguments {
        test_threads: Some(1),
        ..Arguments::from_args()
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Returns the device, on which products are the library's.
fn device() -> anyhow::Result<Device> {
    let version = enable(&CudaDevice::default())?;
    let device = Device::cuda(0);
    ensure!(enabled() == Some(version), "it is not enabled");
    ensure!(
        multiplies_in_library(&device) && multiplies_in_library(&device.clone().autodiff()),
        "layers do not know that it is enabled"
    );
    ensure!(!multiplies_in_library(&Device::flex()), "the CPU has no such library");
    Ok(device)
}

/// Runs with a variable of the emulator set.
fn with_variable<T>(name: &str, value: &str, run: impl FnOnce() -> T) -> T {
    // SAFETY: trials run one after another, and no other thread than those of the emulator reads the environment.
    unsafe { std::env::set_var(name, value) };
    let result = run();
    // SAFETY: as above.
    unsafe { std::env::remove_var(name) };
    result
}

/// Numbers of bf16 around 0, whose products and sums are exact in f32.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let of = |place: usize| ((place * 29 + seed) % 47) as f32 - 20.0;
    (0..count).map(|place| of(place) / 8.0).collect()
}

fn tensor<const D: usize>(device: &Device, dtype: DType, values: &[f32], shape: [usize; D]) -> Tensor<D> {
    let data = TensorData::new(values.to_vec(), shape).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}

fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

fn expect_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) -> anyhow::Result<()> {
    ensure!(
        found.len() == expected.len(),
        "{what}: {} numbers, expected {}",
        found.len(),
        expected.len()
    );
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_close = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
        ensure!(is_close, "{what}, element {place}: {found}, expected {expected}");
    }
    Ok(())
}

/// Returns outputs and gradients of layers with what kernels compute between the products.
fn layers(device: &Device, [rows, d_input, d_hidden, d_output]: [usize; 4]) -> anyhow::Result<Vec<Vec<f64>>> {
    let leaf = |shape: [usize; 2], seed: usize| {
        let values: Vec<f32> = numbers(shape[0] * shape[1], seed).iter().map(|x| x / 3.0).collect();
        tensor(device, DType::F32, &values, shape).require_grad()
    };
    let (x, w, v) = (
        leaf([rows, d_input], 1),
        leaf([d_input, d_hidden], 2),
        leaf([d_output, d_hidden], 3),
    );
    let bias = tensor(device, DType::F32, &numbers(d_hidden, 4), [d_hidden]).require_grad();
    let hidden = linear(x.clone(), w.clone(), Some(bias.clone()))?;
    let output = linear_transposed(hidden.tanh(), v.clone())?;
    // What is not stored row by row, and begins inside of something.
    let part = output.clone().slice([0..rows, 1..d_output]);
    let product = linear(part.transpose(), output.clone() * 0.5, None)?;
    let gradients = product.clone().powi_scalar(2).mean().backward();
    let of = |leaf: &Tensor<2>| leaf.grad(&gradients).map(read).context("no gradient");
    let of_bias = bias.grad(&gradients).map(read).context("no gradient")?;
    Ok(vec![read(output), read(product), of(&x)?, of(&w)?, of(&v)?, of_bias])
}

/// In f32: burn's own products are of TF32 there and would be found out.
fn layers_match() -> anyhow::Result<()> {
    let device = device()?;
    // The library has no kernel for a bias of one number: burn's product runs, and rounds.
    for (sizes, tolerance) in [
        ([7, 12, 16, 10], 1e-4),
        ([130, 33, 65, 70], 1e-4),
        ([1, 1, 3, 2], 1e-4),
        ([5, 4, 1, 2], 4e-3),
    ] {
        let expected = layers(&Device::flex().autodiff(), sizes)?;
        // Several times: what is left over from the last one is used again.
        for turn in 0..3 {
            let found = layers(&device.clone().autodiff(), sizes)?;
            for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let what = format!("{sizes:?}, turn {turn}, result {index}");
                expect_close(&what, found, expected, tolerance)?;
            }
        }
    }
    Ok(())
}

/// Of bf16, the sum of product and bias is rounded once, where burn rounds the product before.
fn rounded_once() -> anyhow::Result<()> {
    let device = device()?;
    let [rows, depth, columns] = [9, 64, 5];
    let (a, b, bias) = (
        numbers(rows * depth, 1),
        numbers(depth * columns, 2),
        numbers(columns, 3),
    );
    let output = linear(
        tensor(&device, DType::BF16, &a, [rows, depth]),
        tensor(&device, DType::BF16, &b, [depth, columns]),
        Some(tensor(&device, DType::BF16, &bias, [columns])),
    )?;
    let sum = |place: usize| -> f32 {
        let (i, j) = (place / columns, place % columns);
        (0..depth).map(|k| a[i * depth + k] * b[k * columns + j]).sum()
    };
    let round = |x: f32| bf16::from_f32(x).to_f32();
    let once: Vec<f64> = (0..rows * columns)
        .map(|place| round(sum(place) + bias[place % columns]).into())
        .collect();
    let twice = (0..rows * columns).map(|place| f64::from(round(round(sum(place)) + bias[place % columns])));
    ensure!(twice.ne(once.iter().copied()), "these numbers do not show it");
    expect_close("output", &read(output), &once, 0.0)
}

/// Adds `sums[offset..]` and a product of these sizes on the host.
fn add_on_host(sums: &mut [f64], [rows, depth, columns]: [usize; 3], [a, b]: [&[f32]; 2], place: GradientPlace) {
    for (index, sum) in sums[place.offset..][..rows * columns].iter_mut().enumerate() {
        let (i, j) = (index / columns, index % columns);
        let terms = (0..depth).map(|k| f64::from(a[i * depth + k]) * f64::from(b[k * columns + j]));
        *sum = terms.sum::<f64>() + if place.is_first { 0.0 } else { *sum };
    }
}

/// Of bf16 into places of f32, exactly: they are not rounded to bf16 on the way, and the places' neighbours stay.
fn added_to_sums() -> anyhow::Result<()> {
    let device = device()?;
    let sizes @ [rows, depth, columns] = [5, 300, 3];
    let (a, b) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
    let factors = || {
        let a = tensor(&device, DType::BF16, &a, [rows, depth]);
        (a, tensor(&device, DType::BF16, &b, [depth, columns]))
    };
    for is_shared in [false, true] {
        let mut sums = Tensor::<1>::full([400], 0.5, (&device, DType::F32));
        let shared = is_shared.then(|| sums.clone());
        let mut expected = vec![0.5; 400];
        for (offset, is_first) in [(128, true), (128, false), (256, false)] {
            let place = GradientPlace {
                offset,
                parameter: 0,
                is_first,
            };
            let (left, right) = factors();
            sums = add_product(sums, left, right, place);
            add_on_host(&mut expected, sizes, [&a, &b], place);
        }
        expect_close("sums", &read(sums), &expected, 0.0)?;
        if let Some(shared) = shared {
            expect_close("what others hold", &read(shared), &[0.5; 400], 0.0)?;
        }
    }
    Ok(())
}

/// The device's memory holds the sums once, and not twice.
fn added_in_place() -> anyhow::Result<()> {
    const ELEMENTS: usize = 16 << 20;
    let device = device()?;
    let client = cubecl::Device::Cuda(CudaDevice::default()).client();
    let in_use = || client.memory_report(cubecl::MemoryScope::Device).usage().bytes_in_use;
    let before = in_use();
    let mut sums = Tensor::<1>::zeros([ELEMENTS], (&device, DType::F32));
    let ones = |shape: [usize; 2]| Tensor::<2>::ones(shape, (&device, DType::BF16));
    for turn in 0..3 {
        let place = GradientPlace {
            offset: ELEMENTS - 128,
            parameter: 0,
            is_first: turn == 0,
        };
        sums = add_product(sums, ones([4, 5]), ones([5, 3]), place);
        device.sync()?;
        let (once, used) = ((ELEMENTS * size_of::<f32>()) as u64, in_use() - before);
        ensure!(
            (once..once * 3 / 2).contains(&used),
            "{used} bytes for sums of {once}, turn {turn}"
        );
    }
    let found = read(sums.narrow(0, ELEMENTS - 128, 13));
    expect_close("sums", &found, &[[15.0; 12].as_slice(), &[0.0]].concat(), 0.0)
}

/// Returns the output, of ones before, of rows of an input, and what they are in the product of all.
fn block_product(device: &Device, order: WeightOrder, blocks: [RowBlocks; 2]) -> [Vec<f64>; 2] {
    let [rows, depth, columns] = [24, 5, 7];
    let shape = match order {
        WeightOrder::InputFirst => [depth, columns],
        WeightOrder::OutputFirst => [columns, depth],
    };
    let inputs = LinearInputs {
        input: tensor(device, DType::F32, &numbers(rows * depth, 1), [rows, depth]),
        weight: tensor(device, DType::F32, &numbers(depth * columns, 2), shape),
        bias: Some(tensor(device, DType::F32, &numbers(columns, 3), [columns])),
        order,
    };
    let whole = read(affine(LinearInputs {
        input: inputs.input.clone(),
        weight: inputs.weight.clone(),
        ..inputs.clone()
    }));
    let [from, to] = blocks;
    let output = affine_blocks(BlockProduct {
        inputs,
        from,
        output: Tensor::ones([16, columns], (device, DType::F32)),
        to,
    });
    let mut expected = vec![1.0; 16 * columns];
    for (from, to) in from.ranges().zip(to.ranges()) {
        expected[to.start * columns..to.end * columns]
            .copy_from_slice(&whole[from.start * columns..from.end * columns]);
    }
    [read(output), expected]
}

/// Two rows of each eight, as the second part of each of three parts of five; and a range of rows.
fn some_blocks() -> [[RowBlocks; 2]; 2] {
    let spread = [[3, 8], [2, 5]].map(|[first, stride]| RowBlocks {
        first,
        rows: 2,
        stride,
        count: 3,
    });
    [spread, [RowBlocks::range(4..9), RowBlocks::range(11..16)]]
}

fn blocks_match() -> anyhow::Result<()> {
    let device = device()?;
    for order in [WeightOrder::InputFirst, WeightOrder::OutputFirst] {
        for blocks in some_blocks() {
            let [found, expected] = block_product(&device, order, blocks);
            expect_close(&format!("{order:?}, {blocks:?}"), &found, &expected, 0.0)?;
        }
    }
    Ok(())
}

/// Threads have streams of their own: a product waits for what another's stream writes, and what reads it for the
/// product.
fn threads_share() -> anyhow::Result<()> {
    let device = device()?;
    let [rows, depth, columns] = [40, 30, 20];
    let (a, b) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
    let weight = tensor(&device, DType::F32, &b, [depth, columns]);
    for turn in 0..6 {
        let input = tensor(&device, DType::F32, &a, [rows, depth]);
        let made = std::thread::spawn(move || input * 2.0 + turn as f32);
        let made = made.join().expect("the thread does not panic");
        let threads = (0..3).map(|addend| {
            let (made, weight) = (made.clone(), weight.clone());
            std::thread::spawn(move || {
                let product = linear(made + addend as f32, weight, None).expect("fits");
                // Read by yet another.
                std::thread::spawn(move || read(product)).join()
            })
        });
        for (addend, thread) in threads.collect::<Vec<_>>().into_iter().enumerate() {
            let found = thread.join().expect("the thread does not panic");
            let left: Vec<f32> = a.iter().map(|x| 2.0 * x + (turn + addend) as f32).collect();
            let mut expected = vec![0.0; rows * columns];
            let place = GradientPlace {
                offset: 0,
                parameter: 0,
                is_first: true,
            };
            add_on_host(&mut expected, [rows, depth, columns], [&left, &b], place);
            let what = format!("turn {turn}, thread {addend}");
            expect_close(&what, &found.expect("the thread does not panic"), &expected, 1e-5)?;
        }
    }
    Ok(())
}

/// Returns the output of a layer, and its gradients, of numbers whose products are exact in TF32 too.
fn layer(device: &Device, [rows, depth, columns]: [usize; 3]) -> anyhow::Result<Vec<Vec<f64>>> {
    let leaf = |shape: [usize; 2], seed: usize| {
        tensor(device, DType::F32, &numbers(shape[0] * shape[1], seed), shape).require_grad()
    };
    let (x, w) = (leaf([rows, depth], 1), leaf([depth, columns], 2));
    let bias = tensor(device, DType::F32, &numbers(columns, 3), [columns]).require_grad();
    let output = linear(x.clone(), w.clone(), Some(bias.clone()))?;
    let gradients = (output.clone() * leaf([rows, columns], 4)).sum().backward();
    let of_factors = [x, w].map(|leaf| leaf.grad(&gradients).map(read));
    let [of_input, of_weight] = of_factors.map(|gradient| gradient.context("no gradient"));
    let of_bias = bias.grad(&gradients).map(read).context("no gradient")?;
    Ok(vec![read(output), of_input?, of_weight?, of_bias])
}

/// By burn, with the same bias and to the same places. Of sizes that no other trial has: what the library said of a
/// kind of products is kept.
fn without_kernel() -> anyhow::Result<()> {
    let device = device()?;
    with_variable(ALIGNMENT, "4096", || {
        let sizes = [6, 11, 18];
        let expected = layer(&Device::flex().autodiff(), sizes)?;
        let found = layer(&device.clone().autodiff(), sizes)?;
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            expect_close(&format!("result {index}"), found, expected, 0.0)?;
        }
        let sizes @ [rows, depth, columns] = [4, 8, 6];
        let (a, b) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
        let place = GradientPlace {
            offset: 10,
            parameter: 2,
            is_first: false,
        };
        let sums = add_product(
            Tensor::full([40], 0.5, (&device, DType::F32)),
            tensor(&device, DType::F32, &a, [rows, depth]),
            tensor(&device, DType::F32, &b, [depth, columns]),
            place,
        );
        let mut expected = vec![0.5; 40];
        add_on_host(&mut expected, sizes, [&a, &b], place);
        expect_close("sums", &read(sums), &expected, 0.0)?;
        let [from, to] = some_blocks()[0].map(|blocks| RowBlocks { rows: 1, ..blocks });
        let [found, expected] = block_product(&device, WeightOrder::InputFirst, [from, to]);
        expect_close("blocks", &found, &expected, 0.0)
    })
}

fn failing() -> anyhow::Result<()> {
    let device = device()?;
    let ones = |shape: [usize; 2]| Tensor::<2>::ones(shape, (&device, DType::F32));
    let product = || linear(ones([3, 4]), ones([4, 5]), None).expect("fits");
    expect_close("product", &read(product()), &[4.0; 15], 0.0)?;
    // What is computed from it reports the same.
    let failed = with_variable(FAILS, "1", || (product() * 2.0).try_into_data());
    let error = format!("{:?}", failed.err().context("what was not computed looks whole")?);
    ensure!(
        error.contains("cuBLASLt fails at the product [3, 4] · [4, 5] of f32 to f32"),
        "{error}"
    );
    expect_close("product", &read(product()), &[4.0; 15], 0.0)
}

/// Products of row-major matrices, planned for all multiprocessors and for some, are added to what is there.
fn measured() -> anyhow::Result<()> {
    let stream = open()?;
    // SAFETY: the device's context is current, and stays.
    let products = unsafe { Products::new() }.map_err(Error::msg)?;
    let [rows, depth, columns] = [5, 7, 13];
    let (a, b) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
    let stored = |values: &[f32], [rows, columns]: [usize; 2], is_transposed: bool| {
        let at = |index: usize| {
            if is_transposed {
                values[index % rows * columns + index / rows]
            } else {
                values[index]
            }
        };
        upload(&(0..rows * columns).map(at).collect::<Vec<_>>(), stream)
    };
    for is_transposed in [[false, false], [false, true], [true, false], [true, true]] {
        let product = Product {
            dtypes: [DType::F32; 2],
            shape: [rows, depth, columns],
            is_transposed,
            is_added: true,
        };
        let left = stored(&a, [rows, depth], is_transposed[0])?;
        let right = stored(&b, [depth, columns], is_transposed[1])?;
        let output = upload(&vec![1f32; rows * columns], stream)?;
        let choice = |recommendation, multiprocessors| Choice {
            recommendation,
            multiprocessors,
        };
        let plan = |choice| products.plan(&product, choice).map_err(Error::msg);
        for multiprocessors in [None, Some(100)] {
            let planned = plan(choice(0, multiprocessors))?.context("a kernel")?;
            // SAFETY: the matrices are never freed.
            unsafe { products.launch(&planned, [left, right, output], stream) }.map_err(Error::msg)?;
        }
        let mut expected = vec![1.0; rows * columns];
        let place = GradientPlace {
            offset: 0,
            parameter: 0,
            is_first: false,
        };
        for _ in 0..2 {
            add_on_host(&mut expected, [rows, depth, columns], [&a, &b], place);
        }
        let found: Vec<f64> = download(output, rows * columns, stream)?
            .into_iter()
            .map(f64::from)
            .collect();
        expect_close(&format!("{is_transposed:?}"), &found, &expected, 0.0)?;
        // The emulator has one kernel, and the device 108 multiprocessors.
        ensure!(plan(choice(1, None))?.is_none(), "a second kernel");
        ensure!(
            plan(choice(0, Some(109))).is_err(),
            "more multiprocessors than there are"
        );
    }
    Ok(())
}

/// Makes the device the thread's, and returns a stream of it.
fn open() -> anyhow::Result<CUstream> {
    result::init()?;
    let device = result::device::get(0)?;
    // SAFETY: the device is there, and its context is never released.
    unsafe { result::ctx::set_current(result::primary_ctx::retain(device)?)? };
    Ok(result::stream::create(result::stream::StreamKind::NonBlocking)?)
}

fn upload(values: &[f32], stream: CUstream) -> anyhow::Result<u64> {
    // SAFETY: the stream lives to the end, and is waited for before the values go.
    unsafe {
        let address = result::malloc_async(stream, size_of_val(values))?;
        result::memcpy_htod_async(address, values, stream)?;
        result::stream::synchronize(stream)?;
        Ok(address)
    }
}

fn download(address: u64, count: usize, stream: CUstream) -> anyhow::Result<Vec<f32>> {
    let mut values = vec![0f32; count];
    // SAFETY: these numbers are there, and the stream is waited for.
    unsafe {
        result::memcpy_dtoh_async(&mut values, address, stream)?;
        result::stream::synchronize(stream)?;
    }
    Ok(values)
}
