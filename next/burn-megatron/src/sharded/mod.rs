//! [`Sharded`]: any burn model, unmodified, on many ranks.
//!
//! A backend around another. Its tensors have the shape that the model sees, and a placement on each axis of a [`Mesh`]
//! of ranks: whole everywhere, cut along a dimension, or a sum that has not been made. Every operation has a rule that
//! says where its operands must be and where its result then is; what is elsewhere is moved. So a model of any layers
//! is made parallel by placing its parameters: tensor-parallel, data-parallel, fully sharded, or all of these.
//! **Placement changes cost, never meaning.**
//!
//! | file | what it holds |
//! |---|---|
//! | `placement`, `rules` | integers: placements, ranges, and the rule of each kind of operation |
//! | `mesh`, `traffic` | the ranks as a grid; what they communicated |
//! | `tensor`, `kind` | tensors |
//! | `movement` | how they get from one placement to another |
//! | `random` | random tensors, of which each rank draws its part |
//! | `apply`, `operations` | an operation by its rule; tables of burn's operations |
//! | `intermediate`, `slot`, `device` | tensors by burn's descriptions of operations, and in burn's `Tensor`; a device for them |
//! | `plan`, `parallelize` | which parameters are cut, by name; a model's parameters placed by that |
//! | `gradients` | a backward pass whose gradients end where their parameters are |

mod apply;
mod backend;
mod device;
mod gradients;
mod intermediate;
mod kind;
mod mesh;
mod movement;
mod operations;
mod parallelize;
mod placement;
mod plan;
mod random;
mod rules;
mod slot;
mod tensor;
mod traffic;

#[cfg(test)]
mod tests;

pub use backend::Sharded;
pub use device::device;
pub use gradients::{backward, place_gradients};
pub use kind::{Bool, Float, Int, Kind, KindCall};
pub use mesh::{Mesh, MeshAxis, MeshError};
pub use operations::{OperationRule, operation_rules};
pub use parallelize::{describe, distribute, parallelize, whole};
pub use placement::{AxisPlacement, AxisRole, MAX_AXES, MeshShape, Placements, REPLICATED, Reduction};
pub use plan::{Plan, PlanError, PlannedParameter};
pub use slot::{OtherDevice, SlotKind};
pub use tensor::ShardedTensor;
pub use traffic::{Phase, TrafficKind, TrafficRecord};
