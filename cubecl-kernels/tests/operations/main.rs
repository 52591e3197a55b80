//! Every operation, forward and backward, against the f64 host versions, on every backend that runs here.
//!
//! One file per operation; [`support::backends`] says on which backends and in which types each of its claims is tried.
//! A backend that does not run here is said to be missing, and its trials count as ignored.

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

use libtest_mimic::Arguments;

#[global_allocator]
static ALLOCATOR: support::allocation::ThreadAllocator = support::allocation::ThreadAllocator;

fn main() {
    let arguments = Arguments::from_args();
    #[cfg(feature = "cuda")]
    support::cuda::has_cuda();
    let trials = [
        accumulate::trials(),
        adamw::trials(),
        add_norm::trials(),
        every_operation::attention_memory::trials(),
        bias_dropout_add::trials(),
        bias_gelu::trials(),
        cross_entropy::trials(),
        every_operation::device_limits::trials(),
        embedding::trials(),
        flash_attention::trials(),
        l2_norm::trials(),
        linear::trials(),
        norm::trials(),
        every_operation::nothing::trials(),
        paged_attention::trials(),
        every_operation::random::trials(),
        ranges::trials(),
        every_operation::reductions::trials(),
        every_operation::references::trials(),
        every_operation::refusals::trials(),
        rotary::trials(),
        softmax::trials(),
        swiglu::trials(),
        every_operation::threads::trials(),
        every_operation::vector_sums::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    cuda_source::leave(libtest_mimic::run(&arguments, trials).has_failed())
}
