//! On one rank, what burn's own clipping gives.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use proptest::prelude::*;

use super::*;
use crate::data_parallel::{DataParallelConfig, DistributedDataParallel, ShardingStrategy, StepPart};

/// Parameters whose gradients are chosen.
#[derive(Module, Debug)]
struct Parameters {
    parts: Vec<Param<Tensor<1>>>,
}

fn tensor(values: &[f64], dtype: DType) -> Tensor<1> {
    let data = TensorData::new(values.to_vec(), [values.len()]).convert_dtype(dtype);
    Tensor::from_data(data, (&Device::flex().autodiff(), dtype))
}

/// Returns the gradients of parameters, as they are given.
fn reduced(
    gradients: &[Vec<f64>],
    dtype: DType,
    config: DataParallelConfig,
    context: &ParallelContext,
) -> ReducedGradients {
    let parts = gradients.iter().map(|gradient| {
        let value = tensor(gradient, dtype).zeros_like();
        Param::from_tensor(value)
    });
    let module = Parameters { parts: parts.collect() };
    let mut wrapped = DistributedDataParallel::new(module, context, config).expect("one rank");
    let given: Vec<Tensor<1>> = gradients.iter().map(|gradient| tensor(gradient, dtype)).collect();
    let loss = |module: Parameters| {
        let parts = module.parts.iter().zip(given);
        Tensor::cat(parts.map(|(part, given)| (part.val() * given).sum()).collect(), 0).sum()
    };
    wrapped.backward(StepPart::Last, loss).expect("one rank");
    wrapped.gradients().expect("one rank")
}

fn sharding() -> impl Strategy<Value = ShardingStrategy> {
    proptest::sample::select(
        &[
            ShardingStrategy::NoShard,
            ShardingStrategy::Optim,
            ShardingStrategy::OptimGrads,
        ][..],
    )
}

fn gradients() -> impl Strategy<Value = Vec<Vec<f64>>> {
    // Exact in f32.
    let number = prop_oneof![8 => -2.0f32..2.0, 1 => Just(0.0)].prop_map(f64::from);
    let gradient = proptest::collection::vec(number, 1..300);
    let zero = (1usize..5).prop_map(|len| vec![0.0; len]);
    proptest::collection::vec(prop_oneof![8 => gradient, 1 => zero], 1..4)
}

proptest! {
    #[test]
    fn each_parameter_is_clipped_as_by_burn(
        gradients in gradients(), threshold in 0.01f32..20.0, is_f64: bool, by_norm: bool, sharding in sharding(),
        bucket_size in 1usize..600,
    ) {
        let dtype = if is_f64 { DType::F64 } else { DType::F32 };
        let clipping = if by_norm {
            GradientClipping::Norm(threshold)
        } else {
            GradientClipping::Value(threshold / 10.0)
        };
        let context = ParallelContext::single(1);
        let config = DataParallelConfig::new()
            .with_bucket_size(Some(bucket_size))
            .with_sharding(sharding);
        let mut clipped = reduced(&gradients, dtype, config, &context);
        clipped.clip_each(&clipping, &context).expect("one rank");
        clipped.gather().expect("one rank");
        // burn adds squares up in the gradient's type.
        let tolerance = match (by_norm, is_f64) {
            (false, _) => 0.0,
            (true, true) => 1e-13,
            (true, false) => 1e-5,
        };
        for (entry, gradient) in clipped.entries().iter().zip(&gradients) {
            let expected = clipping.clip_gradient(tensor(gradient, dtype)).into_data();
            for (found, expected) in clipped.values(entry).into_iter().zip(expected.iter::<f64>()) {
                prop_assert!((found - expected).abs() <= tolerance * expected.abs(), "{} for {}", found, expected);
            }
        }
    }
}

#[test]
fn a_gradient_that_is_not_finite_changes_its_own_parameter_only() {
    let context = ParallelContext::single(1);
    let gradients = [vec![3.0, 4.0], vec![f64::NAN, 4.0], vec![f64::INFINITY, 4.0]];
    for clipping in [GradientClipping::Norm(1.0), GradientClipping::Value(0.5)] {
        let mut clipped = reduced(&gradients, DType::F64, DataParallelConfig::new(), &context);
        clipped.clip_each(&clipping, &context).expect("one rank");
        for (entry, gradient) in clipped.entries().iter().zip(&gradients) {
            let expected = clipping.clip_gradient(tensor(gradient, DType::F64)).into_data();
            for (found, expected) in clipped.values(entry).into_iter().zip(expected.iter::<f64>()) {
                let is_same = (found - expected).abs() <= 1e-15 || found.is_nan() && expected.is_nan();
                assert!(is_same, "{}: {found} for {expected}", entry.name);
            }
        }
    }
}

#[test]
fn norms_are_those_of_each_parameter() {
    let context = ParallelContext::single(1);
    let gradients = [vec![3.0, 4.0], vec![0.0], vec![-2.0; 9]];
    let reduced = reduced(&gradients, DType::F32, DataParallelConfig::new(), &context);
    assert_eq!(reduced.norms(&context).expect("one rank"), [5.0, 0.0, 6.0]);
}
