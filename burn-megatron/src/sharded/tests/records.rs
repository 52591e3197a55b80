//! Records of placed models whose parameters burn changes as they are saved and loaded.

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig, LinearLayout};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::Backend;
use burn_flex::{Flex, FlexDevice};

use super::super::{AxisRole, Mesh, PlacedDataParallel, Plan, Sharded, parallelize, whole};
use super::ranks::{TENSOR_2, on_mesh};
use crate::context::ParallelContext;
use crate::data_parallel::DataParallelConfig;
use crate::initialize;

type B = Autodiff<Sharded<Flex>>;

/// A square layer whose weight is stored transposed.
fn layer() -> Linear<B> {
    B::seed(&FlexDevice, 1);
    initialize(LinearConfig::new(4, 4).with_layout(LinearLayout::Col).init(&FlexDevice))
}

fn record(model: &Linear<B>) -> Vec<u8> {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    Recorder::<B>::record(&recorder, model.clone().into_record(), ()).expect("in memory")
}

fn loaded(model: Linear<B>, record: Vec<u8>) -> Linear<B> {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    model.load_record(Recorder::<B>::load(&recorder, record, &FlexDevice).expect("it is whole"))
}

#[test]
fn a_weight_that_is_stored_transposed_is_saved_and_loaded_so() {
    on_mesh(TENSOR_2, |_, mesh| {
        let plain = layer();
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
    let plain = layer();
    let (saved, weight) = (record(&plain), plain.weight.val().into_data());
    let placed = parallelize(plain, &Plan::new(), &mesh).expect("nothing is cut");
    let wrapped = PlacedDataParallel::<B, _>::new(placed, &mesh, &context, DataParallelConfig::new());
    let model = wrapped.expect("one rank").model();
    assert_eq!(record(&model), saved);
    assert_eq!(loaded(model, saved).weight.val().into_data(), weight);
}
