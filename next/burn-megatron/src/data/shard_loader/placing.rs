//! `PlaceSamples`: a batch of which this rank has loaded its samples, as one that is placed on a mesh.

use std::ops::Range;

use burn::tensor::Tensor;

use crate::sharded::{AxisRole, Mesh, SlotKind, from_local};

/// A batch whose tensors count samples by a dimension, as [`placed_loader`](super::placed_loader) places it. Tensors,
/// and tuples of up to four, are such; a type of your own lists its tensors:
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

/// Where batches are placed.
pub(super) struct Placing<O> {
    mesh: Mesh,
    place: fn(O, &SampleShare) -> O,
}

impl<O> Clone for Placing<O> {
    fn clone(&self) -> Self {
        Self {
            mesh: self.mesh.clone(),
            place: self.place,
        }
    }
}

impl<O: PlaceSamples> Placing<O> {
    pub(super) fn on(mesh: &Mesh) -> Self {
        Self {
            mesh: mesh.clone(),
            place: O::place,
        }
    }
}

impl<O> Placing<O> {
    /// This rank's share of a batch.
    pub(super) fn share(&self, num_samples: usize) -> SampleShare {
        SampleShare {
            mesh: self.mesh.clone(),
            num_samples,
        }
    }

    /// The batch of `num_samples` samples of which this rank has loaded its share.
    pub(super) fn place(&self, loaded: O, num_samples: usize) -> O {
        (self.place)(loaded, &self.share(num_samples))
    }
}
