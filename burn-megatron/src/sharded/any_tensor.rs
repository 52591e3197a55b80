//! [`AnyTensor`]: a placed tensor of any kind, on any backend, to be looked at.

use std::fmt;

use burn_backend::{DType, TensorData, TensorMetadata};

use super::ShardedTensor;
use super::kind::Kind;
use super::mesh::Mesh;
use super::movement::redistribute::{gather, local_part, replace_gathered};
use super::rules::Operand;
use super::tensor::Local;
use super::traffic::{operation, set_operation};
use crate::collectives::CollectiveBackend;

/// A placed tensor whose kind and backend are not known. Its `Debug` is `[2, 8] F32, S(0) R`.
pub(super) trait AnyTensor: fmt::Debug {
    /// The number of the tensor, which its clones share.
    fn id(&self) -> u64;
    fn mesh(&self) -> Option<&Mesh>;
    fn element_type(&self) -> DType;
    /// The logical shape, and where the elements are.
    fn operand(&self) -> Operand;
    /// This rank's elements.
    fn part(&self) -> TensorData;
    /// This rank's elements, if they have been made and are no terms of a sum.
    fn here(&self) -> Option<TensorData>;

    /// All elements.
    ///
    /// # Communication
    /// Of a tensor that is cut an all-gather, of a sum that has not been made an all-reduce; every rank must call.
    fn all(&self) -> TensorData;

    /// All elements, read without a trace of the reading.
    ///
    /// The tensor and its clones stay as they are placed: a sum that has not been made is not made for them, nothing is
    /// counted, a tensor that is made when it is needed is not made for others, and the last gathered activation is
    /// still the program's.
    ///
    /// # Communication
    /// That of [`all`](Self::all).
    #[track_caller]
    fn peek(&self) -> TensorData;
}

impl<B: CollectiveBackend, K: Kind<B>> AnyTensor for ShardedTensor<B, K> {
    fn id(&self) -> u64 {
        ShardedTensor::id(self)
    }

    fn mesh(&self) -> Option<&Mesh> {
        ShardedTensor::mesh(self)
    }

    fn element_type(&self) -> DType {
        TensorMetadata::dtype(self)
    }

    fn operand(&self) -> Operand {
        Operand {
            shape: self.logical_shape().to_vec(),
            places: self.places(),
        }
    }

    fn part(&self) -> TensorData {
        K::read(local_part(self.clone()))
    }

    fn here(&self) -> Option<TensorData> {
        match self.clone().into_local() {
            Local::Here(local) => Some(K::read(local)),
            Local::Settling(_) | Local::Deferred(_) => None,
        }
    }

    fn all(&self) -> TensorData {
        K::read(gather(self.clone()))
    }

    #[track_caller]
    fn peek(&self) -> TensorData {
        let (shape, places) = (self.shape(), self.places());
        let local = match self.clone().into_local() {
            Local::Deferred(deferred) => {
                let all: Vec<_> = shape.iter().map(|&length| 0..length).collect();
                return K::read(deferred.make(&all));
            }
            Local::Settling(shared) => shared.lock().1.clone(),
            Local::Here(local) => local,
        };
        let Some(mesh) = ShardedTensor::mesh(self) else {
            return K::read(local);
        };
        // One of its own: a sum that is made for it is made for no other.
        let own = Self::placed(local, shape, Some(mesh.clone()), places);
        let counted = std::mem::take(&mut *mesh.traffic());
        let caller = operation();
        set_operation("comparison");
        let gathered = replace_gathered(None);
        let whole = gather(own);
        replace_gathered(gathered);
        set_operation(caller);
        *mesh.traffic() = counted;
        K::read(whole)
    }
}
