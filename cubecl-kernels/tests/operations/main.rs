//! Every operation, forward and backward, against the f64 host versions, on every device that runs here.
//!
//! One file per operation; [`support::setting`] says on which devices and in which types each of its claims is tried.
//! With the feature `cuda` this program starts itself again with the emulator of CUDA.

mod accumulate;
mod adamw;
mod add_norm;
mod bias_dropout_add;
mod bias_gelu;
mod cross_entropy;
mod embedding;
mod every_operation;
mod flash_attention;
mod l2_norm;
mod linear;
mod norm;
mod paged_attention;
mod ranges;
mod rotary;
mod softmax;
mod support;
mod swiglu;

use std::process::ExitCode;

use libtest_mimic::Arguments;

#[global_allocator]
static ALLOCATOR: support::allocation::ThreadAllocator = support::allocation::ThreadAllocator;

fn main() -> ExitCode {
    #[cfg(feature = "cuda")]
    if let Some(code) = support::emulator::run_again() {
        return code.into();
    }
    let trials = [
        accumulate::trials(),
        adamw::trials(),
        add_norm::trials(),
        bias_dropout_add::trials(),
        bias_gelu::trials(),
        every_operation::attention_memory::trials(),
        cross_entropy::trials(),
        #[cfg(feature = "cuda")]
        every_operation::device_limits::trials(),
        embedding::trials(),
        flash_attention::trials(),
        l2_norm::trials(),
        linear::trials(),
        norm::trials(),
        every_operation::nothing::trials(),
        #[cfg(feature = "cuda")]
        every_operation::random::trials(),
        paged_attention::trials(),
        ranges::trials(),
        #[cfg(feature = "cuda")]
        every_operation::reductions::trials(),
        every_operation::refusals::trials(),
        rotary::trials(),
        softmax::trials(),
        swiglu::trials(),
        every_operation::threads::trials(),
        every_operation::vector_sums::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
