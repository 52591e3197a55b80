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
//! | `movement` | how they get from one placement to another, at once or while something else is computed |
//! | `random` | random tensors, of which each rank draws its part |
//! | `apply`, `operations`, `kernels` | an operation by its rule; tables of burn's operations; fused ones |
//! | `intermediate`, `slot`, `device` | tensors by burn's descriptions of operations, and in burn's `Tensor`; their device |
//! | `any_tensor` | tensors of any kind and backend, to be looked at |
//! | `plan`, `parallelize` | which parameters are cut, by name; a model's parameters placed by that |
//! | `explain` | where parameters are, and what a real step communicated and computed |
//! | `suggest` | the plan that costs least, by such steps |
//! | `gradients`, `early_scatter`, `clipping` | a backward pass whose gradients end where their parameters are; their norm |
//! | `mixed_precision` | computing in 16 bits, with parameters in f32 |
//! | `placed_data_parallel` | a placed model in `DistributedDataParallel` |
//! | `compare` | a program in a layout against the program on one rank; the first tensor that differs |
//! | `agreement` | what ranks were given, compared in some steps; whether replicas are the same |
//! | `record` | an optimizer's record that every rank can save |

mod agreement;
mod any_tensor;
mod apply;
mod backend;
mod clipping;
mod compare;
mod device;
mod early_scatter;
mod explain;
mod gradients;
mod intermediate;
mod kernels;
mod kind;
mod mesh;
mod mixed_precision;
mod movement;
mod operations;
mod parallelize;
mod placed_data_parallel;
mod placement;
mod plan;
mod random;
mod record;
mod rules;
mod slot;
mod suggest;
mod tensor;
mod traffic;

#[cfg(test)]
mod tests;

pub use agreement::{ReplicaCheck, ReplicaError, check_replicas};
pub use backend::Sharded;
pub use clipping::clip_gradients;
pub use compare::{
    CompareConfig, CompareError, Comparison, FirstDifference, Judgement, Layout, OperandState, Run, Stage, Trace, What,
    compare, mark, training,
};
pub use device::device;
pub use explain::{Explanation, ParameterPlace, TrafficRow, explain};
pub use gradients::{backward, backward_unplaced, place_gradients};
pub use kind::{Bool, Float, Int, Kind, KindCall};
pub use mesh::{Mesh, MeshAxis, MeshError};
pub use mixed_precision::{cast_parameters, scale_gradients};
pub use operations::{OperationRule, operation_rules, operations_page};
pub use parallelize::{describe, distribute, from_local, parallelize, whole};
pub use placed_data_parallel::{
    LocalDataParallel, LocalMut, LocalParameter, LocalParameterError, LocalParameters, PlacedDataParallel, PlacedError,
};
pub use placement::{AxisPlacement, AxisRole, MAX_AXES, MeshShape, Placements, REPLICATED, Reduction};
pub use plan::{Plan, PlanError, PlannedParameter};
pub use record::whole_record;
pub use slot::{OtherDevice, SlotKind};
pub use suggest::{Candidate, SuggestConfig, SuggestError, Suggestion};
pub use tensor::ShardedTensor;
pub use traffic::{Phase, TrafficKind, TrafficRecord};
