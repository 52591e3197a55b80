//! The ranks of a run, and constructors of tensors that are placed on them as its `PLACEMENT` says.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use burn_megatron::collectives::GroupConfig;
use burn_megatron::launch::{Environment, JoinConfig, World};
use burn_megatron::sharded::{AxisRole, Distribute, Mesh, Sharded, ShardedBackend, distribute};
use burn_tensor::ops::BoolTensorOps;
use burn_tensor::{
    BasicOps, Bool, Distribution, ElementConversion, Float, Int, Numeric, Shape, Tensor, TensorCreationOptions,
    TensorData,
};

/// A rank that waits for one that has failed fails after this time.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Tests of which no tensor is terms of a sum, each with the reason.
const WITHOUT_SUMS: [&str; 1] = [
    // Infinities are multiplied: that of one rank by the others' terms of zero.
    "f16::linalg::outer::test_outer_large_values",
];

struct Run {
    _world: World,
    mesh: Mesh,
    role: AxisRole,
    /// The rule of [`next_place`].
    rule: String,
    /// The number of tensors that are whole, cut, and terms.
    placed: [AtomicUsize; 3],
}

/// One rank if no launcher has started this process.
static RUN: LazyLock<Run> = LazyLock::new(|| {
    let placement = std::env::var("PLACEMENT").unwrap_or_else(|_| "tensor:whole".to_owned());
    let (role, rule) = placement.split_once(':').expect("a role and a rule");
    let role = match role {
        "data" => AxisRole::Data,
        "tensor" => AxisRole::Tensor,
        "context" => AxisRole::Context,
        _ => panic!("no such role: {role}"),
    };
    let world = match Environment::detect().expect("a launcher's variables are right") {
        Some(environment) => World::join(&environment, &JoinConfig::new().with_all_timeouts(TIMEOUT)),
        None => Ok(World::single()),
    };
    let world = world.expect("all ranks join");
    let mesh = Mesh::connect(&world, &[(role, world.world_size())], &GroupConfig::new()).expect("all ranks connect");
    mesh.start_counting();
    Run {
        mesh,
        role,
        rule: rule.to_owned(),
        placed: Default::default(),
        _world: world,
    }
});

/// Prints what the tests have done.
pub fn report() {
    let Some(run) = LazyLock::get(&RUN) else {
        return;
    };
    let [whole, cut, terms] = run.placed.each_ref().map(|count| count.load(Ordering::Relaxed));
    let collectives = run.mesh.stop_counting();
    // Also waits for the others: they need this one as long as they run.
    if let Err(error) = run.mesh.group(0).barrier() {
        println!("{error}");
    }
    let operations = collectives.last().map_or(0, |last| last.number);
    println!(
        "placed: {cut} tensors cut, {terms} terms, {whole} whole; {operations} operations on placed tensors, \
         {} collectives",
        collectives.len()
    );
}

/// The place of a tensor.
#[derive(Clone, Copy, PartialEq)]
pub enum Place {
    Whole,
    /// Each rank has a range of this dimension.
    Cut(usize),
    /// Each rank has a term.
    Sum,
    /// Each rank has what may be the largest value.
    Maximum,
}

/// A test, which runs on a thread of its name.
struct Test {
    tensors: usize,
    random: u64,
    has_sums: bool,
}

impl Test {
    fn new() -> Self {
        // Before this test is known to its thread, so that the thread is still known to the group when the test ends.
        RUN.mesh.group(0).hand_over();
        let thread = std::thread::current();
        let mut hasher = DefaultHasher::new();
        (thread.name(), &RUN.rule).hash(&mut hasher);
        Self {
            tensors: 0,
            random: hasher.finish(),
            has_sums: !thread.name().is_some_and(|name| WITHOUT_SUMS.contains(&name)),
        }
    }

    /// Returns the number of the next tensor, a random number, and the place of one that is to be terms of a sum.
    fn next(&mut self) -> (usize, usize, Place) {
        self.tensors += 1;
        // Knuth's MMIX.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
        let sum = if self.has_sums { Place::Sum } else { Place::Whole };
        (self.tensors - 1, (self.random >> 33) as usize, sum)
    }
}

