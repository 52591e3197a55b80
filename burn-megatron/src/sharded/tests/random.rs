//! Random tensors: the same elements under every placement.

use burn_backend::Backend;
use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{DType, Distribution, FloatDType, IntDType, Shape, TensorData, TensorMetadata};
use burn_flex::{Flex, FlexDevice};

use super::super::kind::{Float, Int, Kind};
use super::super::placement::AxisPlacement::{Replicated, Shard};
use super::super::placement::{REPLICATED, Reduction};
use super::super::random::{floats, ints};
use super::super::tensor::Local;
use super::super::{Mesh, Sharded, ShardedTensor};
use super::draw::Draw;
use super::place::placements;
use super::ranks::{self, Layout, on_mesh};
use crate::random::RandomStream;
use crate::sharded::movement::redistribute::{gather, redistribute};

type S = Sharded<Flex>;

const DISTRIBUTIONS: [Distribution; 5] = [
    Distribution::Default,
    Distribution::Bernoulli(0.3),
    Distribution::Uniform(-2.0, 5.0),
    Distribution::Normal(1.0, 2.0),
    Distribution::Normal(-3.0, 0.5),
];

const FLOATS: [FloatDType; 4] = [FloatDType::F64, FloatDType::F32, FloatDType::F16, FloatDType::BF16];

const INTS: [IntDType; 8] = [
    IntDType::I64,
    IntDType::I32,
    IntDType::I16,
    IntDType::I8,
    IntDType::U64,
    IntDType::U32,
    IntDType::U16,
    IntDType::U8,
];

fn draw_floats(key: u64, shape: &[usize], distribution: Distribution, dtype: FloatDType) -> ShardedTensor<Flex, Float> {
    let stream = RandomStream::new(key, "test");
    floats(stream, Shape::from(shape.to_vec()), distribution, &FlexDevice, dtype)
}

fn draw_ints(key: u64, shape: &[usize], distribution: Distribution, dtype: IntDType) -> ShardedTensor<Flex, Int> {
    let stream = RandomStream::new(key, "test");
    ints(stream, Shape::from(shape.to_vec()), distribution, &FlexDevice, dtype)
}

#[test]
fn a_gathered_random_tensor_has_the_bits_of_one_rank() {
    let layouts: [Layout; 3] = [ranks::CONTEXT_3, ranks::TENSOR_4, ranks::DATA_2_TENSOR_2];
    for layout in layouts {
        on_mesh(layout, |_, mesh| {
            let mut draw = Draw::new(3);
            for round in 0..60 {
                let mut shape = draw.shape(1, 4);
                if round % 10 == 0 {
                    // Several chunks, drawn by several threads.
                    shape = vec![5, 67, 31];
                }
                let distribution = draw.pick(&DISTRIBUTIONS);
                let dtype = draw.pick(&FLOATS);
                agrees(&mut draw, mesh, || draw_floats(round, &shape, distribution, dtype));
                let dtype = draw.pick(&INTS);
                agrees(&mut draw, mesh, || draw_ints(round, &shape, distribution, dtype));
            }
        });
    }
}

/// Checks that a part of a tensor that is drawn by itself, gathered, is the whole.
fn agrees<K: Kind<Flex>>(draw: &mut Draw, mesh: &Mesh, make: impl Fn() -> ShardedTensor<Flex, K>) {
    let whole = K::read(gather(make()));
    let shape = make().shape();
    let reductions: &[Reduction] = if whole.dtype().is_float() {
        &[Reduction::Sum]
    } else {
        &[]
    };
    let places = placements(draw, mesh.shape(), &shape.to_vec(), reductions);
    let local = redistribute(make(), mesh, &places);
    let placed = ShardedTensor::<Flex, K>::placed(local, shape, Some(mesh.clone()), places);
    let described = format!("{placed:?}");
    assert_eq!(K::read(gather(placed)), whole, "{described}");
}

#[test]
fn a_mask_is_drawn_in_part_and_kept_for_the_backward_pass() {
    on_mesh(ranks::TENSOR_2, |_, mesh| {
        let mut places = REPLICATED;
        places[0] = Shard(1);
        let part = Flex::float_ones(Shape::new([3, 2]), &FlexDevice, FloatDType::F32);
        let activation = ShardedTensor::placed(part, Shape::new([3, 4]), Some(mesh.clone()), places);
        let mask = draw_floats(1, &[3, 4], Distribution::Bernoulli(0.5), FloatDType::F32);
        let dropped = S::float_mul(activation.clone(), mask.clone());
        let gradient = S::float_mul(mask.clone(), activation);
        assert_eq!(dropped.places(), places);
        assert_eq!(dropped.places()[1], Replicated);
        let Local::Deferred(deferred) = mask.clone().into_local() else {
            panic!("a random tensor is deferred");
        };
        let (of, drawn) = deferred.made.get().expect("it has been drawn");
        let own = mesh.shape().range(4, &places, 1, mesh.ranks());
        assert_eq!((of, drawn.shape().to_vec()), (&vec![0..3, own], vec![3, 2]));
        let [dropped, gradient, mask] =
            [dropped, gradient, mask].map(|tensor| <Float as Kind<Flex>>::read(gather(tensor)));
        assert_eq!(dropped, mask);
        assert_eq!(gradient, mask);
    });
}

