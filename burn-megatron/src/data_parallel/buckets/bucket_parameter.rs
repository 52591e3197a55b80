//! [`BucketParameter`]: what the layout of buckets depends on, of one parameter. It needs no values, so that the layout
//! of a model can be made that no memory holds.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::bucket::{BucketClass, BucketLayout};
use crate::context::ParallelContext;
use crate::data_parallel::sharding_strategy::ShardingStrategy;
use crate::parameters::{Declaration, Factoring, PathVisitor, Placement, visit_paths};

/// The properties of one trained parameter on which the layout of buckets depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketParameter {
    /// The path of field names to the parameter.
    pub path: String,
    /// The name in the whole model, the same in every layout.
    pub name: String,
    /// The number of elements on this rank.
    pub len: usize,
    /// The buckets that it may be in.
    pub class: BucketClass,
    /// How many numbers the rows and columns of its matrices have, whole: what is kept of it by an optimizer such as
    /// [`Adafactor`](crate::optimizer::Adafactor); `None` if it has no matrices.
    pub factored_len: Option<usize>,
}

impl BucketClass {
    /// Returns the class of a parameter with this declaration.
    pub fn of(declaration: &Declaration) -> Self {
        match declaration {
            Declaration { is_tied: true, .. } => Self::Tied,
            Declaration { is_reused: true, .. } => Self::Reused,
            _ => Self::Early,
        }
    }
}

impl BucketLayout {
    /// Lays trained parameters out in buckets as
    /// [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) does: where parameters are sharded,
    /// those of different layers are in different buckets.
    pub fn of_parameters(
        parameters: &[BucketParameter],
        bucket_size: usize,
        num_shards: usize,
        sharding: ShardingStrategy,
    ) -> Self {
        let lengths: Vec<usize> = parameters.iter().map(|parameter| parameter.len).collect();
        let class = |number: usize| parameters[number].class;
        if sharding.shards_parameters() {
            let units = units(parameters, bucket_size);
            Self::of_units(&lengths, usize::MAX, num_shards, class, |number| units[number])
        } else {
            Self::new(&lengths, bucket_size, num_shards, class)
        }
    }
}

/// The elements of a bucket where none are asked for: the larger of 40 million and 1 million per data-parallel rank.
pub fn default_bucket_size(data_parallel_size: usize) -> usize {
    40_000_000.max(1_000_000 * data_parallel_size)
}

/// The unit of each parameter, whose parameters are gathered together: an element of a list, such as a block of a
/// model's list of blocks, as far as paths show it; and what comes between lists, in parts of about `size` elements.
fn units(parameters: &[BucketParameter], size: usize) -> Vec<usize> {
    let is_number = |name: &&str| name.bytes().all(|byte| byte.is_ascii_digit());
    let of_list = |path: &str| {
        let names: Vec<&str> = path.split('.').collect();
        let last = names.iter().rposition(is_number);
        names[..last.map_or(0, |last| last + 1)].join(".")
    };
    let (mut units, mut unit, mut held) = (Vec::with_capacity(parameters.len()), 0, 0);
    let mut before: Option<String> = None;
    for parameter in parameters {
        let list = of_list(&parameter.path);
        // A list of the chunks of a stage is none of layers.
        let is_full = held >= size && list.split('.').count() < 2;
        if before.as_ref().is_some_and(|before| *before != list || is_full) {
            (unit, held) = (unit + 1, 0);
        }
        held += parameter.len;
        units.push(unit);
        before = Some(list);
    }
    units
}

/// Returns a module's float parameters as they would be bound, all as trained ones, in the module's own order. Gives
/// none a value.
pub fn bucket_parameters<M: Module>(module: &M, context: &ParallelContext) -> Vec<BucketParameter> {
    struct Lister<'a> {
        context: &'a ParallelContext,
        found: Vec<BucketParameter>,
    }
    impl PathVisitor for Lister<'_> {
        fn visit<const D: usize>(&mut self, path: String, param: &Param<Tensor<D>>) {
            let declaration = self.context.registry().declaration(param.id);
            let shape = param.lazy_shape();
            let (class, name, placement) = match declaration {
                Some(declaration) => (BucketClass::of(&declaration), declaration.name, declaration.placement),
                None => (BucketClass::Early, path.clone(), Placement::whole(shape.to_vec())),
            };
            self.found.push(BucketParameter {
                path,
                name,
                len: shape.num_elements(),
                class,
                factored_len: Factoring::of(&shape.to_vec(), &placement).map(|factoring| factoring.len()),
            });
        }
    }
    let mut lister = Lister {
        context,
        found: Vec::new(),
    };
    visit_paths(module, &mut lister);
    lister.found
}
