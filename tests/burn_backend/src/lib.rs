//! The device and the ranks of a run, and constructors of tensors that are placed on them as its `PLACEMENT` says.

pub mod module;

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use burn_flex::{Flex, FlexDevice};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::launch::{Environment, JoinConfig, World};
use burn_megatron::sharded::{self, AxisRole, Mesh, SlotKind, describe, distribute};
use burn_ndarray::NdArrayDevice;
use burn_tensor::kind::Numeric;
use burn_tensor::{
    Bool, DType, Device, DeviceConfig, Distribution, ElementConversion, Float, Int, Shape, Tensor,
    TensorCreationOptions, TensorData,
};

/// A rank that waits for one that has failed fails after this time.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Tests of which no tensor is terms of a sum, each with the reason.
const WITHOUT_SUMS: [&str; 0] = [];

/// What runs the tests' operations.
enum Run {
    /// burn's own backend, in the slot or outside of it.
    Burn,
    Ranks(Ranks),
}

struct Ranks {
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
    let placement = placement();
    let Some((role, rule)) = placement.split_once(':') else {
        return Run::Burn;
    };
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
    Run::Ranks(Ranks {
        mesh,
        role,
        rule: rule.to_owned(),
        placed: Default::default(),
        _world: world,
    })
});

fn placement() -> String {
    std::env::var("PLACEMENT").unwrap_or_else(|_| "tensor:whole".to_owned())
}

/// Makes burn's default device that of the placement, with these default types. Called before `main`.
pub fn prepare(float: DType, int: DType) {
    // Device 0 of the slot, which is burn's default one.
    let is_in_slot = match placement().as_str() {
        "burn" => false,
        "slot" => {
            NdArrayDevice::serve::<Flex>(FlexDevice);
            true
        }
        _ => {
            sharded::device::<Flex>(FlexDevice);
            true
        }
    };
    // SAFETY: there is no other thread yet.
    unsafe { std::env::set_var("BURN_DEVICE", if is_in_slot { "ndarray" } else { "flex" }) };
    let types = DeviceConfig::default().float_dtype(float).int_dtype(int);
    Device::default().configure(types).expect("there is no tensor yet");
}