fn data(tensor: ShardedTensor<Flex, Float>) -> TensorData {
    <Float as Kind<Flex>>::read(gather(tensor))
}

fn drawn() -> TensorData {
    data(S::float_random(
        Shape::new([4, 5]),
        Distribution::Default,
        &FlexDevice,
        FloatDType::F32,
    ))
}

#[test]
fn a_seed_repeats_and_each_draw_has_its_own_numbers() {
    S::seed(&FlexDevice, 5);
    let (first, second) = (drawn(), drawn());
    assert_ne!(first, second);
    S::seed(&FlexDevice, 5);
    assert_eq!((drawn(), drawn()), (first.clone(), second));
    S::seed(&FlexDevice, 6);
    assert_ne!(drawn(), first);
}

#[test]
fn draws_of_other_threads_do_not_count_among_those_of_a_seeded_one() {
    S::seed(&FlexDevice, 7);
    let first = drawn();
    let second = drawn();
    S::seed(&FlexDevice, 7);
    assert_eq!(drawn(), first);
    let of_another = std::thread::spawn(drawn).join().expect("it draws");
    assert_eq!(drawn(), second);
    assert!(of_another != first && of_another != second);
}

#[test]
fn integers_are_drawn_by_their_draw_too() {
    let drawn = || {
        let tensor = S::int_random(
            Shape::new([20]),
            Distribution::Uniform(0.0, 100.0),
            &FlexDevice,
            IntDType::I64,
        );
        <Int as Kind<Flex>>::read(gather(tensor))
    };
    S::seed(&FlexDevice, 1);
    let (first, second) = (drawn(), drawn());
    assert_ne!(first, second);
    S::seed(&FlexDevice, 1);
    assert_eq!(drawn(), first);
}

#[test]
fn moments_are_those_of_the_distributions() {
    const COUNT: usize = 200_000;
    // Mean, variance, and fourth central moment.
    let expected = |distribution| match distribution {
        Distribution::Default => (0.5, 1.0 / 12.0, 1.0 / 80.0),
        Distribution::Uniform(low, high) => {
            let width: f64 = high - low;
            ((low + high) / 2.0, width.powi(2) / 12.0, width.powi(4) / 80.0)
        }
        Distribution::Bernoulli(p) => (p, p * (1.0 - p), p * (1.0 - p) * (1.0 - 3.0 * p * (1.0 - p))),
        Distribution::Normal(mean, deviation) => (mean, deviation.powi(2), 3.0 * deviation.powi(4)),
    };
    for distribution in DISTRIBUTIONS {
        let data = data(draw_floats(9, &[COUNT], distribution, FloatDType::F32));
        let values: Vec<f64> = data.iter::<f64>().collect();
        let (mean, variance, fourth) = expected(distribution);
        let average = |of: &dyn Fn(f64) -> f64| values.iter().map(|&value| of(value)).sum::<f64>() / COUNT as f64;
        // Five standard errors of each sample moment.
        let error = |variance: f64| 5.0 * (variance / COUNT as f64).sqrt();
        let got = average(&|value| value);
        assert!((got - mean).abs() < error(variance), "{distribution:?}: mean {got}");
        let got = average(&|value| (value - mean).powi(2));
        assert!(
            (got - variance).abs() < error(fourth - variance.powi(2)),
            "{distribution:?}: variance {got}"
        );
        // Neighbours, and elements of two rows, do not go together.
        for distance in [1, 2, 500] {
            let pairs = values.iter().zip(&values[distance..]);
            let together = pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / (COUNT - distance) as f64;
            assert!(
                together.abs() < error(variance.powi(2)),
                "{distribution:?}: {together} at {distance}"
            );
        }
    }
}

#[test]
fn uniform_numbers_stay_below_their_end() {
    for dtype in FLOATS {
        for (low, high) in [(0.0, 1.0), (1.0, 1.25), (-3.0, -2.0)] {
            let data = data(draw_floats(2, &[100_000], Distribution::Uniform(low, high), dtype));
            assert!(
                data.iter::<f64>().all(|value| low <= value && value < high),
                "{dtype:?} {low} {high}"
            );
        }
    }
}

#[test]
fn uniform_integers_take_every_value_below_their_end() {
    for dtype in INTS {
        let tensor = draw_ints(4, &[1000], Distribution::Uniform(3.0, 8.0), dtype);
        let data = <Int as Kind<Flex>>::read(gather(tensor));
        assert_eq!(data.dtype(), DType::from(dtype));
        let values: std::collections::BTreeSet<i64> = data.iter::<i64>().collect();
        assert_eq!(values.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    }
}

#[test]
#[should_panic(expected = "Bernoulli: expected a probability in [0, 1], got 1.5")]
fn a_probability_above_one_is_refused() {
    draw_floats(0, &[1], Distribution::Bernoulli(1.5), FloatDType::F32);
}
