//! The runtime itself: small kernels compiled for GPUs, and run on the CPU with the right results and the right errors.

mod compiled;
mod run;
mod samples;

use libtest_mimic::Arguments;

fn main() {
    let arguments = Arguments::from_args();
    let trials = [compiled::trials(), run::trials()].into_iter().flatten().collect();
    cuda_source::leave(libtest_mimic::run(&arguments, trials).has_failed())
}
