//! All cases: which trials there are, and which function runs each on a rank.

mod checkpoints;
mod checks;
mod clipping;
mod comparison;
mod converted;
mod drawing;
mod faults;
pub mod from_pytorch;
mod generation;
mod half;
mod huggingface;
mod in_process;
mod layers;
mod layouts;
mod lora;
mod memory;
mod offload;
mod one_rank;
mod pipeline;
mod ramp_up;
mod sharded;
mod shared_heads;
mod wrapper;

use burn::tensor::{Device, FloatDType, IntDType};
use burn_megatron::launch::{Environment, World};
use libtest_mimic::Trial;
pub use tests::problem;

use tests::harness::Case;
use tests::one_in;

/// Trials that mostly wait for limits of seconds.
pub fn timed() -> Vec<Trial> {
    faults::trials().into_iter().chain(pipeline::faults::trials()).collect()
}

/// All others, in the order in which they are listed.
pub fn trials() -> Vec<Trial> {
    let kinds = [
        layouts::trials(),
        sharded::trials(),
        shared_heads::trials(),
        checkpoints::trials(),
        half::trials(),
        huggingface::trials(),
        lora::trials(),
        from_pytorch::transformers::trials(),
        from_pytorch::settings::trials(),
        generation::trials(),
        memory::trials(),
        offload::trials(),
        ramp_up::trials(),
        layers::trials(),
        from_pytorch::fixtures::trials(),
        from_pytorch::optimizers::trials(),
        converted::trials(),
        drawing::trials(),
        wrapper::trials(),
        clipping::trials(),
        pipeline::trials(),
    ];
    // All of them take 25 minutes.
    kinds.into_iter().flat_map(|kind| one_in(12, kind)).collect()
}

/// What a rank of a case does before it joins the job.
pub fn before_join(case: &Case) -> anyhow::Result<()> {
    if let Ok(dtype) = case.setting::<String>("dtype") {
        let dtype = match dtype.as_str() {
            "f64" => FloatDType::F64,
            _ => FloatDType::F32,
        };
        let configured = Device::flex().configure((dtype, IntDType::I32));
        configured.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    }
    faults::before_join(case)
}

/// Changes who a rank believes to be.
pub fn change_environment(case: &Case, environment: &mut Environment) {
    faults::change_environment(case, environment);
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    match case.name.as_str() {
        "layout" => layouts::run(case, world),
        "checkpoint" => checkpoints::run(case, world),
        "half" => half::run(case, world),
        "huggingface" => huggingface::run(case, world),
        "lora" => lora::run(case, world),
        "transformers" => from_pytorch::transformers::run(case, world),
        "settings" => from_pytorch::settings::run(case, world),
        "generation" => generation::run(case, world),
        "memory" => memory::run(case, world),
        "traffic" => memory::run_traffic(case, world),
        "peak" => memory::run_peak(case, world),
        "start" => memory::run_start(case, world),
        "offload" => offload::run(case, world),
        "one_rank" => one_rank::run(case),
        "sharded" => sharded::run(case, world),
        "shared_heads" => shared_heads::run(case, world),
        "ramp_up" => ramp_up::run(case, world),
        "layer" => layers::run(case, world),
        "fixture" => from_pytorch::fixtures::run(case, world),
        "optimizer" => from_pytorch::optimizers::run(case, world),
        "unmatched_group" => from_pytorch::optimizers::unmatched_group(case, world),
        "converted" => converted::run(case, world),
        "drawing" => drawing::run(case, world),
        "wrapper" => wrapper::run(case, world),
        "clipping" => clipping::run(case, world),
        "pipeline" => pipeline::run(case, world),
        "fault" => faults::run(case, world),
        other => anyhow::bail!("there is no case {other}"),
    }
}
