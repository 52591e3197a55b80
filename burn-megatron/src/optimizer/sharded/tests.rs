//! Tests of `ShardedOptimizer`: updates of shards are those of the whole.

use burn::grad_clipping::GradientClippingConfig;
use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::optim::{AdamConfig, Sgd, SgdConfig};
use burn::tensor::{DType, Device, FloatDType, Tensor};

use super::*;
use crate::context::ParallelContext;
use crate::data_parallel::{DataParallelConfig, ShardingStrategy, StepPart};
use crate::optimizer::three_layers::{Layers, gradients, gradients_using, layers};
use crate::optimizer::{AdafactorConfig, AdamW, AdamWConfig};

type Wrapped = DistributedDataParallel<Linear>;

fn wrapped(dtype: FloatDType) -> Wrapped {
    let weight = Tensor::<2>::from_floats([[1.0], [1.0]], &Device::flex().autodiff()).cast(dtype);
    let layer = Linear {
        weight: Param::from_tensor(weight),
        bias: None,
    };
    let config = DataParallelConfig::new().with_sharding(ShardingStrategy::Optim);
    DistributedDataParallel::new(layer, &ParallelContext::single(1), config).expect("one rank")
}

/// burn's gradient descent.
fn sgd() -> ElementWiseOptimizer<Sgd> {
    ElementWiseOptimizer::from(SgdConfig::new().build())
}

/// A step with the gradient (3, 4) of the weight (1, 1).
fn step<O: ElementWise>(module: &mut Wrapped, optimizer: &mut ShardedOptimizer<O>) {
    let dtype = FloatDType::from(module.dtype());
    let input = Tensor::<2>::from_floats([[3.0, 4.0]], &Device::flex().autodiff()).cast(dtype);
    module
        .backward(StepPart::Last, |layer| layer.forward(input).sum())
        .expect("one rank");
    let gradients = module.gradients().expect("one rank");
    optimizer.step(1.0, module, gradients).expect("one rank");
}

#[test]
fn main_values_of_16_bit_parameters_move_by_clipped_gradients() {
    let mut module = wrapped(FloatDType::BF16);
    let sgd = sgd().with_grad_clipping(GradientClippingConfig::Norm(0.001).init());
    let mut optimizer = ShardedOptimizer::new(&module, sgd).expect("it is new");
    step(&mut module, &mut optimizer);
    let main = optimizer
        .piece(0)
        .main
        .clone()
        .expect("parameters have 16 bits")
        .into_data();
    assert_eq!(main.dtype(), DType::F32);
    // In 16 bits neither step would be seen: the next number below 1 is 0.996.
    for (value, expected) in main.iter::<f64>().zip([1.0 - 0.0006, 1.0 - 0.0008]) {
        assert!((value - expected).abs() < 1e-6, "{value} for {expected}");
    }
}

#[test]
fn a_loaded_record_is_not_undone_by_main_values() {
    let mut module = wrapped(FloatDType::BF16);
    let mut optimizer = ShardedOptimizer::new(&module, sgd()).expect("it is new");
    step(&mut module, &mut optimizer);
    let weight = Tensor::<2>::from_floats([[64.0], [64.0]], &Device::flex().autodiff()).cast(FloatDType::BF16);
    let mut layer = module.module().clone();
    layer.weight = Param::from_tensor(weight);
    module.load_record(layer.into_record()).expect("the same fields");
    step(&mut module, &mut optimizer);
    let values: Vec<f64> = module.module().weight.val().into_data().iter().collect();
    assert_eq!(values, [61.0, 60.0]);
}

#[test]
fn parameters_are_waited_for_when_they_are_read() {
    for overlaps in [true, false] {
        let mut module = wrapped(FloatDType::F32);
        let optimizer = ShardedOptimizer::new(&module, sgd()).expect("it is new");
        let mut optimizer = optimizer.with_overlap_param_gather(overlaps);
        step(&mut module, &mut optimizer);
        let is_here = |module: &Wrapped| module.module_in_flight().weight.is_initialized();
        assert_eq!(is_here(&module), !overlaps);
        let read_by_a_layer = module.module_in_flight().clone().weight.val().into_data();
        assert!(is_here(&module), "what a clone has read is the module's too");
        assert_eq!(read_by_a_layer.try_to_vec::<f32>().expect("f32"), [-2.0, -3.0]);
        assert_eq!(module.module().weight.val().into_data(), read_by_a_layer);
        // Again, from one update to the next without a pass between them.
        let gradients = {
            step(&mut module, &mut optimizer);
            let input = Tensor::<2>::from_floats([[1.0, 0.0]], &Device::flex().autodiff());
            let of_last = module.backward(StepPart::Last, |layer| layer.forward(input).sum());
            of_last.expect("one rank");
            module.gradients().expect("one rank")
        };
        optimizer.step(1.0, &mut module, gradients).expect("one rank");
        let values = module.into_module().weight.val().into_data();
        assert_eq!(values.try_to_vec::<f32>().expect("f32"), [-6.0, -7.0]);
    }
}

#[test]
fn each_group_clips_by_its_own_optimizer() {
    let mut module = wrapped(FloatDType::F32);
    let clipping = GradientClippingConfig::Value(3.5).init();
    let optimizers = vec![sgd(), sgd().with_grad_clipping(clipping)];
    let mut optimizer = ShardedOptimizer::with_groups(&module, optimizers, |_| 1).expect("there are two");
    step(&mut module, &mut optimizer);
    let values = module.module().weight.val().into_data();
    assert_eq!(values.try_to_vec::<f32>().expect("f32"), [-2.0, -2.5]);
}

