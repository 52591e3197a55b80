//! Records of placed models whose parameters burn changes as they are saved and loaded, and of optimizers.

use std::collections::BTreeMap;

use burn::module::{Module, list_param_ids};
use burn::nn::{Linear, LinearConfig, LinearLayout};
use burn::optim::{AdamWConfig, ModuleOptimizer, OptimizerRecord};
use burn::store::ModuleRecord;
use burn::tensor::{Bytes, Device, Tensor, TensorData, Tolerance};

use super::new_device;
use super::ranks::{TENSOR_2, on_mesh};
use crate::context::ParallelContext;
use crate::data_parallel::DataParallelConfig;
use crate::initialize;
use crate::sharded::{AxisRole, Mesh, PlacedDataParallel, Plan, backward, parallelize, whole, whole_record};

/// A square layer whose weight is stored transposed.
fn layer(device: &Device) -> Linear {
    device.seed(1);
    initialize(LinearConfig::new(4, 4).with_layout(LinearLayout::Col).init(device))
}

fn record(model: &Linear) -> Vec<u8> {
    model.clone().into_record().into_bytes().expect("in memory").to_vec()
}

fn loaded(model: Linear, record: Vec<u8>) -> Linear {
    let record = ModuleRecord::from_bytes(Bytes::from_bytes_vec(record)).expect("it is whole");
    model.load_record(record)
}

#[test]
fn a_weight_that_is_stored_transposed_is_saved_and_loaded_so() {
    on_mesh(TENSOR_2, |_, mesh| {
        let plain = layer(&new_device().autodiff());
        let (saved, weight) = (record(&plain), plain.weight.val().into_data());
        let placed = parallelize(plain, &Plan::new().shard("weight", AxisRole::Tensor, 1), mesh);
        let placed = placed.expect("the ranks divide it");
        assert_eq!(record(&placed), saved);
        let again = loaded(placed, saved);
        assert_eq!(whole(again.weight.val().inner()).into_data(), weight);
    });
}

#[test]
fn so_it_is_in_distributed_data_parallel() {
    let context = ParallelContext::single(1);
    let mesh = Mesh::of(&context).expect("no stages");
    let plain = layer(&new_device().autodiff());
    let (saved, weight) = (record(&plain), plain.weight.val().into_data());
    let placed = parallelize(plain, &Plan::new(), &mesh).expect("nothing is cut");
    let wrapped = PlacedDataParallel::new(placed, &mesh, &context, DataParallelConfig::new());
    let model = wrapped.expect("one rank").model();
    assert_eq!(record(&model), saved);
    assert_eq!(loaded(model, saved).weight.val().into_data(), weight);
}

/// Several layers: ranks would read their states in different orders.
#[derive(Module, Debug)]
struct Layers {
    layers: Vec<Linear>,
}

impl Layers {
    fn new(device: &Device) -> Self {
        device.seed(1);
        let layer = || LinearConfig::new(4, 4).init(device);
        Self {
            layers: (0..6).map(|_| layer()).collect(),
        }
    }

    fn step(self, number: usize, optimizer: &mut ModuleOptimizer, device: &Device) -> Self {
        let input = Tensor::<2>::full([3, 4], 0.5 + number as f32, device);
        let forward = |hidden, layer: &Linear| layer.forward(hidden).tanh();
        let output = self.layers.iter().fold(input, forward);
        let (_, gradients) = backward(output.mean(), &self).unwrap();
        optimizer.step(1e-2, self, gradients)
    }
}

/// The tensors of an optimizer's record by their names, apart from burn's identifiers, which differ by rank.
fn tensors(record: OptimizerRecord, model: &Layers) -> BTreeMap<String, TensorData> {
    let ids = list_param_ids(model);
    let reader = burn_pack::Reader::from_bytes(record.into_bytes().expect("in memory")).expect("a record");
    let tensors = reader.into_tensors().expect("all of them").into_iter().map(|tensor| {
        let (name, dtype, shape, id, bytes) = tensor.into_parts().expect("in memory");
        let number = ids
            .iter()
            .position(|known| Some(known.val()) == id)
            .expect("the model's");
        let field = name.rsplit('.').next().expect("a name").to_owned();
        (format!("{number} {field}"), TensorData::from_bytes(bytes, shape, dtype))
    });
    tensors.collect()
}

#[test]
fn an_optimizers_record_is_whole_on_every_rank_and_is_cut_again_when_it_is_loaded() {
    let ranks = on_mesh(TENSOR_2, |_, mesh| {
        let device = new_device().autodiff();
        let [one, two] = [Plan::new(), Plan::new().shard("layers.*.weight", AxisRole::Tensor, 1)].map(|plan| {
            let mut model = parallelize(Layers::new(&device), &plan, mesh).expect("the ranks divide it");
            let mut optimizer = AdamWConfig::new().init();
            for number in 0..3 {
                model = model.step(number, &mut optimizer, &device);
            }
            let record = || whole_record(&optimizer).unwrap();
            let tensors = tensors(record(), &model);
            let mut loaded = AdamWConfig::new().init().load_record(record());
            let again = model.clone().step(3, &mut loaded, &device);
            model = model.step(3, &mut optimizer, &device);
            let weights = [model, again].map(|model| {
                let weights = model
                    .layers
                    .iter()
                    .map(|layer| whole(layer.weight.val().inner()).into_data());
                weights.collect::<Vec<_>>()
            });
            assert_eq!(weights[0], weights[1]);
            let states = whole_record(&loaded).unwrap();
            assert_eq!(states.len(), tensors.len());
            tensors
        });
        assert_eq!(one.len(), 24);
        for ((name, one), (other, two)) in one.iter().zip(&two) {
            assert_eq!(name, other);
            one.assert_approx_eq::<f32>(two, Tolerance::relative(1e-5));
        }
        two
    });
    assert_eq!(ranks[0], ranks[1]);
}
