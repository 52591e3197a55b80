//! Parameters of which each rank keeps a part: where the parts are, and how they are gathered.

pub(super) mod owned_values;
pub(super) mod parameter_gather;
pub(super) mod parameter_offload;
pub(super) mod parameter_shards;