/// Three layers in several buckets, and an optimizer of two groups.
fn layers_and_optimizer(sharding: ShardingStrategy) -> (Layers, ShardedOptimizer<AdamW>) {
    let module = layers(sharding, FloatDType::BF16);
    let optimizers = [0.1, 0.0].map(|decay| AdamWConfig::new().with_weight_decay(decay).init());
    let group = |entry: &GradientEntry| usize::from(entry.dimensions() == 1);
    let optimizer = ShardedOptimizer::with_groups(&module, optimizers.into(), group).expect("there are two");
    (module, optimizer)
}

#[test]
fn buckets_are_updated_as_parameters_are_one_by_one() {
    for sharding in [ShardingStrategy::NoShard, ShardingStrategy::Optim] {
        let ((mut module, mut optimizer), (mut other, mut at_once)) =
            (layers_and_optimizer(sharding), layers_and_optimizer(sharding));
        for step in 0..5 {
            let of_step = gradients(&mut module, step);
            optimizer.step(0.01, &mut module, of_step).expect("one rank");
            let of_step = gradients(&mut other, step);
            if step == 3 {
                // As after a checkpoint is loaded.
                at_once.step(0.01, &mut other, of_step).expect("one rank");
            } else {
                let form = at_once.optimizers[0].bucket_form().expect("it is AdamW");
                let update = at_once.begin(0.01, &mut other, of_step).expect("one rank");
                assert!(update.gradients.num_buckets() > 1);
                at_once.step_buckets(form, &mut other, update).expect("one rank");
            }
            for (number, (value, other)) in module.values().into_iter().zip(other.values()).enumerate() {
                assert_eq!(
                    value.into_data(),
                    other.into_data(),
                    "parameter {number} after step {step}"
                );
                let [piece, other] = [&optimizer, &at_once].map(|optimizer| optimizer.piece(number));
                assert_eq!(piece.steps, other.steps);
                let main = |piece: Piece<AdamW>| piece.main.expect("parameters have 16 bits").into_data();
                let moments = |piece: &Piece<AdamW>| {
                    let state = piece.state.clone();
                    state.map(|state| (state.time, state.moment_1.into_data(), state.moment_2.into_data()))
                };
                assert_eq!(moments(&piece), moments(&other), "parameter {number} after step {step}");
                assert_eq!(main(piece), main(other), "parameter {number} after step {step}");
            }
        }
    }
}

#[test]
fn adafactor_updates_main_values_of_16_bit_parameters() {
    let mut module = wrapped(FloatDType::BF16);
    let adafactor = AdafactorConfig::new().with_weight_decay(0.001).init();
    let mut optimizer = ShardedOptimizer::new(&module, adafactor).expect("it is new");
    step(&mut module, &mut optimizer);
    // Of a matrix of one column the direction is 1, and so is the size of the parameter.
    let main = optimizer.piece(0).main.expect("parameters have 16 bits").into_data();
    for value in main.iter::<f64>() {
        assert!((value + 0.001).abs() < 1e-7, "{value}");
    }
}

/// Steps of whole parameters by one optimizer, and of pieces.
#[test]
fn adafactor_updates_pieces_as_whole_parameters() {
    for (sharding, used) in [(ShardingStrategy::NoShard, 3), (ShardingStrategy::Optim, 2)] {
        let (mut module, mut whole) = (
            layers(sharding, FloatDType::F64),
            layers(ShardingStrategy::NoShard, FloatDType::F64),
        );
        let config = AdafactorConfig::new().with_weight_decay(0.1);
        let mut optimizer = ShardedOptimizer::new(&module, config.init()).expect("it is new");
        let mut adaptor = config.init();
        for step in 0..4 {
            // A layer that is not used keeps its values and its state.
            let used = if step == 1 { used } else { 3 };
            let gradients = gradients_using(&mut module, step, used);
            optimizer.step(0.05, &mut module, gradients).expect("one rank");
            let gradients = gradients_using(&mut whole, step, used);
            whole.step(0.05, &mut adaptor, gradients).expect("one rank");
            for (number, (value, expected)) in module.values().into_iter().zip(whole.values()).enumerate() {
                let difference = (value - expected).abs().max().into_data();
                let difference = difference.iter::<f64>().next().expect("a maximum");
                assert!(difference < 1e-13, "parameter {number} after step {step}: {difference}");
            }
        }
        let state = optimizer
            .piece(0)
            .state
            .expect("it has been updated")
            .moment
            .into_factored();
        assert_eq!((state.rows.dims(), state.columns.dims()), ([20], [30]));
        let last = optimizer.piece(5).state.expect("it has been updated");
        assert_eq!((last.time, last.moment.into_elements().dims()), (used + 1, [30]));
    }
}

#[test]
fn an_optimizer_with_state_is_refused() {
    let mut module = layers(ShardingStrategy::NoShard, FloatDType::F32);
    let mut adam = ElementWiseOptimizer::from(AdamConfig::new().build());
    let gradients = gradients(&mut module, 0);
    module.step(0.1, &mut adam, gradients).expect("one rank");
    let error = ShardedOptimizer::new(&module, adam).err();
    assert!(
        matches!(error, Some(OptimizerError::HasState { count: 8 })),
        "{error:?}"
    );
}
