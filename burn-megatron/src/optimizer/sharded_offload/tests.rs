//! Offloaded optimizers against those that are not: the same bits, on one rank, which is a device to itself.

use std::path::Path;

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{DType, FloatDType, Tensor, TensorData};
use tempfile::TempDir;

use crate::data_parallel::{ElementWiseOptimizer, GradientEntry, ShardingStrategy};
use crate::optimizer::offload::{HostState, Offload};
use crate::optimizer::three_layers::{Layers, gradients, layers};
use crate::optimizer::{
    AdafactorConfig, AdamW, AdamWConfig, OptimizerError, OptimizerOffload, Sgd, SgdConfig, ShardedOptimizer,
    StoredOptimizer,
};

/// Place of the state of an optimizer.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    Here,
    Host {
        share: f64,
        at_once: bool,
    },
    File {
        folder: &'a Path,
        share: f64,
        at_once: bool,
    },
}

fn optimizer<O>(module: &Layers, of_decay: impl Fn(f64) -> O, place: Place) -> ShardedOptimizer<O>
where
    O: StoredOptimizer,
{
    let optimizers = vec![of_decay(0.1).into(), of_decay(0.0).into()];
    let group = |entry: &GradientEntry| usize::from(entry.dimensions() == 1);
    let (folder, share, at_once) = match place {
        Place::Here => return ShardedOptimizer::with_groups(module, optimizers, group).expect("there are two"),
        Place::Host { share, at_once } => (None, share, at_once),
        Place::File { folder, share, at_once } => (Some(folder), share, at_once),
    };
    let main = if module.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let optimizers: Vec<ElementWiseOptimizer<O>> = optimizers;
    let offload = Offload::to(HostState::new(folder, 0, main), share, at_once);
    ShardedOptimizer::build(module, optimizers, group, Some(offload)).expect("there is room")
}

#[test]
fn adafactor_is_refused_by_name() {
    let folder = TempDir::new().expect("a folder");
    let module = layers(ShardingStrategy::Optim, FloatDType::F32);
    let offload = OptimizerOffload::Nvme {
        folder: folder.path().to_owned(),
        fraction: 0.5,
    };
    let optimizers = vec![AdafactorConfig::new().init()];
    let made = ShardedOptimizer::with_groups_offloaded(&module, optimizers, |_| 0, &offload);
    let refusal = made.expect_err("it needs sums over whole parameters").to_string();
    assert!(
        refusal.starts_with("Adafactor's state cannot be offloaded"),
        "{refusal}"
    );
}

