//! `ShardIdentity`: which shards a layer holds, carried by its record, so that another rank's record is refused.
//!
//! burn's records hold values and nothing else, and two tensor-parallel ranks have shards of equal shape. A layer with
//! a shard therefore has a `ShardIdentity` as a field: it has no parameters, and its record is what it says of itself.

use burn::tensor::Device;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use burn::module::{
    AutodiffModule, Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::record::{PrecisionSettings, Record};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Placement;

/// What a record must be loaded with if the layout may change.
const ADVICE: &str = "a model that is saved in one layout and loaded in another goes through one checkpoint \
                      (burn_megatron::checkpoint, with training::snapshot and training::restore), which any layout \
                      loads";

/// The shards that a layer holds. A field of the layer, without parameters; its record is checked when it is loaded.
///
/// # Panics
/// [`Module::load_record`] panics with the text of [`RecordError`] when the record is that of other shards;
/// [`ParallelContext::load_record`](crate::context::ParallelContext::load_record) returns the error instead.
#[derive(Clone)]
pub struct ShardIdentity {
    identity: Arc<Identity>,
    backend: PhantomData,
}

/// What an identity says: in a module, and in its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    layer: String,
    tensor_rank: usize,
    tensor_size: usize,
    stage: usize,
    num_stages: usize,
    /// By parameter.
    shards: Vec<(String, Placement)>,
}

/// What a record says of the shards in it; nothing if it was saved by a module without a [`ShardIdentity`].
#[derive(Clone, Debug, Default)]
pub struct ShardRecord(Option<Identity>);

/// A record that does not belong to the module that is to load it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum RecordError {
    #[error(
        "{rank} cannot load this record into {layer}: it was saved by {recorded_rank} ({recorded}), and this rank \
         holds {expected}; load the file that this rank saved in this \
         layout; {ADVICE}"
    )]
    OtherShard {
        layer: String,
        /// Which rank this is: `tensor rank 0 of 2`, in a pipeline with its stage.
        rank: String,
        recorded_rank: String,
        recorded: String,
        expected: String,
    },
    #[error(
        "tensor rank {rank} of {size} cannot load this record into {layer}: the record does not say whose shards it \
         holds, because it was saved by a layer without tensor parallelism or by a version that did not record it, and \
         this rank holds {expected}; if it was saved by this rank in this layout, load it with \
         ParallelContext::load_unmarked_record and save it again; {ADVICE}"
    )]
    Unmarked {
        layer: String,
        /// This rank's index in the tensor group.
        rank: usize,
        size: usize,
        expected: String,
    },
    #[error(
        "the record's parameter {path} has the shape {recorded:?}, and the module's has {expected:?}: the record was \
         saved by a module of other sizes or in another layout; {ADVICE}"
    )]
    OtherShape {
        path: String,
        recorded: Vec<usize>,
        expected: Vec<usize>,
    },
}

/// What becomes of the mismatches that loading a record meets on this thread.
#[derive(Default)]
struct Collected {
    other_shard: Option<RecordError>,
    unmarked: Option<RecordError>,
}

thread_local! {
    static COLLECTED: RefCell<Option<Collected>> = const { RefCell::new(None) };
}

/// Loads a record without panicking at shards of others, and returns what is wrong with it: shards of others, and
/// shards that do not say whose they are.
pub(crate) fn collect_mismatches<R>(load: impl FnOnce() -> R) -> (R, Option<RecordError>, Option<RecordError>) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            COLLECTED.take();
        }
    }
    COLLECTED.set(Some(Collected::default()));
    let _reset = Reset;
    let loaded = load();
    let Collected { other_shard, unmarked } = COLLECTED.take().unwrap_or_default();
    (loaded, other_shard, unmarked)
}

impl ShardIdentity {
    /// Returns the identity of a layer that holds `shards`, by parameter, as index `tensor_rank` of `tensor_size` in
    /// `stage` of `num_stages`.
    ///
    /// [`ParallelContext::shard_identity`](crate::context::ParallelContext::shard_identity) fills in the layout.
    pub(crate) fn new(
        layer: String,
        (tensor_rank, tensor_size): (usize, usize),
        (stage, num_stages): (usize, usize),
        shards: Vec<(String, Placement)>,
    ) -> Self {
        Self {
            identity: Arc::new(Identity {
                layer,
                tensor_rank,
                tensor_size,
                stage,
                num_stages,
                shards,
            }),
            backend: PhantomData,
        }
    }

