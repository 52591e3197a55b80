//! Flat buckets of gradients: which parameters are where, their memory, and their reduction during the backward pass.

pub(super) mod bucket;
pub(super) mod bucket_parameter;
pub(super) mod flat;
pub(super) mod gradient_entry;
pub(super) mod reducer;
pub(super) mod summing_ranks;
