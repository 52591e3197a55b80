//! [`peek`]: a tensor's logical elements, read without a trace of the reading.

use burn::tensor::{TensorData, TensorMetadata};

use super::super::ShardedTensor;
use super::super::kind::Kind;
use super::super::tensor::Local;
use super::super::traffic::{operation, set_operation};
use crate::collectives::CollectiveBackend;
use crate::sharded::movement::redistribute::{gather, replace_gathered};

/// Returns the elements of the whole tensor.
///
/// The tensor and its clones stay as they are placed: a sum that has not been made is not made for them, nothing is
/// counted, a tensor that is made when it is needed is not made for others, and the last gathered activation is still
/// the program's.
///
/// # Communication
/// That of [`gather`]: every rank must call.
#[track_caller]
pub(super) fn peek<B: CollectiveBackend, K: Kind<B>>(tensor: &ShardedTensor<B, K>) -> TensorData {
    let (shape, mesh, places) = (tensor.shape(), tensor.mesh().cloned(), tensor.places());
    let local = match tensor.clone().into_local() {
        Local::Deferred(deferred) => {
            let all: Vec<_> = (0..shape.num_dims()).map(|dimension| 0..shape[dimension]).collect();
            return K::read(deferred.make(&all));
        }
        Local::Settling(shared) => shared.lock().1.clone(),
        Local::Here(local) => local,
    };
    let Some(mesh) = mesh else {
        return K::read(local);
    };
    // One of its own: a sum that is made for it is made for no other.
    let own = ShardedTensor::<B, K>::placed(local, shape, Some(mesh.clone()), places);
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

/// A tensor's placement on each axis, or that every rank has all of it.
pub(super) fn placement<B: CollectiveBackend, K: Kind<B>>(tensor: &ShardedTensor<B, K>) -> String {
    match tensor.mesh() {
        Some(mesh) => {
            let places = tensor.places();
            let places = places[..mesh.shape().num_axes()].iter().map(ToString::to_string);
            places.collect::<Vec<_>>().join(" ")
        }
        None => "whole".into(),
    }
}
