//! How each parameter is laid out over the ranks: its global name, its logical shape, and which part of it is here.
//!
//! Layers declare their parameters at construction ([`ParameterRegistry::declare`]); gradient finalisation, the
//! global norm, the replica check and checkpoints read the declarations.

mod draw;
mod factoring;
mod first_values;
mod initialize;
mod layout;
mod name_pattern;
mod registry;
mod shard_identity;
mod visit;

pub(crate) use draw::refuse_undrawn;
pub use draw::{first_undrawn, initialize};
pub(crate) use factoring::Factoring;
pub(crate) use first_values::FirstValues;
pub use initialize::ParameterInit;
pub use layout::{Distribution, Placement, Run};
pub(crate) use name_pattern::NamePattern;
pub use registry::{Declaration, ParameterRegistry, RegistryError};
pub use shard_identity::{RecordError, ShardIdentity};
pub(crate) use shard_identity::{load_checked, load_unmarked};
pub use visit::{ParameterEntry, list_parameters, read_host, settle_running_states, tensor_from_host};
pub(crate) use visit::{PathVisitor, device_of, list_undrawn, map_once, visit_paths};