/// The collectives of a group are one thread's: from now on the next test's.
impl Drop for Test {
    fn drop(&mut self) {
        RUN.mesh.group(0).hand_over();
    }
}

/// Returns the place of the next tensor of a test, of which some dimensions can be cut.
fn next_place(cuttable: &[usize]) -> Place {
    thread_local!(static TEST: RefCell<Test> = RefCell::new(Test::new()));
    let (number, drawn, sum) = TEST.with_borrow_mut(Test::next);
    let cut = |index: usize| {
        cuttable
            .get(index)
            .map_or(Place::Whole, |&dimension| Place::Cut(dimension))
    };
    let (first, last) = (cut(0), cut(cuttable.len().wrapping_sub(1)));
    let in_turn = |even, odd| if number.is_multiple_of(2) { even } else { odd };
    match RUN.rule.as_str() {
        "whole" => Place::Whole,
        "first" => first,
        "middle" => cut(cuttable.len() / 2),
        "last" => last,
        "first-last" => in_turn(first, last),
        "first-whole" => in_turn(first, Place::Whole),
        "whole-last" => in_turn(Place::Whole, last),
        "sum" => sum,
        "sum-last" => in_turn(sum, last),
        "maximum" => Place::Maximum,
        rule if rule.starts_with("random") => match drawn % 6 {
            0 => Place::Whole,
            1 => sum,
            2 => Place::Maximum,
            _ => cut(drawn / 6 % cuttable.len().max(1)),
        },
        rule => panic!("no such rule: {rule}"),
    }
}

/// Kinds of tensors that can be terms.
pub trait Terms<B: ShardedBackend>: BasicOps<B> {
    /// Elements that change nothing when they are added, or are no larger.
    fn neutral(rows: &Tensor<B, 2, Self>, place: Place) -> Tensor<B, 2, Self>;
    /// Adds up the rows, or takes the largest values.
    fn reduce(rows: Tensor<B, 2, Self>, place: Place) -> Tensor<B, 2, Self>;
}

macro_rules! terms_of_numbers {
    ($kind:ident, |$rows:ident| $smallest:expr) => {
        impl<B: ShardedBackend> Terms<B> for $kind {
            fn neutral($rows: &Tensor<B, 2, $kind>, place: Place) -> Tensor<B, 2, $kind> {
                match place {
                    Place::Sum => $rows.zeros_like(),
                    _ => $smallest,
                }
            }

            fn reduce(rows: Tensor<B, 2, $kind>, place: Place) -> Tensor<B, 2, $kind> {
                match place {
                    Place::Sum => rows.sum_dim(0),
                    _ => rows.max_dim(0),
                }
            }
        }
    };
}

terms_of_numbers!(Float, |rows| rows.full_like(f64::NEG_INFINITY));
terms_of_numbers!(Int, |rows| rows.clone().min_dim(1).expand(rows.shape()));

impl<B: ShardedBackend> Terms<B> for Bool {
    fn neutral(rows: &Tensor<B, 2, Bool>, _: Place) -> Tensor<B, 2, Bool> {
        rows.clone().bool_and(rows.clone().bool_not())
    }

    fn reduce(rows: Tensor<B, 2, Bool>, _: Place) -> Tensor<B, 2, Bool> {
        // As Autodiff calls it, it would be another operation.
        let any = Sharded::<B::Local>::bool_any_dim(B::bool(rows.into_primitive()), 0);
        Tensor::from_primitive(B::from_bool(any))
    }
}

