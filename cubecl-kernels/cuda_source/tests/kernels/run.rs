//! Kernels run on the CPU: their results, and what is found out of wrong ones.

use anyhow::{bail, ensure};
use cubecl::prelude::*;
use cubecl::server::Handle;
use cuda_source::{CudaSource, CudaSourceDevice, Host};
use half::{bf16, f16};
use libtest_mimic::Trial;

use crate::samples;

type Client = ComputeClient<CudaSource>;

pub fn trials() -> Vec<Trial> {
    let is_here = Host::find()
        .inspect_err(|error| eprintln!("trials are ignored: {error}"))
        .is_ok();
    type Check = fn() -> anyhow::Result<()>;
    let checks: [(&str, Check); 11] = [
        ("sums_of_rows_are_right", sums_of_rows_are_right),
        (
            "a_kernel_that_cannot_be_expanded_is_an_error",
            an_unexpandable_kernel_is_an_error,
        ),
        ("cooperative_matrices_give_the_product", cooperative_products_are_right),
        ("products_of_f16_are_right", products_are_right::<f16>),
        ("products_of_bf16_are_right", products_are_right::<bf16>),
        (
            "a_wrong_fragment_index_gives_a_wrong_product",
            a_wrong_index_gives_a_wrong_product,
        ),
        (
            "asynchronous_copies_and_ldmatrix_give_the_product",
            loaded_products_are_right,
        ),
        ("groups_of_copies_are_made_when_waited_for", groups_wait_for_copies),
        (
            "a_forgotten_barrier_gives_wrong_results",
            a_forgotten_barrier_gives_wrong_results,
        ),
        (
            "a_barrier_that_not_all_threads_reach_is_an_error",
            an_unreached_barrier_is_an_error,
        ),
        ("a_write_past_a_buffer_is_an_error", a_stray_write_is_an_error),
    ];
    checks
        .map(|(name, check)| Trial::test(name, move || Ok(check()?)).with_ignored_flag(!is_here))
        .into()
}

fn client() -> Client {
    CudaSource::client(&CudaSourceDevice::default())
}

fn tensor(handle: &Handle, shape: [usize; 2]) -> TensorArg<CudaSource> {
    // SAFETY: callers give the shapes that they made the buffers for.
    unsafe { TensorArg::from_raw_parts(handle.clone(), [shape[1], 1].into(), shape.into()) }
}

fn read(client: &Client, handle: Handle) -> anyhow::Result<Vec<f32>> {
    let bytes = client.read_one(handle).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    Ok(f32::from_bytes(&bytes).to_vec())
}

fn sums_of_rows_are_right() -> anyhow::Result<()> {
    let (client, rows, columns) = (client(), 3, 1001);
    // Small whole numbers: sums are exact.
    let values: Vec<bf16> = (0..rows * columns)
        .map(|i| bf16::from_f32((i % 13) as f32 - 4.0))
        .collect();
    let input = client.create_from_slice(bf16::as_bytes(&values));
    let output = client.empty(rows * 4);
    // SAFETY: the kernel stays inside its tensors.
    unsafe {
        samples::row_sums::launch_unchecked::<bf16, CudaSource>(
            &client,
            CubeCount::Static(rows as u32, 1, 1),
            CubeDim::new_1d(128),
            tensor(&input, [rows, columns]),
            tensor(&output, [rows, 1]),
            columns,
        );
    }
    let expected: Vec<f32> = values
        .chunks(columns)
        .map(|row| row.iter().map(|value| value.to_f32()).sum())
        .collect();
    let actual = read(&client, output)?;
    ensure!(actual == expected, "{actual:?}, expected {expected:?}");
    Ok(())
}

/// Returns a 16 × 16 and a 16 × 8 matrix of small whole numbers without symmetry, and their product.
fn factors() -> [Vec<f32>; 3] {
    let a: Vec<f32> = (0..256).map(|i| ((i * 7 + i / 16 * 3) % 17) as f32 - 8.0).collect();
    let b: Vec<f32> = (0..128).map(|i| ((i * 5 + i / 8 * 11) % 19) as f32 - 9.0).collect();
    let product = (0..128)
        .map(|i| (0..16).map(|k| a[i / 8 * 16 + k] * b[k * 8 + i % 8]).sum())
        .collect();
    [a, b, product]
}

fn product<E: Float + CubeElement>(fault: u32) -> anyhow::Result<Vec<f32>> {
    let client = client();
    let upload = |values: &[f32]| {
        let values: Vec<E> = values.iter().map(|&value| E::new(value)).collect();
        client.create_from_slice(E::as_bytes(&values))
    };
    let [a, b, _] = factors();
    let (a, b, output) = (upload(&a), upload(&b), client.empty(128 * 4));
    // SAFETY: the kernel stays inside its tensors.
    unsafe {
        samples::mma_product::launch_unchecked::<E, CudaSource>(
            &client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(32),
            tensor(&a, [16, 16]),
            tensor(&b, [16, 8]),
            tensor(&output, [16, 8]),
            fault,
        );
    }
    read(&client, output)
}

fn products_are_right<E: Float + CubeElement>() -> anyhow::Result<()> {
    let [.., expected] = factors();
    let actual = product::<E>(0)?;
    ensure!(actual == expected, "{actual:?}, expected {expected:?}");
    Ok(())
}

