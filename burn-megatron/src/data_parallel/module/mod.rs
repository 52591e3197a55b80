//! The wrapper around a module: its hooks, passes, updates and parameters.

pub(super) mod binding;
pub(super) mod bucket_in_flight;
pub(super) mod comparison;
pub(super) mod hook_module;
pub(super) mod parameters_in_flight;
pub(super) mod pass;
#[cfg(test)]
pub(super) mod printing;
pub(super) mod replace;
pub(super) mod sharded_parameters;
pub(super) mod step;
pub(super) mod update;
pub(super) mod wrapper;
