//! [`ShardedTensor`]: a tensor of a logical shape, of which this rank has a part.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use burn_backend::{DType, Shape, TensorMetadata};
use parking_lot::Mutex;

use super::kind::Kind;
use super::mesh::Mesh;
use super::placement::{Placements, REPLICATED};
use crate::collectives::CollectiveBackend;

/// A tensor whose elements are placed over the ranks of a [`Mesh`].
///
/// `shape()` is the logical shape, which every rank sees. Without a mesh every rank has the whole.
pub struct ShardedTensor<B: CollectiveBackend, K: Kind<B>> {
    shape: Shape,
    mesh: Option<Mesh>,
    places: Placements,
    local: Local<B, K>,
    id: u64,
}

/// What this rank has.
pub(super) enum Local<B: CollectiveBackend, K: Kind<B>> {
    /// The part itself.
    Here(K::Tensor),
    /// A term of a partial tensor, shared by all clones: once one has had the terms put together, all have the result.
    Settling(Arc<Mutex<(Placements, K::Tensor)>>),
    /// How the part of any placement is made: no rank has elements before they are needed.
    Deferred(Arc<Deferred<B, K>>),
}

/// A tensor that every rank can make any part of.
pub(super) struct Deferred<B: CollectiveBackend, K: Kind<B>> {
    device: B::Device,
    dtype: DType,
    /// Makes the part of these ranges of the logical tensor.
    make: Box<MakePart<B, K>>,
    /// The part of the ranges that were asked for first.
    pub(super) made: OnceLock<(Vec<std::ops::Range<usize>>, K::Tensor)>,
    /// Whether a part is kept: it is costly to make, or clones must have the same.
    is_kept: bool,
}

type MakePart<B, K> = dyn Fn(&[std::ops::Range<usize>]) -> <K as Kind<B>>::Tensor + Send + Sync;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl<B: CollectiveBackend, K: Kind<B>> ShardedTensor<B, K> {
    /// A tensor that every rank has.
    pub(super) fn whole(local: K::Tensor) -> Self {
        Self {
            shape: local.shape(),
            mesh: None,
            places: REPLICATED,
            local: Local::Here(local),
            id: next_id(),
        }
    }

    /// A tensor of which no rank has anything yet.
    pub(super) fn deferred(shape: Shape, deferred: Deferred<B, K>) -> Self {
        Self {
            shape,
            mesh: None,
            places: REPLICATED,
            local: Local::Deferred(Arc::new(deferred)),
            id: next_id(),
        }
    }

    /// A tensor of which this rank has `local`.
    pub(super) fn placed(local: K::Tensor, shape: Shape, mesh: Option<Mesh>, places: Placements) -> Self {
        let is_partial = places.iter().any(|place| place.is_partial());
        Self {
            shape,
            mesh: mesh.filter(|_| places != REPLICATED),
            places,
            local: if is_partial {
                Local::Settling(Arc::new(Mutex::new((places, local))))
            } else {
                Local::Here(local)
            },
            id: next_id(),
        }
    }

    pub(super) fn logical_shape(&self) -> &Shape {
        &self.shape
    }

    /// The mesh that the tensor is placed on, `None` if every rank has the whole.
    pub fn mesh(&self) -> Option<&Mesh> {
        self.mesh.as_ref()
    }

    /// Where the elements are now: a partial tensor whose terms have been put together for a clone is as that is.
    pub fn places(&self) -> Placements {
        match &self.local {
            Local::Settling(shared) => shared.lock().0,
            _ => self.places,
        }
    }

    /// The number of this tensor, which its clones share.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn into_local(self) -> Local<B, K> {
        self.local
    }
}

impl<B: CollectiveBackend, K: Kind<B>> Deferred<B, K> {
    /// A tensor whose parts are cheap to make, and the same each time.
    pub(super) fn new(
        device: &B::Device,
        dtype: DType,
        make: impl Fn(&[std::ops::Range<usize>]) -> K::Tensor + Send + Sync + 'static,
    ) -> Self {
        Self {
            device: device.clone(),
            dtype,
            make: Box::new(make),
            made: OnceLock::new(),
            is_kept: false,
        }
    }

    /// Whose part is made once.
    pub(super) fn kept(self) -> Self {
        Self { is_kept: true, ..self }
    }

    /// Makes the part of these ranges, and keeps nothing.
    pub(super) fn make(&self, ranges: &[std::ops::Range<usize>]) -> K::Tensor {
        (self.make)(ranges)
    }

    /// This rank's part under a placement.
    pub(super) fn part(&self, shape: &Shape, mesh: Option<&Mesh>, places: &Placements) -> K::Tensor {
        let ranges: Vec<_> = (0..shape.num_dims())
            .map(|dimension| match mesh {
                Some(mesh) => mesh.shape().range(shape[dimension], places, dimension, mesh.ranks()),
                None => 0..shape[dimension],
            })
            .collect();
        if !self.is_kept {
            return (self.make)(&ranges);
        }
        let (made, part) = self.made.get_or_init(|| (ranges.clone(), (self.make)(&ranges)));
        if *made == ranges {
            part.clone()
        } else {
            (self.make)(&ranges)
        }
    }
}

fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

impl<B: CollectiveBackend, K: Kind<B>> Clone for ShardedTensor<B, K> {
    fn clone(&self) -> Self {
        Self {
            shape: self.shape.clone(),
            mesh: self.mesh.clone(),
            places: self.places,
            local: match &self.local {
                Local::Here(local) => Local::Here(local.clone()),
                Local::Settling(shared) => Local::Settling(shared.clone()),
                Local::Deferred(deferred) => Local::Deferred(deferred.clone()),
            },
            id: self.id,
        }
    }
}

impl<B: CollectiveBackend, K: Kind<B>> TensorMetadata for ShardedTensor<B, K> {
    type Device = B::Device;

    fn dtype(&self) -> DType {
        match &self.local {
            Local::Here(local) => local.dtype(),
            Local::Settling(shared) => shared.lock().1.dtype(),
            Local::Deferred(deferred) => deferred.dtype,
        }
    }

    fn shape(&self) -> Shape {
        self.shape.clone()
    }

    fn device(&self) -> B::Device {
        match &self.local {
            Local::Here(local) => local.device(),
            Local::Settling(shared) => shared.lock().1.device(),
            Local::Deferred(deferred) => deferred.device.clone(),
        }
    }

    fn can_mut(&self) -> bool {
        match &self.local {
            Local::Here(local) => local.can_mut(),
            Local::Settling(_) | Local::Deferred(_) => false,
        }
    }
}

/// `[4, 6] f32, S(0) R`: shape, type, and the placement on each axis of the mesh.
impl<B: CollectiveBackend, K: Kind<B>> fmt::Debug for ShardedTensor<B, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.shape.to_vec(), self.dtype())?;
        if let Some(mesh) = &self.mesh {
            f.write_str(",")?;
            for place in &self.places()[..mesh.shape().num_axes()] {
                write!(f, " {place}")?;
            }
        }
        Ok(())
    }
}
