//! Matrix products of CubeCL's library: how fast the device's matrix units are for them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::Context;
use burn::tensor::{DType, Device, Distribution, Tensor};
use burn_backend::cubecl::dtype_to_storage_type;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::strategy::Strategy;
use cubek::matmul::{multi_level, tiled};
use cubek::std::InputBinding;

use super::timing::{Clock, computed};

/// Returns the FLOP/s of burn's matmul of square matrices with `size` rows.
pub fn best_rate(clock: &Clock, dtype: DType, size: usize) -> anyhow::Result<Option<f64>> {
    let [a, b] = matrices(&clock.device, dtype, size);
    let product = || Ok(vec![a.clone().matmul(b.clone()).into_dispatch()]);
    // Burn's product panics where its library refuses.
    let timing = catch_unwind(AssertUnwindSafe(|| clock.time(product)));
    Ok(match timing {
        Ok(timing) => Some(operations(size) / timing.context("burn's matrix product")?.seconds),
        Err(_) => None,
    })
}

/// Times every way to compute the product, and prints one line for each.
pub fn print_all(clock: &Clock, dtype: DType, size: usize) -> anyhow::Result<()> {
    println!("products of {size} x {size} matrices, TFLOP/s:");
    for strategy in strategies() {
        match rate(clock, dtype, size, &strategy) {
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
    let burn = best_rate(clock, dtype, size)?;
    let burn = burn.map_or("-".to_owned(), |rate| format!("{:.1}", rate / 1e12));
    println!("{:<40} {burn:>8}", "burn's choice");
    Ok(())
}

fn rate(clock: &Clock, dtype: DType, size: usize, strategy: &Strategy) -> anyhow::Result<f64> {
    let [a, b] = matrices(&clock.device, dtype, size);
    let output = Tensor::<2>::zeros([size, size], (&clock.device, dtype));
    let [a, b, output] = [a, b, output].map(|matrix| computed(matrix.into_dispatch()));
    let kind = dtype_to_storage_type(dtype);
    let product = || {
        let mut types = MatmulElems::from_globals(&MatmulGlobalElems {
            lhs: kind,
            rhs: kind,
            out: kind,
        });
        let [a, b] = [&a, &b].map(|matrix| InputBinding::new(matrix.clone().binding(), kind));
        launch_ref(strategy, &clock.client, a, b, output.clone().binding(), &mut types)
            .map_err(|error| anyhow::anyhow!("{error:?}"))?;
        Ok(output.handle.clone())
    };
    // A way that the device does not have may panic while it is expanded.
    let timing = catch_unwind(AssertUnwindSafe(|| clock.time(product)));
    let timing = timing.map_err(|_| anyhow::anyhow!("panicked"))??;
    Ok(operations(size) / timing.seconds)
}

fn matrices(device: &Device, dtype: DType, size: usize) -> [Tensor<2>; 2] {
    [(); 2].map(|()| Tensor::random([size, size], Distribution::Normal(0.0, 1.0), (device, dtype)))
}

fn operations(size: usize) -> f64 {
    2.0 * (size as f64).powi(3)
}

/// Those with matrix units, and the best without.
fn strategies() -> Vec<Strategy> {
    use multi_level::Strategy::*;

    let of_levels = [
        SimpleCyclicCmma(Default::default()),
        SimpleCyclicMma(Default::default()),
        SimpleStridedMma(Default::default()),
        SimpleTilewiseMma(Default::default()),
        SimpleAsyncCyclicMma(Default::default()),
        SimpleAsyncStridedMma(Default::default()),
        SimpleTmaMma(Default::default()),
        DoubleCyclicMma(Default::default()),
        DoubleTilewiseMma(Default::default()),
        DoubleHybridMma(Default::default()),
        DoubleAsyncCyclicMma(Default::default()),
        DoubleAsyncStridedMma(Default::default()),
        DoubleTmaMma(Default::default()),
        SpecializedCyclicMma(Default::default()),
        SpecializedStridedMma(Default::default()),
        SpecializedTmaMma(Default::default()),
        OrderedDoubleMma(Default::default()),
        DoubleUnit(Default::default()),
    ];
    let of_tiles = tiled::Strategy::Cmma(Default::default());
    of_levels
        .map(Strategy::from)
        .into_iter()
        .chain([of_tiles.into()])
        .collect()
}
