//! Planted faults: places where the builds of tests change what a module's parameters and gradients meet on their way.
//!
//! Each function is called at one place, with what is right there: a parameter as a pass uses it, what takes the
//! gradients, what is done with those of a step, the samples' numbers. With the feature `planted-faults` and debug
//! assertions, the fault that the environment variable `BURN_MEGATRON_PLANTED_FAULT` names changes it. Any other build
//! has no faults.

#[cfg(not(all(feature = "planted-faults", debug_assertions)))]
mod absent;
#[cfg(all(feature = "planted-faults", debug_assertions))]
mod present;

#[cfg(not(all(feature = "planted-faults", debug_assertions)))]
pub(crate) use absent::*;
#[cfg(all(feature = "planted-faults", debug_assertions))]
pub(crate) use present::*;
