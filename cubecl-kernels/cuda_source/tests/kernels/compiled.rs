//! Kernels compiled by NVRTC and `ptxas`.

use anyhow::ensure;
use cubecl::prelude::*;
use cuda_source::{Architecture, CudaSource, CudaSourceDevice, KernelReport, Toolkit, launched};
use half::bf16;
use libtest_mimic::Trial;

use crate::samples;

pub fn trials() -> Vec<Trial> {
    let is_here = Toolkit::find()
        .inspect_err(|error| eprintln!("trials are ignored: {error}"))
        .is_ok();
    let mut trials = Vec::new();
    for architecture in Architecture::ALL {
        let trial = move || Ok(reports_tell_what_kernels_take(architecture)?);
        let name = format!("{architecture}::reports_tell_what_kernels_take");
        trials.push(Trial::test(name, trial).with_ignored_flag(!is_here));
    }
    trials
}

fn reports_tell_what_kernels_take(architecture: Architecture) -> anyhow::Result<()> {
    let device = CudaSourceDevice::compiling(architecture);
    let client = CudaSource::client(&device);
    let tensor = |shape: [usize; 2], size: usize| {
        let handle = client.empty(shape[0] * shape[1] * size);
        // SAFETY: the buffer has the elements of the shape.
        unsafe { TensorArg::from_raw_parts(handle, [shape[1], 1].into(), shape.into()) }
    };
    // SAFETY: nothing runs.
    unsafe {
        samples::row_sums::launch_unchecked::<bf16, CudaSource>(
            &client,
            CubeCount::Static(4, 1, 1),
            CubeDim::new_1d(256),
            tensor([4, 1000], 2),
            tensor([4, 1], 4),
            1000,
        );
        samples::mma_product::launch_unchecked::<bf16, CudaSource>(
            &client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(32),
            tensor([16, 16], 2),
            tensor([16, 8], 2),
            tensor([16, 8], 4),
            0,
        );
    }
    cubecl::future::block_on(client.sync())?;
    let reports = launched(device);
    let [sums, product] = &reports[..] else {
        anyhow::bail!("two kernels were launched, but the reports are {reports:?}");
    };
    let is_plausible = |report: &KernelReport| (8..256).contains(&report.resources.registers);
    ensure!(is_plausible(sums) && is_plausible(product), "{reports:?}");
    ensure!(sums.resources.shared_memory >= 128, "the sums' shared memory: {sums:?}");
    ensure!(
        sums.resources.matrix_instructions == 0,
        "sums need no matrix units: {sums:?}"
    );
    ensure!(
        product.resources.matrix_instructions == 1,
        "one product of a tile: {product:?}"
    );
    ensure!(sums.name.contains("row_sums") && sums.units == 256, "{sums:?}");
    Ok(())
}
