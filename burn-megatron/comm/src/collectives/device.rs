//! What an engine for the memory of a device needs of a group. For burn-megatron's engine over NCCL: no version
//! promises that it stays.
//!
//! A group keeps its engine for host memory. [`GroupOptions::attach`](super::GroupOptions::attach) gives it a
//! [`DeviceEngine`] as well, whose calls take their places among the group's by [`GroupCore::queue`] and
//! [`GroupCore::queue_start`].

pub use super::call::GroupLabel;
pub use super::device_engine::DeviceEngine;
pub use super::group_core::{GroupCore, Made};
pub use super::health::{GroupHealth, NotedWait, WaitDeadline, ahead_of_time};
pub use super::lanes::pending::Awaited;
pub use super::process_group::describe;
