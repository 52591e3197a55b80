//! `ShardIdentity`: which shards a layer holds, carried by its record, so that another rank's record is refused.
//!
//! burn's records hold tensors and nothing else, and two tensor-parallel ranks have shards of equal shape. A layer with
//! a shard therefore has a `ShardIdentity` as a field: it shows burn a parameter of whole numbers, in host memory, that
//! says whose shards these are. A record keeps it, and whoever loads one gives it back, to be compared.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param, ParamId,
};
use burn::store;
use burn::tensor::{DType, Device, Int, Tensor};
use sha2::{Digest, Sha256};

use super::Placement;

/// What a record must be loaded with if the layout may change.
const ADVICE: &str = "a model that is saved in one layout and loaded in another goes through one checkpoint \
                      (burn_megatron::checkpoint, with training::snapshot and training::restore), which any layout \
                      loads";

/// The shards that a layer holds. A field of the layer, whose record is checked when it is loaded.
///
/// The only tensor-parallel rank of the only stage holds whole layers: its identity is not in a record, so that burn's
/// own layers load it, and theirs are loaded here.
///
/// # Panics
/// [`Module::load_record`] panics with the text of [`RecordError`] when the record is that of other shards;
/// [`ParallelContext::load_record`](crate::context::ParallelContext::load_record) returns the error instead.
#[derive(Clone)]
pub struct ShardIdentity(Arc<Identity>);

struct Identity {
    layer: String,
    place: Place,
    /// By parameter.
    shards: Vec<(String, Placement)>,
}

/// Index in the tensor group and its size, stage and number of stages.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    tensor: (usize, usize),
    stage: (usize, usize),
}

/// A record that does not belong to the module that is to load it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum RecordError {
    #[error(
        "{rank} cannot load this record into {layer}: it was saved by {recorded_rank}, and this rank holds {expected}; \
         load the file that this rank saved in this layout; {ADVICE}"
    )]
    OtherShard {
        layer: String,
        /// Which rank this is: `tensor rank 0 of 2`, in a pipeline with its stage.
        rank: String,
        recorded_rank: String,
        expected: String,
    },
    #[error(
        "{rank} cannot load this record into {layer}: the record does not say whose shards it holds, because it was \
         saved by a layer without tensor parallelism, and this rank holds {expected}; if its shards are those of this \
         rank in this layout, load it with ParallelContext::load_unmarked_record and save it again; {ADVICE}"
    )]
    Unmarked {
        layer: String,
        /// As that of [`OtherShard`](Self::OtherShard).
        rank: String,
        expected: String,
    },
    #[error(
        "the record does not fit the module: it was saved by a module of other sizes or in another layout ({0}); \
         {ADVICE}"
    )]
    OtherModule(store::RecordError),
}

/// What identities do with a record that is loaded on this thread.
#[derive(Default)]
enum Loading {
    /// Panic at shards of others.
    #[default]
    Panicking,
    /// Keep the first mismatch.
    Keeping(Option<RecordError>),
    /// Ask for nothing.
    Trusting,
}

thread_local! {
    static LOADING: RefCell<Loading> = const { RefCell::new(Loading::Panicking) };
}

/// Loads a record, and returns as an error what would panic, or what burn says is wrong with it.
pub(crate) fn load_checked<M>(load: impl FnOnce() -> Result<M, store::RecordError>) -> Result<M, RecordError> {
    load_as(Loading::Keeping(None), load)
}

/// Loads a record that has no identities.
pub(crate) fn load_unmarked<M>(load: impl FnOnce() -> Result<M, store::RecordError>) -> Result<M, RecordError> {
    load_as(Loading::Trusting, load)
}

fn load_as<M>(loading: Loading, load: impl FnOnce() -> Result<M, store::RecordError>) -> Result<M, RecordError> {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            LOADING.take();
        }
    }
    LOADING.set(loading);
    let _reset = Reset;
    let loaded = load();
    match LOADING.take() {
        Loading::Keeping(Some(mismatch)) => Err(mismatch),
        _ => loaded.map_err(RecordError::OtherModule),
    }
}

impl ShardIdentity {
    /// Returns the identity of a layer that holds `shards`, by parameter, as an index of a tensor group of a size in a
    /// stage of a number of them.
    ///
    /// [`ParameterScope::shard_identity`](crate::context::ParameterScope::shard_identity) fills in the layout.
    pub(crate) fn new(
        layer: String,
        tensor: (usize, usize),
        stage: (usize, usize),
        shards: Vec<(String, Placement)>,
    ) -> Self {
        Self(Arc::new(Identity {
            layer,
            place: Place { tensor, stage },
            shards,
        }))
    }