/// State of all pieces: updates, main values and the optimizer's tensors.
type Held = Vec<(u64, Option<TensorData>, Vec<(&'static str, TensorData)>)>;

fn held<O: StoredOptimizer>(optimizer: &ShardedOptimizer<O>, module: &Layers) -> Held {
    let of_entry = |entry: &GradientEntry| {
        let range = optimizer.owned_range(entry.number);
        let data = optimizer.piece_data(entry.number, range).expect("it is there");
        (data.steps, data.main, data.tensors)
    };
    module.trained().iter().map(of_entry).collect()
}

fn values(module: &Layers) -> Vec<TensorData> {
    module.values().into_iter().map(Tensor::into_data).collect()
}

const SHARE: f64 = 0.5;

fn places(folder: &Path) -> Vec<Place<'_>> {
    let mut places = Vec::new();
    for at_once in [false, true] {
        for share in [1.0, SHARE] {
            places.push(Place::Host { share, at_once });
            places.push(Place::File { folder, share, at_once });
        }
    }
    places
}

/// Compares five steps of each place with those in memory.
fn compare<O: StoredOptimizer>(dtype: FloatDType, of_decay: impl Fn(f64) -> O) {
    let folder = TempDir::new().expect("a folder");
    for sharding in ShardingStrategy::ALL {
        for place in places(folder.path()) {
            let (mut usual, mut module) = (layers(sharding, dtype), layers(sharding, dtype));
            let mut here = optimizer(&usual, &of_decay, Place::Here);
            let mut offloaded = optimizer(&module, &of_decay, place);
            for step in 0..5 {
                let of_step = gradients(&mut usual, step);
                here.step(0.01, &mut usual, of_step).expect("one rank");
                let of_step = gradients(&mut module, step);
                offloaded.step(0.01, &mut module, of_step).expect("one rank");
                let facts = format!("{sharding:?}, {place:?}, step {step}");
                assert_eq!(values(&usual), values(&module), "{facts}");
                assert_eq!(held(&here, &usual), held(&offloaded, &module), "{facts}");
            }
        }
    }
}

fn adamw(decay: f64) -> AdamW {
    AdamWConfig::new().with_weight_decay(decay).build()
}

fn sgd(momentum: f64) -> impl Fn(f64) -> Sgd {
    move |decay| {
        let config = SgdConfig::new().with_momentum(momentum);
        config.with_weight_decay(decay).build()
    }
}

#[test]
fn offloaded_updates_have_the_bits_of_those_in_place() {
    for dtype in [FloatDType::BF16, FloatDType::F32, FloatDType::F64] {
        compare(dtype, adamw);
        compare(dtype, sgd(0.9));
        compare(dtype, sgd(0.0));
    }
}

#[test]
fn a_share_is_offloaded_and_the_rest_stays() {
    let module = layers(ShardingStrategy::Optim, FloatDType::BF16);
    let total = module.trained().len();
    let count = |share| {
        let optimizer = optimizer(&module, adamw, Place::Host { share, at_once: false });
        let here = optimizer.pieces.iter().filter(|piece| piece.main.is_some()).count();
        let offload = optimizer.offload.as_ref().expect("it was given");
        let there = (0..total).filter(|&number| offload.state.holds(number)).count();
        assert_eq!(here + there, total);
        there
    };
    // Of 630 elements each, in the order of the update.
    assert_eq!(
        [0.0, 0.3, 0.5, 1.0].map(count),
        [0, 2, 4, 6].map(|count| count.min(total))
    );
}

#[test]
fn state_of_parameters_that_are_frozen_and_thawed_is_as_it_would_be_in_place() {
    let folder = TempDir::new().expect("a folder");
    for place in places(folder.path()) {
        let sharding = ShardingStrategy::NoShard;
        let run = |place| {
            let mut module = layers(sharding, FloatDType::BF16);
            let mut optimizer = optimizer(&module, adamw, place);
            for step in 0..6 {
                if step == 2 || step == 4 {
                    let change = |mut layers: Vec<Linear>| {
                        let layer = layers.remove(1);
                        let layer = if step == 2 { layer.no_grad() } else { trained(layer) };
                        layers.insert(1, layer);
                        layers
                    };
                    module.update(change).expect("one rank");
                }
                let of_step = gradients(&mut module, step);
                optimizer.step(0.01, &mut module, of_step).expect("one rank");
            }
            (values(&module), held(&optimizer, &module))
        };
        assert_eq!(run(Place::Here), run(place), "{place:?}");
    }
}

fn trained(layer: Linear) -> Linear {
    Linear {
        weight: layer
            .weight
            .map(|weight| Tensor::from_inner(weight.inner()).require_grad()),
        bias: layer
            .bias
            .map(|bias| bias.map(|bias| Tensor::from_inner(bias.inner()).require_grad())),
    }
}

#[test]
fn other_values_and_another_type_reach_what_is_offloaded() {
    let folder = TempDir::new().expect("a folder");
    for place in places(folder.path()) {
        let run = |place| {
            let mut module = layers(ShardingStrategy::Optim, FloatDType::F32);
            let mut optimizer = optimizer(&module, adamw, place);
            for step in 0..4 {
                if step == 2 {
                    let double = |layer: Linear| Linear {
                        weight: (layer.weight).map(|weight| Tensor::from_inner(weight.inner() * 2).require_grad()),
                        ..layer
                    };
                    module
                        .update(|layers| layers.into_iter().map(double).collect())
                        .expect("one rank");
                    optimizer.take_parameters(&module).expect("the same pieces");
                }
                if step == 3 {
                    fn half<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
                        Tensor::from_inner(tensor.inner().cast(FloatDType::BF16)).require_grad()
                    }
                    let cast = |layer: Linear| Linear {
                        weight: layer.weight.map(half),
                        bias: layer.bias.map(|bias| bias.map(half)),
                    };
                    module
                        .update(|layers| layers.into_iter().map(cast).collect())
                        .expect("one rank");
                }
                let of_step = gradients(&mut module, step);
                optimizer.step(0.01, &mut module, of_step).expect("one rank");
            }
            (values(&module), held(&optimizer, &module))
        };
        assert_eq!(run(Place::Here), run(place), "{place:?}");
    }
}

#[test]
fn what_cannot_be_offloaded_is_an_error_before_the_first_step() {
    let module = layers(ShardingStrategy::NoShard, FloatDType::F32);
    let build = |offload: OptimizerOffload| {
        let optimizers = vec![ElementWiseOptimizer::from(adamw(0.0))];
        ShardedOptimizer::with_groups_offloaded(&module, optimizers, |_| 0, &offload)
    };
    let said = |offload| {
        let error: Option<OptimizerError> = build(offload).err();
        error.expect("it cannot be").to_string()
    };
    let fraction = 1.5;
    assert!(said(OptimizerOffload::Cpu { fraction }).contains("from 0 to 1, got 1.5"));
    let nvme = |folder: &Path| OptimizerOffload::Nvme {
        folder: folder.to_owned(),
        fraction: 1.0,
    };
    assert!(said(nvme(Path::new("/nowhere"))).contains("made in /nowhere, which --nvme-path names"));
    // Nothing to do where the CPU computes.
    let unchanged = build(OptimizerOffload::Cpu { fraction: 1.0 }).expect("it changes nothing");
    assert!(unchanged.offload.is_none());
    let folder = TempDir::new().expect("a folder");
    assert!(build(nvme(folder.path())).expect("there is room").offload.is_some());
}