/// Prints what the tests have done.
pub fn report() {
    let Some(Run::Ranks(run)) = LazyLock::get(&RUN) else {
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
    run: &'static Ranks,
    tensors: usize,
    random: u64,
    has_sums: bool,
}

impl Test {
    fn new(run: &'static Ranks) -> Self {
        // Before this test is known to its thread, so that the thread is still known to the group when the test ends.
        run.mesh.group(0).hand_over();
        let thread = std::thread::current();
        let mut hasher = DefaultHasher::new();
        (thread.name(), &run.rule).hash(&mut hasher);
        Self {
            run,
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
        self.run.mesh.group(0).hand_over();
    }
}

/// Returns the place of the next tensor of a test, of which some dimensions can be cut.
fn next_place(run: &'static Ranks, cuttable: &[usize]) -> Place {
    thread_local!(static TEST: RefCell<Option<Test>> = const { RefCell::new(None) });
    let (number, drawn, sum) = TEST.with_borrow_mut(|test| test.get_or_insert_with(|| Test::new(run)).next());
    let cut = |index: usize| {
        cuttable
            .get(index)
            .map_or(Place::Whole, |&dimension| Place::Cut(dimension))
    };
    let (first, last) = (cut(0), cut(cuttable.len().wrapping_sub(1)));
    let in_turn = |even, odd| if number.is_multiple_of(2) { even } else { odd };
    match run.rule.as_str() {
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
pub trait Terms: SlotKind {
    /// Elements that change nothing when they are added, or are no larger.
    fn neutral(rows: &Tensor<2, Self>, place: Place) -> Tensor<2, Self>;
    /// Adds up the rows, or takes the largest values.
    fn reduce(rows: Tensor<2, Self>, place: Place) -> Tensor<2, Self>;
}

macro_rules! terms_of_numbers {
    ($kind:ident, |$rows:ident| $smallest:expr) => {
        impl Terms for $kind {
            fn neutral($rows: &Tensor<2, $kind>, place: Place) -> Tensor<2, $kind> {
                match place {
                    Place::Sum => $rows.zeros_like(),
                    _ => $smallest,
                }
            }

            fn reduce(rows: Tensor<2, $kind>, place: Place) -> Tensor<2, $kind> {
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

impl Terms for Bool {
    fn neutral(rows: &Tensor<2, Bool>, _: Place) -> Tensor<2, Bool> {
        rows.clone().bool_and(rows.clone().bool_not())
    }

    fn reduce(rows: Tensor<2, Bool>, _: Place) -> Tensor<2, Bool> {
        rows.any_dim(0)
    }
}

/// Returns the tensor, which every rank has, in the next place.
fn placed<const D: usize, K: Terms>(tensor: Tensor<D, K>) -> Tensor<D, K> {
    let Run::Ranks(run) = &*RUN else {
        return tensor;
    };
    let (ranks, shape) = (run.mesh.num_ranks(), tensor.shape());
    let cuttable: Vec<usize> = (0..D).filter(|&dimension| shape[dimension] >= ranks).collect();
    let place = match next_place(run, &cuttable) {
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
    let count = |kind: usize| run.placed[kind].fetch_add(1, Ordering::Relaxed);
    match place {
        Place::Whole => {
            count(0);
            tensor
        }
        Place::Cut(dimension) => {
            count(1);
            distribute(tensor, &run.mesh, run.role, dimension)
        }
        Place::Sum | Place::Maximum => {
            count(2);
            // A row for each rank; of the elements every rank's row has its own.
            let length = shape.num_elements();
            let is_own = (0..ranks * length).map(|index| index % length % ranks == index / length);
            let is_own = TensorData::new(is_own.collect::<Vec<bool>>(), [ranks, length]);
            let is_own = Tensor::<2, Bool>::from_data(is_own, &tensor.device());
            let rows = tensor.reshape([1, length]).repeat_dim(0, ranks);
            let rows = K::neutral(&rows, place).mask_where(is_own, rows);
            let terms: Tensor<D, K> = K::reduce(distribute(rows, &run.mesh, run.role, 0), place).reshape(shape);
            let places = describe(&terms);
            assert!(ranks == 1 || places.contains(" P("), "{places}");
            terms
        }
    }
}

/// burn's constructors of these names, without `placed_`.
pub trait Placed<const D: usize, K: Terms>: From<Tensor<D, K>> {
    fn placed_from(data: impl Into<TensorData>) -> Self {
        placed(Tensor::from(data)).into()
    }

    fn placed_from_data(data: impl Into<TensorData>, options: impl Into<TensorCreationOptions>) -> Self {
        placed(Tensor::from_data(data, options)).into()
    }

    fn placed_from_floats(floats: impl Into<TensorData>, device: &Device) -> Self {
        Self::placed_from_data(floats.into().convert::<f32>(), device)
    }

    fn placed_from_ints(ints: impl Into<TensorData>, device: &Device) -> Self {
        Self::placed_from_data(ints.into().convert::<i32>(), device)
    }

    fn placed_from_bool(data: impl Into<TensorData>, device: &Device) -> Self {
        Self::placed_from_data(data, device)
    }

    fn placed_ones(shape: impl Into<Shape>, options: impl Into<TensorCreationOptions>) -> Self {
        placed(Tensor::ones(shape, options)).into()
    }

    fn placed_zeros(shape: impl Into<Shape>, options: impl Into<TensorCreationOptions>) -> Self {
        placed(Tensor::zeros(shape, options)).into()
    }

    fn placed_full(
        shape: impl Into<Shape>,
        value: impl ElementConversion,
        options: impl Into<TensorCreationOptions>,
    ) -> Self {
        placed(Tensor::full(shape, value, options)).into()
    }

    fn placed_random(
        shape: impl Into<Shape>,
        distribution: Distribution,
        options: impl Into<TensorCreationOptions>,
    ) -> Self
    where
        K: Numeric,
    {
        placed(Tensor::random(shape, distribution, options)).into()
    }
}

impl<const D: usize, K: Terms> Placed<D, K> for Tensor<D, K> {}

/// Those of integers.
pub trait PlacedRange: From<Tensor<1, Int>> {
    fn placed_arange(range: Range<i64>, options: impl Into<TensorCreationOptions>) -> Self {
        placed(Tensor::arange(range, options)).into()
    }

    fn placed_arange_step(range: Range<i64>, step: usize, options: impl Into<TensorCreationOptions>) -> Self {
        placed(Tensor::arange_step(range, step, options)).into()
    }
}

impl PlacedRange for Tensor<1, Int> {}