    /// The name of the layer, for messages.
    pub fn layer(&self) -> &str {
        &self.0.layer
    }

    /// Returns the parameter that a record keeps, if it does, with a number of its own each time.
    ///
    /// Its tensor is made when it is asked for: the first tensor of a device fixes its element types.
    fn parameter(&self) -> Option<Param<Tensor<1, Int>>> {
        let is_whole = self.0.place.tensor.1 == 1 && self.0.place.stage.1 == 1;
        (!is_whole).then(|| {
            let numbers = self.0.numbers();
            let make = move |device: &Device, _| Tensor::from_data(numbers, (device, DType::I64));
            Param::uninitialized(ParamId::new(), make, Device::flex(), false, [numbers.len()].into())
        })
    }

    /// Compares the parameter with what has become of it.
    fn compare(&self, before: ParamId, after: Param<Tensor<1, Int>>) {
        let here = &*self.0;
        let is_keeping = LOADING.with_borrow(|loading| matches!(loading, Loading::Keeping(_)));
        // A record replaces a parameter's number by the recorded one.
        let mismatch = if after.id == before {
            is_keeping.then(|| here.unmarked())
        } else {
            let recorded: Vec<i64> = after.into_value().into_data().iter::<i64>().collect();
            (recorded != here.numbers()).then(|| here.other_shard(&recorded))
        };
        if let Some(error) = mismatch {
            LOADING.with_borrow_mut(|loading| match loading {
                Loading::Keeping(kept) => _ = kept.get_or_insert(error),
                _ => panic!("{error}"),
            });
        }
    }
}

impl Identity {
    /// Returns what a record keeps: the place, and a hash of the shards.
    fn numbers(&self) -> [i64; 5] {
        let Place { tensor, stage } = self.place;
        let digest = Sha256::digest(self.in_words());
        let hash = i64::from_le_bytes(*digest.first_chunk().expect("it has 32 bytes"));
        [tensor.0 as i64, tensor.1 as i64, stage.0 as i64, stage.1 as i64, hash]
    }

    fn unmarked(&self) -> RecordError {
        RecordError::Unmarked {
            layer: self.layer.clone(),
            rank: self.place.to_string(),
            expected: self.in_words(),
        }
    }

    fn other_shard(&self, recorded: &[i64]) -> RecordError {
        let number = |index: usize| recorded[index] as usize;
        let place = Place {
            tensor: (number(0), number(1)),
            stage: (number(2), number(3)),
        };
        let shards = if place == self.place { " with other shards" } else { "" };
        RecordError::OtherShard {
            layer: self.layer.clone(),
            rank: self.place.to_string(),
            recorded_rank: format!("{place}{shards}"),
            expected: self.in_words(),
        }
    }

    /// `weight [4, 8] from [0, 4] of [4, 16], bias [8] from [4] of [16]`: its hash is in records.
    fn in_words(&self) -> String {
        let shards = self.shards.iter().map(|(name, placement)| {
            let (local, offset, logical) = (placement.local_shape(), placement.offset(), placement.logical_shape());
            format!("{name} {local:?} from {offset:?} of {logical:?}")
        });
        shards.collect::<Vec<_>>().join(", ")
    }
}

/// `tensor rank 1 of 2, pipeline stage 0 of 4`.
impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size) = self.tensor;
        write!(formatter, "tensor rank {rank} of {size}")?;
        match self.stage {
            (_, 1) => Ok(()),
            (stage, num_stages) => write!(formatter, ", pipeline stage {stage} of {num_stages}"),
        }
    }
}

impl fmt::Debug for ShardIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size) = self.0.place.tensor;
        write!(formatter, "{:?} of tensor rank {rank} of {size}", self.0.layer)
    }
}

impl Module for ShardIdentity {
    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        if let Some(parameter) = self.parameter() {
            visitor.visit_int(&parameter);
        }
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        let is_trusting = LOADING.with_borrow(|loading| matches!(loading, Loading::Trusting));
        if !is_trusting && let Some(parameter) = self.parameter() {
            self.compare(parameter.id, mapper.map_int(parameter));
        }
        self
    }

    fn to_device(self, _device: &Device) -> Self {
        self
    }

    fn fork(self, _device: &Device) -> Self {
        self
    }

    fn collect_devices(&self, devices: Devices) -> Devices {
        devices
    }

    fn valid(&self) -> Self {
        self.clone()
    }

    fn train(self) -> Self {
        self
    }

    fn materialize(self) -> Self {
        self
    }
}

impl ModuleDisplayDefault for ShardIdentity {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_formatted(&format!("{self:?}")).optional()
    }
}

impl ModuleDisplay for ShardIdentity {}

#[cfg(test)]
mod tests;
