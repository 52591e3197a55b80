//! Matrix products of CubeCL's library: how fast the device's matrix units are for them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::Context;
use burn::tensor::{DType, Distribution, Tensor};
use burn_cubecl::{CubeBackend, CubeRuntime};
use cubecl_kernels::tape::primitive;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::{Strategy, launch_ref};

use super::timing::Clock;

type Matrix<R> = Tensor<CubeBackend<R, f32, i32, u8>, 2>;

/// Returns the FLOP/s of burn's matmul of square matrices with `size` rows.
pub fn best_rate<R: CubeRuntime>(
    clock: &Clock<R>,
    device: &R::Device,
    dtype: DType,
    size: usize,
) -> anyhow::Result<Option<f64>> {
    let [a, b] = matrices::<R>(device, dtype, size);
    let mut product = || {
        drop(a.clone().matmul(b.clone()));
        Ok(())
    };
    // Burn's product panics where its library refuses.
    let timing = catch_unwind(AssertUnwindSafe(|| clock.time(&mut product)));
    Ok(match timing {
        Ok(timing) => Some(operations(size) / timing.context("burn's matrix product")?.seconds),
        Err(_) => None,
    })
}

/// Times every way to compute the product, and prints one line for each.
pub fn print_all<R: CubeRuntime>(
    clock: &Clock<R>,
    device: &R::Device,
    dtype: DType,
    size: usize,
) -> anyhow::Result<()> {
    println!("products of {size} x {size} matrices, TFLOP/s:");
    for strategy in strategies() {
        let rate = rate::<R>(clock, device, dtype, size, &strategy);
        match rate {
            Ok(rate) => println!("{:<40} {:8.1}", strategy.to_string(), rate / 1e12),
            Err(error) => {
                let error = error.to_string();
                println!(
                    "{:<40}        -  {}",
                    strategy.to_string(),
                    error.lines().next().unwrap_or_default()
                );
            }
        }
    }
    let burn = best_rate::<R>(clock, device, dtype, size)?;
    let burn = burn.map_or("-".to_owned(), |rate| format!("{:.1}", rate / 1e12));
    println!("{:<40} {burn:>8}", "burn's choice");
    Ok(())
}

fn rate<R: CubeRuntime>(
    clock: &Clock<R>,
    device: &R::Device,
    dtype: DType,
    size: usize,
    strategy: &Strategy,
) -> anyhow::Result<f64> {
    let [a, b] = matrices::<R>(device, dtype, size).map(primitive);
    let output = primitive(Matrix::<R>::empty([size, size], (device, dtype)));
    let (client, kind) = (&clock.client, dtype.into());
    let mut product = || {
        let mut types = MatmulElems::from_globals(&MatmulGlobalElems {
            lhs: kind,
            rhs: kind,
            out: kind,
        });
        let [a, b] = [&a, &b].map(|matrix| cubek::std::InputBinding::new(matrix.clone().binding(), kind));
        launch_ref(strategy, client, a, b, output.clone().binding(), &mut types)
            .map_err(|error| anyhow::anyhow!("{error:?}"))
    };
    // A way that the device does not have may panic while it is expanded.
    let timing = catch_unwind(AssertUnwindSafe(|| clock.time(&mut product)));
    let timing = timing.map_err(|_| anyhow::anyhow!("panicked"))??;
    Ok(operations(size) / timing.seconds)
}

fn matrices<R: CubeRuntime>(device: &R::Device, dtype: DType, size: usize) -> [Matrix<R>; 2] {
    [(); 2].map(|()| Tensor::random([size, size], Distribution::Normal(0.0, 1.0), (device, dtype)))
}

fn operations(size: usize) -> f64 {
    2.0 * (size as f64).powi(3)
}

/// Those with matrix units, and the best without.
fn strategies() -> Vec<Strategy> {
    vec![
        Strategy::SimpleCyclicCmma(Default::default()),
        Strategy::SimpleCyclicMma(Default::default()),
        Strategy::SimpleStridedMma(Default::default()),
        Strategy::SimpleTilewiseMma(Default::default()),
        Strategy::SimpleAsyncCyclicMma(Default::default()),
        Strategy::SimpleAsyncStridedMma(Default::default()),
        Strategy::SimpleTmaMma(Default::default()),
        Strategy::DoubleCyclicMma(Default::default()),
        Strategy::DoubleTilewiseMma(Default::default()),
        Strategy::DoubleHybridMma(Default::default()),
        Strategy::DoubleAsyncCyclicMma(Default::default()),
        Strategy::DoubleAsyncStridedMma(Default::default()),
        Strategy::DoubleTmaMma(Default::default()),
        Strategy::SpecializedCyclicMma(Default::default()),
        Strategy::SpecializedStridedMma(Default::default()),
        Strategy::SpecializedTmaMma(Default::default()),
        Strategy::OrderedDoubleMma(Default::default()),
        Strategy::DoubleUnit(Default::default()),
    ]
}
