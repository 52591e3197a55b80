//! Times training steps of burn's `TransformerEncoder`: `block_step flex|slot|sharded|tp2 [steps [width]]`.
//!
//! `flex` is burn's own backend, `slot` the same in the open slot, `sharded` one rank of `Sharded`, `tp2` two ranks of
//! it. Prints milliseconds: the median and the least.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::launch::World;
use burn_megatron::sharded::{AxisRole, Mesh, Plan, backward, device, parallelize};
use burn_ndarray::NdArrayDevice;

const BATCH: usize = 4;
const SEQ: usize = 128;

const LAYERS: usize = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let mut number = |otherwise| arguments.next().map_or(Ok(otherwise), |text| text.parse::<usize>());
    let (steps, width) = (number(15), number(256));
    let (Ok(steps @ 1..), Ok(width @ 8..), "flex" | "slot" | "sharded" | "tp2") = (steps, width, kind.as_str()) else {
        eprintln!("usage: block_step flex|slot|sharded|tp2 [steps [width]], of one step and a width of 8 at least");
        return ExitCode::FAILURE;
    };
    let ranks = if kind == "tp2" { 2 } else { 1 };
    burn_megatron::run(ranks, |world| time(&kind, [steps, width], world))
}

fn time(kind: &str, [steps, width]: [usize; 2], world: &World) -> Result<(), Box<dyn Error>> {
    let device = match kind {
        "flex" => Device::flex(),
        "slot" => Device::new(NdArrayDevice::serve::<Flex>(FlexDevice)),
        _ => device::<Flex>(FlexDevice),
    };
    let mesh = match kind {
        "tp2" => Some(Mesh::connect(world, &[(AxisRole::Tensor, 2)], &GroupConfig::new())?),
        "sharded" => Some(Mesh::new([])?),
        _ => None,
    };
    device.seed(1);
    let device = device.autodiff();
    let config = TransformerEncoderConfig::new(width, 4 * width, 4, LAYERS).with_dropout(0.0);
    let mut model: TransformerEncoder = config.init(&device);
    if kind == "tp2"
        && let Some(mesh) = &mesh
    {
        let plan = Plan::new().attention("layers.*.mha").feed_forward("layers.*.pwff");
        model = parallelize(model, &plan, mesh)?;
    }
    let mut optimizer = AdamWConfig::new().init();
    let values: Vec<f32> = (0..BATCH * SEQ * width)
        .map(|index| (index as f32 * 0.37).sin())
        .collect();
    let input = Tensor::<3>::from_data(TensorData::new(values, [BATCH, SEQ, width]), &device);
    let mut times = Vec::new();
    let mut last = 0.0;
    // The first one fills caches.
    for step in 0..=steps {
        let begin = Instant::now();
        let output = model.forward(TransformerEncoderInput::new(input.clone()));
        let loss = (output - input.clone()).powi_scalar(2).mean();
        let (loss, gradients) = match &mesh {
            Some(_) => backward(loss, &model)?,
            None => (
                loss.clone().inner(),
                GradientsParams::from_grads(loss.backward(), &model),
            ),
        };
        model = optimizer.step(1e-3, model, gradients);
        last = loss.into_scalar::<f32>();
        if step > 0 {
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    if world.rank() == 0 {
        println!(
            "{kind}: median {:.2} ms, least {:.2} ms, loss {last}",
            times[times.len() / 2],
            times[0]
        );
    }
    Ok(())
}
