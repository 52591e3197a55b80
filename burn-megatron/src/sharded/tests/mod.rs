//! Tests of the sharded backend: placement changes cost, never meaning.
//!
//! `operations` runs every operation of burn's with random placements of its operands and compares the result with the
//! inner backend's: a table of cases, one for each operation that has a rule. The other files have what a rule, a
//! redistribution and a random tensor claim.
//!
//! The random choices are the same in every run. `SHARDED_SEED` gives others, `SHARDED_ROUNDS` more of them, and
//! `SHARDED_CASE` those of one operation alone.

mod batches;
mod case;
mod draw;
mod explained;
mod gather_ahead;
mod given;
mod kernels;
mod operations;
mod place;
mod random;
pub mod ranks;
mod records;
mod redistribute;
mod replicas;
mod rules;

use burn::tensor::Device;
use burn_flex::{Flex, FlexDevice};

/// A device of Flex whose tensors are placed.
pub fn new_device() -> Device {
    super::device::<Flex>(FlexDevice)
}

/// Quantized tensors have no placement.
#[test]
#[should_panic(
    expected = "q_from_data: quantized tensors cannot be placed on a mesh; dequantize the model's parameters"
)]
fn quantized_tensors_are_refused_by_name() {
    use burn_backend::TensorData;
    use burn_backend::ops::QTensorOps;

    super::Sharded::<Flex>::q_from_data(TensorData::from([1.0f32]), &FlexDevice);
}
