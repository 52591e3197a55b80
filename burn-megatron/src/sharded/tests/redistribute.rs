//! From every placement to every other: the same logical tensor, with the collectives that are promised.

use std::collections::BTreeMap;

use burn_backend::ops::{FloatTensorOps, ModuleOps};
use burn_backend::{Shape, TensorMetadata};
use burn_flex::Flex;

use super::super::kind::{Float, Kind};
use super::super::placement::AxisPlacement::{self, Partial, Replicated, Shard};
use super::super::placement::{MeshShape, Placements, REPLICATED, Reduction};
use super::super::{Mesh, Sharded, ShardedTensor, TrafficKind};
use super::case::Value;
use super::draw::{Draw, Input, float, int, truth};
use super::place::placed;
use super::ranks::{self, Layout, on_mesh};
use crate::sharded::movement::redistribute::{forget_gathered, gather, redistribute};

type S = Sharded<Flex>;

/// A length that every number of parts cuts unevenly, one that is just enough for four, and an even one.
const SHAPE: [usize; 3] = [7, 4, 8];

/// Every placement of a tensor of [`SHAPE`] whose sums that have not been made are of one kind.
fn all_placements(mesh: &MeshShape, reductions: &[Reduction]) -> Vec<Placements> {
    let mut all = vec![REPLICATED];
    for axis in 0..mesh.num_axes() {
        let cuts = (0..SHAPE.len()).map(Shard).chain([Replicated]);
        let options: Vec<AxisPlacement> = cuts.chain(reductions.iter().copied().map(Partial)).collect();
        let with = |places: &Placements| {
            let mut places = *places;
            options
                .iter()
                .map(|&option| {
                    places[axis] = option;
                    places
                })
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    let is_of_one_kind = |places: &Placements| {
        let mut partial = places.iter().filter(|place| place.is_partial());
        let first = partial.next();
        partial.all(|place| Some(place) == first)
    };
    all.retain(is_of_one_kind);
    all
}

/// Counts the collectives that a change of places must make, by axis and kind.
fn expected_traffic(mesh: &Mesh, from: &Placements, to: &Placements) -> BTreeMap<(usize, TrafficKind), usize> {
    let shape = mesh.shape();
    let mut counts = BTreeMap::new();
    for axis in 0..shape.num_axes() {
        // A cut that stays is made again where one outside it, of the same dimension, changes.
        let is_in_the_way = |dimension: usize| {
            (0..shape.num_axes()).any(|other| {
                let of_dimension = |places: &Placements| places[other] == Shard(dimension);
                shape.is_inside(axis, other) && of_dimension(from) != of_dimension(to)
            })
        };
        let kind = match (from[axis], to[axis]) {
            (Shard(dimension), Shard(other)) if dimension == other => {
                is_in_the_way(dimension).then_some(TrafficKind::AllGather)
            }
            (from, to) if from == to => None,
            // A range is a term with zeros around it.
            (Shard(dimension), Partial(Reduction::Sum)) if !is_in_the_way(dimension) => None,
            // Inside a cut that is not made yet, or that will not stay, there is nothing to exchange.
            (Shard(_), Shard(other)) if !is_in_the_way(other) => Some(TrafficKind::AllToAll),
            (Shard(_), _) => Some(TrafficKind::AllGather),
            (Partial(_), Shard(_)) => Some(TrafficKind::ReduceScatter),
            (Partial(_), _) => Some(TrafficKind::AllReduce),
            (Replicated, _) => None,
        };
        if let Some(kind) = kind {
            *counts.entry((axis, kind)).or_default() += 1;
        }
    }
    counts
}

fn every_pair_agrees<K: Kind<Flex>>(
    mesh: &Mesh,
    input: &Input,
    reductions: &[Reduction],
    tensor: fn(Value<S>) -> ShardedTensor<Flex, K>,
) {
    let mut draw = Draw::new(11);
    let all = all_placements(mesh.shape(), reductions);
    for from in &all {
        for to in &all {
            let source = tensor(placed(&mut draw, mesh, input, from));
            mesh.start_counting();
            let local = redistribute(source, mesh, to);
            let mut counts = BTreeMap::new();
            for record in mesh.stop_counting() {
                *counts.entry((record.axis, record.kind)).or_default() += 1;
            }
            let change = format!("{from:?} -> {to:?}");
            assert_eq!(counts, expected_traffic(mesh, from, to), "{change}");
            let of_part = mesh.shape().local_shape(&SHAPE, to, mesh.ranks());
            assert_eq!(local.shape().to_vec(), of_part, "{change}");
            let target = ShardedTensor::<Flex, K>::placed(local, Shape::from(SHAPE), Some(mesh.clone()), *to);
            assert_eq!(K::read(gather(target)), input.data, "{change}");
        }
    }
}

const LAYOUTS: [Layout; 5] = [
    ranks::TENSOR_2,
    ranks::CONTEXT_3,
    ranks::TENSOR_4,
    ranks::DATA_2_TENSOR_2,
    ranks::TENSOR_2_DATA_2,
];

fn is_the_same_under_every_placement<K: Kind<Flex>>(
    input: &Input,
    reductions: &[Reduction],
    tensor: fn(Value<S>) -> ShardedTensor<Flex, K>,
) {
    for layout in LAYOUTS {
        on_mesh(layout, |_, mesh| every_pair_agrees(mesh, input, reductions, tensor));
    }
}

#[test]
fn floats_are_the_same_under_every_placement() {
    let reductions = [Reduction::Sum, Reduction::Max, Reduction::Min];
    is_the_same_under_every_placement(&float(&mut Draw::new(1), &SHAPE), &reductions, float_of);
}

#[test]
fn integers_are_the_same_under_every_placement() {
    let reductions = [Reduction::Sum, Reduction::Min];
    is_the_same_under_every_placement(&int(&mut Draw::new(2), &SHAPE), &reductions, |value| match value {
        Value::Int(tensor) => tensor,
        _ => unreachable!("the input is of integers"),
    });
}

#[test]
fn booleans_are_the_same_under_every_placement() {
    let input = truth(&mut Draw::new(3), &SHAPE);
    is_the_same_under_every_placement(&input, &[Reduction::Max], |value| match value {
        Value::Bool(tensor) => tensor,
        _ => unreachable!("the input is of booleans"),
    });
}

fn float_of(value: Value<S>) -> ShardedTensor<Flex, Float> {
    match value {
        Value::Float(tensor) => tensor,
        _ => unreachable!("the input is of floats"),
    }
}

/// A float tensor of these elements, on the first axis as `place`.
fn on_first_axis(mesh: &Mesh, input: &Input, place: AxisPlacement) -> ShardedTensor<Flex, Float> {
    let mut places = REPLICATED;
    places[0] = place;
    float_of(placed(&mut Draw::new(5), mesh, input, &places))
}

#[test]
fn bytes_are_those_of_the_whole_tensor() {
    on_mesh(ranks::TENSOR_2, |_, mesh| {
        let input = float(&mut Draw::new(1), &SHAPE);
        let whole = SHAPE.iter().product::<usize>() * size_of::<f64>();
        let mut cut = REPLICATED;
        cut[0] = Shard(2);
        for (from, to) in [
            (Shard(2), REPLICATED),
            (Partial(Reduction::Sum), REPLICATED),
            (Partial(Reduction::Sum), cut),
        ] {
            mesh.start_counting();
            redistribute(on_first_axis(mesh, &input, from), mesh, &to);
            let bytes: Vec<usize> = mesh.stop_counting().iter().map(|record| record.bytes).collect();
            assert_eq!(bytes, [whole], "{from}");
        }
    });
}

/// Returns the bytes that this rank sends, and those that the record says.
fn bytes_of(mesh: &Mesh, tensor: ShardedTensor<Flex, Float>, to: &Placements) -> (u64, usize) {
    let sent = || mesh.group(0).bytes_communicated();
    let before = sent();
    mesh.start_counting();
    redistribute(tensor, mesh, to);
    (
        sent() - before,
        mesh.stop_counting().iter().map(|record| record.bytes).sum(),
    )
}

#[test]
fn a_change_of_cut_sends_a_part_of_what_gathering_does() {
    on_mesh(ranks::TENSOR_4, |_, mesh| {
        const EVEN: [usize; 3] = [8, 4, 16];
        let input = float(&mut Draw::new(1), &EVEN);
        let whole = EVEN.iter().product::<usize>() * size_of::<f64>();
        let mut cut = REPLICATED;
        cut[0] = Shard(1);
        let (exchanged, counted) = bytes_of(mesh, on_first_axis(mesh, &input, Shard(2)), &cut);
        assert_eq!((exchanged, counted), ((whole / 4 * 3 / 4) as u64, whole / 4));
        // In shared memory a rank writes its part once, for all others; over a network each of them gets it.
        let (gathered, counted) = bytes_of(mesh, on_first_axis(mesh, &input, Shard(2)), &REPLICATED);
        assert_eq!((gathered, counted), ((whole / 4) as u64, whole));
    });
}

/// Larger than what a rank can send before another receives.
#[test]
fn ranks_that_send_before_they_receive_do_not_wait_for_each_other() {
    on_mesh(ranks::TENSOR_4, |_, mesh| {
        const LARGE: [usize; 2] = [1021, 2053];
        let input = float(&mut Draw::new(8), &LARGE);
        let mut places = REPLICATED;
        for to in [1, 0, 1] {
            let tensor = on_first_axis(mesh, &input, Shard(1 - to));
            places[0] = Shard(to);
            let local = redistribute(tensor, mesh, &places);
            let target = ShardedTensor::<Flex, Float>::placed(local, Shape::from(LARGE), Some(mesh.clone()), places);
            assert_eq!(<Float as Kind<Flex>>::read(gather(target)), input.data, "to {to}");
        }
    });
}

#[test]
fn a_sum_that_one_clone_has_made_is_made_for_all() {
    on_mesh(ranks::TENSOR_4, |_, mesh| {
        let input = float(&mut Draw::new(4), &SHAPE);
        let tensor = on_first_axis(mesh, &input, Partial(Reduction::Sum));
        let clone = tensor.clone();
        mesh.start_counting();
        S::float_exp(tensor);
        assert_eq!(clone.places(), REPLICATED);
        S::float_exp(clone.clone());
        assert_eq!(<Float as Kind<Flex>>::read(gather(clone)), input.data);
        assert_eq!(mesh.stop_counting().len(), 1);
    });
}

#[test]
fn layers_that_read_one_sequence_parallel_activation_share_its_gather() {
    on_mesh(ranks::TENSOR_2, |_, mesh| {
        let mesh = &mesh.clone().with_sequence_dimension(1);
        let draw = &mut Draw::new(6);
        let hidden = on_first_axis(mesh, &float(draw, &[3, 6, 4]), Shard(1));
        let weights = [0; 3].map(|_| on_first_axis(mesh, &float(draw, &[4, 8]), Shard(1)));
        let count = |hidden: &ShardedTensor<Flex, Float>| {
            mesh.start_counting();
            for weight in weights.clone() {
                let output = S::linear(hidden.clone(), weight, None);
                assert_eq!(output.places()[0], Shard(2));
            }
            mesh.stop_counting()
        };
        let traffic = count(&hidden);
        assert_eq!(traffic.len(), 1, "{traffic:?}");
        assert_eq!(
            (traffic[0].kind, traffic[0].operation),
            (TrafficKind::AllGather, "linear")
        );
        assert_eq!(count(&hidden), []);
        forget_gathered();
        assert_eq!(count(&hidden).len(), 1);
    });
}

#[test]
#[should_panic(expected = "tensors of two meshes")]
fn tensors_of_two_meshes_are_refused() {
    on_mesh(ranks::TENSOR_2, |_, mesh| {
        let input = float(&mut Draw::new(4), &SHAPE);
        let other = mesh.clone().with_sequence_dimension(1);
        let [first, second] = [mesh, &other].map(|mesh| on_first_axis(mesh, &input, Shard(0)));
        S::float_add(first, second);
    });
}
