//! `placed_loader`: batches of which each rank loads its samples, placed on a mesh.

use std::ops::Range;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Tensor;

use super::ShardLoaderBuilder;
use super::source::Cut;
use crate::data::global_batches::LastBatch;
use crate::sharded::{AxisRole, Mesh, SlotKind, from_local};

/// A batch whose tensors count samples by a dimension, as [`placed_loader`] places it. Tensors, and tuples of up to
/// four, are such; a type of your own lists its tensors:
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use burn_megatron::data::{PlaceSamples, SampleShare};
///
/// struct Images {
///     pixels: Tensor<4>,
///     labels: Tensor<1, Int>,
/// }
///
/// impl PlaceSamples for Images {
///     fn place(self, share: &SampleShare) -> Self {
///         Self {
///             pixels: share.place(self.pixels, 0),
///             labels: share.place(self.labels, 0),
///         }
///     }
/// }
/// ```
pub trait PlaceSamples: Sized {
    /// Returns the batch with each of its tensors placed by `share`.
    fn place(self, share: &SampleShare) -> Self;
}

/// The samples of a batch that this rank has.
#[derive(Clone, Debug)]
pub struct SampleShare {
    mesh: Mesh,
    num_samples: usize,
}

impl SampleShare {
    fn of(mesh: &Mesh, num_samples: usize) -> Self {
        let mesh = mesh.clone();
        Self { mesh, num_samples }
    }

    /// Returns the tensor whose `dimension` counts the samples of the whole batch; `local` has those of this rank.
    ///
    /// # Panics
    /// When `local` has another number of them.
    pub fn place<const D: usize, K: SlotKind>(&self, local: Tensor<D, K>, dimension: usize) -> Tensor<D, K> {
        if self.is_cut() {
            from_local(local, &self.mesh, AxisRole::Data, dimension, self.num_samples)
        } else {
            local
        }
    }

    /// The number of samples of the whole batch.
    pub fn num_samples(&self) -> usize {
        self.num_samples
    }

    /// Those that this rank has.
    pub fn range(&self) -> Range<usize> {
        if self.is_cut() {
            self.mesh.part(AxisRole::Data, self.num_samples)
        } else {
            0..self.num_samples
        }
    }

    /// Returns true if there is a sample for each data-parallel rank; otherwise all have all.
    fn is_cut(&self) -> bool {
        let shape = self.mesh.shape();
        let ranks: usize = shape.axes_of(AxisRole::Data).map(|axis| shape.size(axis)).product();
        self.num_samples >= ranks
    }
}

impl<const D: usize, K: SlotKind> PlaceSamples for Tensor<D, K> {
    fn place(self, share: &SampleShare) -> Self {
        share.place(self, 0)
    }
}

macro_rules! place_tuple {
    ($($part:ident),+) => {
        impl<$($part: PlaceSamples),+> PlaceSamples for ($($part,)+) {
            fn place(self, share: &SampleShare) -> Self {
                #[allow(non_snake_case, reason = "a part has the name of its type")]
                let ($($part,)+) = self;
                ($($part.place(share),)+)
            }
        }
    };
}

place_tuple!(T0, T1);
place_tuple!(T0, T1, T2);
place_tuple!(T0, T1, T2, T3);

impl<O: PlaceSamples> Cut<O> for Mesh {
    fn own(&self, num_samples: usize) -> Range<usize> {
        SampleShare::of(self, num_samples).range()
    }

    fn place(&self, loaded: O, num_samples: usize) -> O {
        loaded.place(&SampleShare::of(self, num_samples))
    }
}

/// Returns a builder of data loaders, with the methods of burn's `DataLoaderBuilder`, whose batches are placed on a
/// mesh: cut over its data-parallel ranks, of which each loads its own samples.
///
/// Batch k holds the same samples, in the same order, in every layout; on a mesh of one rank they are those of burn's
/// own loader without workers. Losses and gradients are those of the whole batch, however many samples each rank has:
/// any batch size and any number of samples will do. Of a last batch of fewer samples than there are data-parallel
/// ranks, every rank loads all. [`LastBatch::Drop`] leaves the last batch out if it is smaller than the others.
///
/// # Communication
/// None: every rank draws the same order from the same seed.
///
/// # Examples
/// ```
/// use burn::data::dataloader::{DataLoader, batcher::Batcher};
/// use burn::data::dataset::InMemDataset;
/// use burn::tensor::{Device, Tensor};
/// use burn_flex::{Flex, FlexDevice};
/// use burn_megatron::context::ParallelContext;
/// use burn_megatron::data::placed_loader;
/// use burn_megatron::sharded::{Mesh, device};
///
/// #[derive(Clone)]
/// struct Numbers;
/// impl Batcher<f32, Tensor<1>> for Numbers {
///     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<1> {
///         Tensor::from_floats(&items[..], device)
///     }
/// }
///
/// let mesh = Mesh::of(&ParallelContext::single(0))?;
/// let loader = placed_loader(Numbers, &mesh)
///     .batch_size(4)
///     .set_device(device::<Flex>(FlexDevice))
///     .build(InMemDataset::new((0..10).map(|number| number as f32).collect()))?;
/// let means = loader.iter().map(|batch| Ok(batch?.mean().into_scalar::<f32>()));
/// assert_eq!(means.collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?, [1.5, 5.5, 8.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn placed_loader<I, O>(batcher: impl Batcher<I, O> + 'static, mesh: &Mesh) -> ShardLoaderBuilder<I, O>
where
    O: PlaceSamples,
{
    ShardLoaderBuilder {
        batcher: Arc::new(batcher),
        rank: 0,
        ranks: 1,
        batch_size: 1,
        shuffle: None,
        num_workers: 0,
        last_batch: LastBatch::default(),
        device: None,
        cut: Some(Arc::new(mesh.clone())),
        step: None,
    }
}
