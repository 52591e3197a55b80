//! [`ParameterOffload`]: where shards of the parameters are, and [`ShardStore`], which has them there.

use std::ops::Range;
use std::path::PathBuf;

use burn::tensor::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::collectives::has_device_memory;
use crate::data_parallel::buckets::flat::part;
use crate::offload::{OffloadError, Offloaded, PieceTensors, TensorStore, check_folder};

/// Where each rank's shards of the parameters are, in stage 3 of ZeRO, while they are not gathered.
///
/// # Reference
/// Rajbhandari et al. 2021, arXiv:2104.07857 (ZeRO-Infinity), section 5.1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParameterOffload {
    /// Where the module is.
    #[default]
    None,
    /// In host memory. On backends that compute there already, this changes nothing.
    Cpu,
    /// In a file.
    Nvme {
        /// The folder of each rank's file, which has no name while the run lasts.
        folder: PathBuf,
    },
}

impl ParameterOffload {
    /// Whether nothing is to be moved: the parameters are in host memory already, where they were to be offloaded to.
    pub fn changes_nothing_on(&self, device: &Device) -> bool {
        *self == Self::Cpu && !has_device_memory(device)
    }

    /// Checks that a file can be made in the folder.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(&self) -> Result<(), OffloadError> {
        match self {
            Self::Nvme { folder } => check_folder(Offloaded::Parameters, folder),
            Self::None | Self::Cpu => Ok(()),
        }
    }
}

/// The shards of all buckets, by number, `[shard_length]`.
pub(in crate::data_parallel) struct ShardStore {
    place: Place,
    lengths: Vec<usize>,
    dtype: DType,
    device: Device,
}

enum Place {
    Device(Vec<Option<Tensor<1>>>),
    Offloaded(TensorStore),
}

/// A bucket has one shard on each rank.
const ONLY: usize = 0;

impl ShardStore {
    /// Returns a store for a rank's shards of these lengths, which are yet to be put.
    ///
    /// # Errors
    /// When no file can be made in the folder, or its disk has no room.
    pub(in crate::data_parallel) fn new(
        offload: &ParameterOffload,
        rank: usize,
        lengths: Vec<usize>,
        dtype: DType,
        device: &Device,
    ) -> Result<Self, OffloadError> {
        let folder = match offload {
            ParameterOffload::Nvme { folder } => Some(folder.as_path()),
            ParameterOffload::None | ParameterOffload::Cpu => None,
        };
        let is_here = *offload == ParameterOffload::None || offload.changes_nothing_on(device);
        let place = if is_here {
            Place::Device(vec![None; lengths.len()])
        } else {
            let piece = |(number, &elements)| PieceTensors {
                number,
                bucket: number,
                elements,
                num_tensors: 1,
            };
            let pieces: Vec<PieceTensors> = lengths.iter().enumerate().map(piece).collect();
            let store = TensorStore::new(Offloaded::Parameters, folder, rank, dtype);
            Place::Offloaded(store.emptied(&pieces)?)
        };
        Ok(Self {
            place,
            lengths,
            dtype,
            device: device.clone(),
        })
    }

    /// Puts a bucket's shard.
    ///
    /// # Errors
    /// When it cannot be read or written where it is.
    pub(in crate::data_parallel) fn put(&mut self, bucket: usize, shard: Tensor<1>) -> Result<(), OffloadError> {
        match &mut self.place {
            Place::Device(shards) => {
                shards[bucket] = Some(shard);
                Ok(())
            }
            Place::Offloaded(store) => store.put(bucket, ONLY, shard.into_data()),
        }
    }

    /// Returns a bucket's shard.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(in crate::data_parallel) fn shard(&mut self, bucket: usize) -> Result<Tensor<1>, OffloadError> {
        self.part(bucket, 0..self.lengths[bucket])
    }

    /// Returns some elements of a bucket's shard.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(in crate::data_parallel) fn part(
        &mut self,
        bucket: usize,
        elements: Range<usize>,
    ) -> Result<Tensor<1>, OffloadError> {
        match &mut self.place {
            Place::Device(shards) => {
                let shard = shards[bucket].clone();
                Ok(part(shard.expect("every bucket's shard was put"), elements))
            }
            Place::Offloaded(store) => {
                let data = store.part(bucket, ONLY, elements)?;
                Ok(Tensor::from_data(data, (&self.device, self.dtype)))
            }
        }
    }

    /// Expects shards to be used in this order, so that each comes from its file while the one before it is used. What
    /// was put before is in the file then.
    ///
    /// # Errors
    /// When an earlier write has failed.
    pub(in crate::data_parallel) fn expect(&mut self, buckets: &[usize]) -> Result<(), OffloadError> {
        match &mut self.place {
            Place::Device(_) => Ok(()),
            Place::Offloaded(store) => store.begin(buckets),
        }
    }
}