    /// The name of the layer, for messages.
    pub fn layer(&self) -> &str {
        &self.identity.layer
    }

    /// Compares this layer's shards with those of a record.
    fn check(&self, record: &ShardRecord) -> Result<(), RecordError> {
        let here = &*self.identity;
        let Some(recorded) = &record.0 else {
            // A whole layer takes the record of any whole layer.
            if here.tensor_size == 1 {
                return Ok(());
            }
            return Err(RecordError::Unmarked {
                layer: here.layer.clone(),
                rank: here.tensor_rank,
                size: here.tensor_size,
                expected: here.in_words(),
            });
        };
        if recorded.place() == here.place() && recorded.shards == here.shards {
            return Ok(());
        }
        Err(RecordError::OtherShard {
            layer: here.layer.clone(),
            rank: here.rank_in_words(),
            recorded_rank: recorded.rank_in_words(),
            recorded: recorded.in_words(),
            expected: here.in_words(),
        })
    }
}

impl Identity {
    /// Tensor rank and size, stage and number of stages.
    fn place(&self) -> [usize; 4] {
        [self.tensor_rank, self.tensor_size, self.stage, self.num_stages]
    }

    /// `tensor rank 1 of 2, pipeline stage 0 of 4`.
    fn rank_in_words(&self) -> String {
        let Self {
            tensor_rank,
            tensor_size,
            stage,
            num_stages,
            ..
        } = self;
        let tensor = format!("tensor rank {tensor_rank} of {tensor_size}");
        match num_stages {
            1 => tensor,
            _ => format!("{tensor}, pipeline stage {stage} of {num_stages}"),
        }
    }

    /// `weight [4, 8] from [0, 4] of [4, 16], bias [8] from [4] of [16]`.
    fn in_words(&self) -> String {
        let shards = self.shards.iter().map(|(name, placement)| {
            let (local, offset, logical) = (placement.local_shape(), placement.offset(), placement.logical_shape());
            format!("{name} {local:?} from {offset:?} of {logical:?}")
        });
        shards.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Debug for ShardIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity {
            layer,
            tensor_rank,
            tensor_size,
            ..
        } = &*self.identity;
        write!(formatter, "{layer:?} of tensor rank {tensor_rank} of {tensor_size}")
    }
}

impl Module for ShardIdentity {
    type Record = ShardRecord;

    fn visit<V: ModuleVisitor>(&self, _visitor: &mut V) {}

    fn map<M: ModuleMapper>(self, _mapper: &mut M) -> Self {
        self
    }

    fn load_record(self, record: Self::Record) -> Self {
        if let Err(error) = self.check(&record) {
            COLLECTED.with_borrow_mut(|collected| match collected {
                None => panic!("{error}"),
                Some(collected) => {
                    let kept = match error {
                        RecordError::Unmarked { .. } => &mut collected.unmarked,
                        _ => &mut collected.other_shard,
                    };
                    kept.get_or_insert(error);
                }
            });
        }
        self
    }

    fn into_record(self) -> Self::Record {
        ShardRecord(Some((*self.identity).clone()))
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
}

impl AutodiffModule for ShardIdentity {
    type InnerModule = ShardIdentity;

    fn valid(&self) -> Self::InnerModule {
        ShardIdentity {
            identity: self.identity.clone(),
            backend: PhantomData,
        }
    }

    fn from_inner(module: Self::InnerModule) -> Self {
        Self {
            identity: module.identity,
            backend: PhantomData,
        }
    }
}

impl ModuleDisplayDefault for ShardIdentity {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_formatted(&format!("{self:?}")).optional()
    }
}

impl ModuleDisplay for ShardIdentity {}

impl Record for ShardRecord {
    type Item<S: PrecisionSettings> = ShardRecord;

    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
        self
    }

    fn from_item<S: PrecisionSettings>(item: Self::Item<S>, _device: &Device) -> Self {
        item
    }
}

impl Serialize for ShardRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// As an option itself: a format with names takes a field that is absent, as in a record of burn's own layer, for
/// `None`.
impl<'de> Deserialize<'de> for ShardRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests;
