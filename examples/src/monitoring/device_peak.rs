//! [`DevicePeak`]: what the ranks' devices can do at most.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use burn::tensor::{Device, Distribution, Tensor};
use burn_megatron::collectives::ReduceOp;
use burn_megatron::context::ParallelContext;
use burn_megatron_monitoring::peak::{NumberType, measure, of_gpu, utilisation_percent};

use crate::arguments::{Dtype, MonitoringArguments};
use crate::device::device_name;

/// Rows and columns of the matrices that are multiplied to measure a peak.
const SIZE: usize = 768;
/// The time for which a peak is measured.
const MEASURED: Duration = Duration::from_millis(300);

/// The peak of all ranks' devices, and where the number is from.
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePeak {
    /// FLOP/s, over all ranks.
    flops_per_second: f64,
    world_size: usize,
    source: String,
}

impl DevicePeak {
    /// Returns the peak that was given, that of a known GPU, or what a matmul reaches now on all ranks at once; `None`
    /// if a rank's GPU is not known.
    ///
    /// # Communication
    /// A barrier and one all-reduce of one number over the world.
    pub fn find(
        arguments: &MonitoringArguments,
        dtype: Dtype,
        context: &ParallelContext,
        device: &Device,
    ) -> anyhow::Result<Option<Self>> {
        let world = context.world_group();
        // Ranks that share a processor slow each other down, in training too.
        world.barrier()?;
        let (mine, source) = of_rank(arguments, dtype, device);
        let mut sum = [mine];
        world.all_reduce(&mut sum, ReduceOp::Sum)?;
        if sum[0].is_nan() {
            let device = source;
            tracing::warn!("no peak is known of {device}: give --peak-tflops for MFU");
            return Ok(None);
        }
        Ok(Some(Self {
            flops_per_second: sum[0],
            world_size: context.grid().world_size(),
            source,
        }))
    }

    /// The model's FLOP/s over all ranks as a share of the peak, in per cent.
    pub fn utilisation_percent(&self, model_flops_per_second: f64) -> Option<f64> {
        utilisation_percent(model_flops_per_second, self.flops_per_second)
    }

    /// Returns the peak of one rank, on average, in TFLOP/s.
    pub fn tera_flops_per_rank(&self) -> f64 {
        self.flops_per_second / 1e12 / self.world_size as f64
    }
}

impl fmt::Display for DevicePeak {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.tera_flops_per_rank();
        write!(
            formatter,
            "MFU is of a peak of {each:.4} TFLOP/s per rank: {}",
            self.source
        )
    }
}

/// This rank's peak in FLOP/s, NaN if it is not known, and where it is from.
fn of_rank(arguments: &MonitoringArguments, dtype: Dtype, device: &Device) -> (f64, String) {
    if let Some(peak) = arguments.peak_tflops {
        return (1e12 * peak, "--peak-tflops".to_owned());
    }
    if let Some(name) = device_name(device) {
        let number_type = match dtype {
            Dtype::F64 => NumberType::F64,
            Dtype::F32 => NumberType::F32,
            Dtype::F16 => NumberType::F16,
            Dtype::Bf16 => NumberType::Bf16,
        };
        return (of_gpu(&name, number_type).unwrap_or(f64::NAN), name);
    }
    let matrix = Tensor::<2>::random([SIZE, SIZE], Distribution::Uniform(-1.0, 1.0), device);
    let flops = 2.0 * (SIZE as f64).powi(3);
    let measured: Result<f64, Infallible> = measure(flops, MEASURED, || {
        let product = matrix.clone().matmul(matrix.clone());
        // A read waits for what it reads.
        product.slice([0..1, 0..1]).into_data();
        Ok(())
    });
    let Ok(measured) = measured;
    (
        measured,
        format!("a matmul of {SIZE} x {SIZE}, measured on all ranks at once"),
    )
}