fn a_wrong_index_gives_a_wrong_product() -> anyhow::Result<()> {
    let [.., expected] = factors();
    for fault in [1, 2, 8] {
        let actual = product::<f16>(fault)?;
        ensure!(actual != expected, "the product is right with row ^ {fault} of B");
    }
    Ok(())
}

fn loaded_products_are_right() -> anyhow::Result<()> {
    let client = client();
    let upload = |values: &[f32]| {
        let values: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
        client.create_from_slice(f16::as_bytes(&values))
    };
    let [a, b, expected] = factors();
    let (a, b, output) = (upload(&a), upload(&b), client.empty(128 * 4));
    // SAFETY: the kernel stays inside its tensors.
    unsafe {
        samples::mma_loaded::launch_unchecked::<f16, CudaSource>(
            &client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(32),
            tensor(&a, [16, 16]),
            tensor(&b, [16, 8]),
            tensor(&output, [16, 8]),
        );
    }
    let actual = read(&client, output)?;
    ensure!(actual == expected, "{actual:?}, expected {expected:?}");
    Ok(())
}

fn groups_wait_for_copies() -> anyhow::Result<()> {
    let client = client();
    let numbers: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let input = client.create_from_slice(f32::as_bytes(&numbers));
    for (is_all, there) in [(true, 64), (false, 32)] {
        let output = client.empty(64 * 4);
        // SAFETY: the kernel stays inside its tensors.
        unsafe {
            samples::grouped_copies::launch_unchecked::<CudaSource>(
                &client,
                CubeCount::Static(1, 1, 1),
                CubeDim::new_1d(32),
                tensor(&input, [64, 1]),
                tensor(&output, [64, 1]),
                is_all,
            );
        }
        let actual = read(&client, output)?;
        ensure!(actual[..there] == numbers[..there], "{actual:?}, expected {numbers:?}");
        ensure!(
            actual[there..].iter().all(|number| number.is_nan()),
            "made before the wait: {actual:?}"
        );
    }
    Ok(())
}

fn cooperative_products_are_right() -> anyhow::Result<()> {
    let client = client();
    let number = |i: usize| ((i * 7 + i / 16 * 3) % 17) as f32 - 8.0;
    let [a, b] = [0, 1000].map(|first| (first..first + 256).map(number).collect::<Vec<f32>>());
    let upload = |values: &[f32]| {
        let values: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
        tensor(&client.create_from_slice(f16::as_bytes(&values)), [16, 16])
    };
    let output = client.empty(256 * 4);
    // SAFETY: the kernel stays inside its tensors.
    unsafe {
        samples::cmma_product::launch_unchecked::<CudaSource>(
            &client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(32),
            upload(&a),
            upload(&b),
            tensor(&output, [16, 16]),
        );
    }
    let dot = |i: usize| (0..16).map(|k| a[i / 16 * 16 + k] * b[i % 16 * 16 + k]).sum();
    let expected: Vec<f32> = (0..256).map(dot).collect();
    let actual = read(&client, output)?;
    ensure!(actual == expected, "{actual:?}, expected {expected:?}");
    Ok(())
}

fn a_forgotten_barrier_gives_wrong_results() -> anyhow::Result<()> {
    let client = client();
    let output = client.empty(64 * 4);
    // SAFETY: the kernel stays inside its tensor.
    unsafe {
        samples::forgotten_barrier::launch_unchecked::<CudaSource>(
            &client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(64),
            tensor(&output, [64, 1]),
        );
    }
    let actual = read(&client, output)?;
    let expected: Vec<f32> = (0..64).map(|i| (i ^ 1) as f32).collect();
    ensure!(actual != expected, "threads saw what others had not surely written");
    Ok(())
}

fn an_unreached_barrier_is_an_error() -> anyhow::Result<()> {
    let client = client();
    let output = client.empty(64 * 4);
    // SAFETY: the kernel stays inside its tensor.
    unsafe {
        samples::unreached_barrier::launch_unchecked::<CudaSource>(
            &client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(64),
            tensor(&output, [64, 1]),
        );
    }
    expect_error(&client, output, "wait for each other for ever")
}

fn a_stray_write_is_an_error() -> anyhow::Result<()> {
    let client = client();
    let output = client.empty(64 * 4);
    // SAFETY: the one number too many is written into the guard.
    unsafe {
        samples::stray_write::launch_unchecked::<CudaSource>(
            &client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(64),
            tensor(&output, [64, 1]),
        );
    }
    expect_error(&client, output, "past its buffer 0")
}

fn an_unexpandable_kernel_is_an_error() -> anyhow::Result<()> {
    let client = client();
    let output = client.empty(4);
    let (count, dim) = (CubeCount::Static(1, 1, 1), CubeDim::new_1d(1));
    // SAFETY: nothing runs.
    unsafe { samples::unexpandable::launch_unchecked::<CudaSource>(&client, count, dim, tensor(&output, [1, 1]), 0) };
    expect_error(&client, output, "a size above 0")
}

fn expect_error(client: &Client, handle: Handle, words: &str) -> anyhow::Result<()> {
    match client.read_one(handle) {
        Ok(_) => bail!("nothing was found out"),
        Err(error) => {
            let error = format!("{error:?}");
            ensure!(error.contains(words), "{error}");
            Ok(())
        }
    }
}
