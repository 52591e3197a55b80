//! Parameters that are gathered ahead, in the same order as in the pass before and in another; moves that are started.

use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorData, TensorMetadata};
use burn_flex::{Flex, FlexDevice};

use super::super::kind::{Float, Kind};
use super::super::placement::AxisPlacement::{self, Replicated, Shard};
use super::super::placement::{PARTIAL_SUM, Placements, REPLICATED};
use super::super::{Mesh, ShardedTensor, TrafficRecord};
use super::ranks::{DATA_2, DATA_2_TENSOR_2, on_mesh};
use crate::sharded::movement::gather_ahead::{GatherOrder, Parameter, Pass, gathering_ahead, name};
use crate::sharded::movement::in_flight::{InFlight, is_one_collective};
use crate::sharded::movement::redistribute::redistribute;

type Placed = ShardedTensor<Flex, Float>;

fn places(data: AxisPlacement, tensor: AxisPlacement) -> Placements {
    let mut places = REPLICATED;
    (places[0], places[1]) = (data, tensor);
    places
}

/// Of an odd length, a different one for each number.
fn whole(number: usize) -> FloatTensor<Flex> {
    let shape = [2 * number + 3, 5];
    let values: Vec<f32> = (0..shape[0] * 5).map(|index| (100 * number + index) as f32).collect();
    Flex::float_from_data(TensorData::new(values, shape), &FlexDevice)
}

fn cut(number: usize, mesh: &Mesh) -> Placed {
    let (whole, cut) = (whole(number), places(Shard(0), Replicated));
    let shape = whole.shape();
    let local = redistribute(ShardedTensor::<Flex, Float>::whole(whole), mesh, &cut);
    ShardedTensor::placed(local, shape, Some(mesh.clone()), cut)
}

fn values(tensor: FloatTensor<Flex>) -> TensorData {
    <Float as Kind<Flex>>::read(tensor)
}

/// Gathers parameters in this order, and returns the collectives that this made.
fn pass(mesh: &Mesh, used: &[usize], order: &mut GatherOrder) -> Vec<TrafficRecord> {
    let tensors: Vec<Placed> = (0..4).map(|number| cut(number, mesh)).collect();
    let parameters = tensors.iter().map(|tensor| {
        let part = redistribute(tensor.clone(), mesh, &tensor.places());
        Parameter::<Flex> {
            shape: tensor.shape(),
            places: tensor.places(),
            part: Box::new(move || part.clone()),
        }
    });
    let parameters = parameters.collect();
    mesh.start_counting();
    let this = Pass::new();
    gathering_ahead(this, mesh, parameters, order, || {
        for (number, tensor) in tensors.iter().enumerate() {
            name::<Flex>(this, tensor.id(), number);
        }
        // Another model's first parameter, whose number is that of this one's.
        let other = cut(4, mesh);
        name::<Flex>(Pass::new(), other.id(), 0);
        let gathered = redistribute(other, mesh, &REPLICATED);
        assert_eq!(values(gathered), values(whole(4)));
        for &number in used {
            let gathered = redistribute(tensors[number].clone(), mesh, &REPLICATED);
            assert_eq!(values(gathered), values(whole(number)), "{number} of {used:?}");
        }
    });
    mesh.stop_counting()
}

#[test]
fn each_parameter_is_gathered_once_per_use_however_the_order_changes() {
    on_mesh(DATA_2, |_, mesh| {
        let mut order = GatherOrder::default();
        // The first pass learns; the second follows; a reversed one, one with a part left out, and a repeated one.
        for (used, wasted) in [
            (vec![0, 1, 2, 3, 3, 1, 0], 0),
            (vec![0, 1, 2, 3, 3, 1, 0], 0),
            (vec![0, 2, 3], 2),
            (vec![0, 2, 3], 0),
            (vec![3, 2, 0], 0),
            (vec![3, 2, 0, 0, 0], 0),
            (vec![1, 3], 0),
            (vec![], 0),
            (vec![2, 2], 0),
        ] {
            let records = pass(mesh, &used, &mut order);
            assert_eq!(records.len(), 1 + used.len() + wasted, "{used:?}: {records:?}");
        }
    });
}

#[test]
fn a_move_that_was_started_ends_as_redistribute_does() {
    for layout in [DATA_2, DATA_2_TENSOR_2] {
        on_mesh(layout, |_, mesh| {
            let tensor_cuts: &[_] = if layout.len() > 1 {
                &[Replicated, Shard(0), Shard(1)]
            } else {
                &[Replicated]
            };
            for &tensor in tensor_cuts {
                for dimension in 0..2 {
                    let gathered = places(Replicated, tensor);
                    let scattered = places(Shard(dimension), tensor);
                    for (from, to) in [(scattered, gathered), (places(PARTIAL_SUM, tensor), scattered)] {
                        let whole = whole(2);
                        let shape: Shape = whole.shape();
                        let local = redistribute(Placed::whole(whole), mesh, &from);
                        let placed = Placed::placed(local.clone(), shape.clone(), Some(mesh.clone()), from);
                        let expected = redistribute(placed, mesh, &to);
                        // An inner cut of the same dimension is in the way.
                        if is_one_collective(mesh, &from, &to) {
                            let started = InFlight::<Flex>::start(local, mesh, &shape, &from, &to);
                            assert_eq!(values(started.wait()), values(expected), "{from:?} to {to:?}");
                        }
                    }
                    assert!(is_one_collective(mesh, &places(Shard(1), Replicated), &REPLICATED));
                }
            }
        });
    }
}
