//! Every operation, forward and backward, against the f64 host versions, on every backend that runs here.
//!
//! One file per operation; [`backends`] says on which backends and in which types each of its claims is tried. A
//! backend that does not run here is said to be missing, and its trials count as ignored.

mod accumulate;
mod adamw;
mod add_norm;
mod allocation;
mod alone;
mod attention_memory;
mod backends;
mod bias_dropout_add;
mod bias_gelu;
mod compare;
mod cross_entropy;
#[cfg(feature = "cuda")]
mod cuda;
mod device_limits;
mod dropout;
mod embedding;
mod flash_attention;
mod l2_norm;
mod layouts;
mod linear;
mod norm;
mod nothing;
mod paged_attention;
mod random;
mod ranges;
mod reductions;
mod references;
mod refusals;
mod rotary;
mod softmax;
mod swiglu;
mod threads;
mod vector_sums;

use libtest_mimic::Arguments;

#[global_allocator]
static ALLOCATOR: allocation::ThreadAllocator = allocation::ThreadAllocator;

fn main() {
    let arguments = Arguments::from_args();
    #[cfg(feature = "cuda")]
    cuda::has_cuda();
    let trials = [
        accumulate::trials(),
        adamw::trials(),
        add_norm::trials(),
        attention_memory::trials(),
        bias_dropout_add::trials(),
        bias_gelu::trials(),
        cross_entropy::trials(),
        device_limits::trials(),
        embedding::trials(),
        flash_attention::trials(),
        l2_norm::trials(),
        linear::trials(),
        norm::trials(),
        nothing::trials(),
        paged_attention::trials(),
        random::trials(),
        ranges::trials(),
        reductions::trials(),
        references::trials(),
        refusals::trials(),
        rotary::trials(),
        softmax::trials(),
        swiglu::trials(),
        threads::trials(),
        vector_sums::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    cuda_source::leave(libtest_mimic::run(&arguments, trials).has_failed())
}