/// Returns the tensor, which every rank has, in the next place.
fn placed<B: ShardedBackend, const D: usize, K: Terms<B>>(tensor: Tensor<B, D, K>) -> Tensor<B, D, K>
where
    Tensor<B, D, K>: Distribute,
    Tensor<B, 2, K>: Distribute,
{
    let (ranks, shape) = (RUN.mesh.num_ranks(), tensor.shape());
    let cuttable: Vec<usize> = (0..D).filter(|&dimension| shape[dimension] >= ranks).collect();
    let place = match next_place(&cuttable) {
        Place::Sum | Place::Maximum if shape.num_elements() == 0 => Place::Whole,
        // A sum is never a negative zero.
        Place::Sum
            if tensor
                .to_data()
                .iter::<f64>()
                .any(|element| element.to_bits() == 1 << 63) =>
        {
            Place::Maximum
        }
        place => place,
    };
    let count = |kind: usize| RUN.placed[kind].fetch_add(1, Ordering::Relaxed);
    match place {
        Place::Whole => {
            count(0);
            tensor
        }
        Place::Cut(dimension) => {
            count(1);
            distribute(tensor, &RUN.mesh, RUN.role, dimension)
        }
        Place::Sum | Place::Maximum => {
            count(2);
            // A row for each rank; of the elements every rank's row has its own.
            let length = shape.num_elements();
            let is_own = (0..ranks * length).map(|index| index % length % ranks == index / length);
            let is_own = TensorData::new(is_own.collect::<Vec<bool>>(), [ranks, length]);
            let is_own = Tensor::<B, 2, Bool>::from_data(is_own, &tensor.device());
            let rows = tensor.reshape([1, length]).repeat_dim(0, ranks);
            let rows = K::neutral(&rows, place).mask_where(is_own, rows);
            let terms: Tensor<B, D, K> = K::reduce(distribute(rows, &RUN.mesh, RUN.role, 0), place).reshape(shape);
            let terms = terms.into_placed();
            assert!(ranks == 1 || terms.places()[0].is_partial(), "{terms:?}");
            Distribute::from_placed(terms)
        }
    }
}

/// burn's constructors of these names, without `placed_`.
pub trait Placed<B: ShardedBackend, const D: usize, K: Terms<B>>: From<Tensor<B, D, K>>
where
    Tensor<B, D, K>: Distribute,
    Tensor<B, 2, K>: Distribute,
{
    fn placed_from(data: impl Into<TensorData>) -> Self {
        placed(Tensor::from(data)).into()
    }

    fn placed_from_data(data: impl Into<TensorData>, options: impl Into<TensorCreationOptions<B>>) -> Self {
        placed(Tensor::from_data(data, options)).into()
    }

    fn placed_from_floats(floats: impl Into<TensorData>, device: &B::Device) -> Self {
        Self::placed_from_data(floats.into().convert::<f32>(), device)
    }

    fn placed_from_ints(ints: impl Into<TensorData>, device: &B::Device) -> Self {
        Self::placed_from_data(ints.into().convert::<i32>(), device)
    }

    fn placed_from_bool(data: TensorData, device: &B::Device) -> Self {
        Self::placed_from_data(data, device)
    }

    fn placed_ones(shape: impl Into<Shape>, options: impl Into<TensorCreationOptions<B>>) -> Self {
        placed(Tensor::ones(shape, options)).into()
    }

    fn placed_zeros(shape: impl Into<Shape>, options: impl Into<TensorCreationOptions<B>>) -> Self {
        placed(Tensor::zeros(shape, options)).into()
    }

    fn placed_full(
        shape: impl Into<Shape>,
        value: impl ElementConversion,
        options: impl Into<TensorCreationOptions<B>>,
    ) -> Self {
        placed(Tensor::full(shape, value, options)).into()
    }

    fn placed_random(
        shape: impl Into<Shape>,
        distribution: Distribution,
        options: impl Into<TensorCreationOptions<B>>,
    ) -> Self
    where
        K: Numeric<B>,
    {
        placed(Tensor::random(shape, distribution, options)).into()
    }
}

impl<B: ShardedBackend, const D: usize, K: Terms<B>> Placed<B, D, K> for Tensor<B, D, K>
where
    Tensor<B, D, K>: Distribute,
    Tensor<B, 2, K>: Distribute,
{
}

/// Those of integers.
pub trait PlacedRange<B: ShardedBackend>: From<Tensor<B, 1, Int>> {
    fn placed_arange(range: Range<i64>, options: impl Into<TensorCreationOptions<B>>) -> Self {
        placed(Tensor::<B, 1, Int>::arange(range, options)).into()
    }

    fn placed_arange_step(range: Range<i64>, step: usize, options: impl Into<TensorCreationOptions<B>>) -> Self {
        placed(Tensor::<B, 1, Int>::arange_step(range, step, options)).into()
    }
}

impl<B: ShardedBackend> PlacedRange<B> for Tensor<B, 1, Int> {}
