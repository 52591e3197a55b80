//! Three layers in several buckets, for the tests of sharded optimizers.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Device, FloatDType, Tensor};

use crate::context::ParallelContext;
use crate::data_parallel::{DataParallelConfig, DistributedDataParallel, ReducedGradients, ShardingStrategy, StepPart};

pub(super) type Layers = DistributedDataParallel<Vec<Linear>>;

pub(super) fn layers(sharding: ShardingStrategy, dtype: FloatDType) -> Layers {
    let number = |index: usize| ((index * 37 % 61) as f32 - 30.0) / 16.0;
    let tensor = |first: usize, count: usize| -> Tensor<1> {
        let values: Vec<f32> = (first..first + count).map(number).collect();
        Tensor::from_floats(&values[..], &Device::flex().autodiff()).cast(dtype)
    };
    let layer = |first: usize| Linear {
        weight: Param::from_tensor(tensor(first, 20 * 30).reshape([20, 30])),
        bias: Some(Param::from_tensor(tensor(first + 7, 30))),
    };
    let config = DataParallelConfig::new()
        .with_sharding(sharding)
        .with_bucket_size(Some(700));
    let module = vec![layer(0), layer(1), layer(2)];
    DistributedDataParallel::new(module, &ParallelContext::single(1), config).expect("one rank")
}

/// The gradients of a step; the last layer has none in the first.
pub(super) fn gradients(module: &mut Layers, step: usize) -> ReducedGradients {
    gradients_using(module, step, if step == 0 { 2 } else { 3 })
}

/// The gradients of a step that uses the first `used` layers.
pub(super) fn gradients_using(module: &mut Layers, step: usize, used: usize) -> ReducedGradients {
    let dtype = FloatDType::from(module.dtype());
    let input = Tensor::<2>::full([3, 20], 0.25 + step as f64, &Device::flex().autodiff()).cast(dtype);
    let forward = |layers: Vec<Linear>| {
        let of_layer = |layer: &Linear| layer.forward(input.clone()).sin().sum();
        let all = layers[..used].iter().map(of_layer);
        all.reduce(|a, b| a + b).expect("some are used")
    };
    module.backward(StepPart::Last, forward).expect("one rank");
    module.gradients().expect("one rank")
}
