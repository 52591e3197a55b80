//! Every operation, forward and backward, against the f64 host versions, on every backend that runs here.
//!
//! One file per operation; [`backends`] says on which backends and in which types each of its claims is tried. A
//! backend that does not run here is said to be missing, and its trials count as ignored.

mod adamw;
mod attention_memory;
mod backends;
mod bias_dropout_add;
mod bias_gelu;
mod compare;
mod cross_entropy;
mod flash_attention;
mod l2_norm;
mod layouts;
mod linear;
mod norm;
mod nothing;
mod random;
mod reductions;
mod softmax;
mod swiglu;

use libtest_mimic::Arguments;

fn main() {
    let arguments = Arguments::from_args();
    let trials = [
        adamw::trials(),
        attention_memory::trials(),
        bias_dropout_add::trials(),
        bias_gelu::trials(),
        cross_entropy::trials(),
        flash_attention::trials(),
        l2_norm::trials(),
        linear::trials(),
        norm::trials(),
        nothing::trials(),
        random::trials(),
        reductions::trials(),
        softmax::trials(),
        swiglu::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    libtest_mimic::run(&arguments, trials).exit();
}
