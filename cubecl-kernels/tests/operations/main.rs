//! Every operation, forward and backward, against the f64 host versions, on every backend that runs here.
//!
//! One file per operation; [`backends`] says on which backends and in which types each of its claims is tried. A
//! backend that does not run here is said to be missing, and its trials count as ignored.

mod backends;
mod compare;
mod flash_attention;
mod norm;
mod random;
mod softmax;
mod swiglu;

use libtest_mimic::Arguments;

fn main() {
    let arguments = Arguments::from_args();
    let trials = [
        flash_attention::trials(),
        norm::trials(),
        random::trials(),
        softmax::trials(),
        swiglu::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    libtest_mimic::run(&arguments, trials).exit();
}
