//! Gradients of fully sharded parameters, scattered while the backward pass runs: no rank keeps whole terms of them
//! until its end.

use std::cell::RefCell;
use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn_backend::TensorMetadata;

use super::ShardedTensor;
use super::kind::Kind;
use super::mesh::Mesh;
use super::movement::redistribute::placed;
use super::placement::{AxisRole, PARTIAL_SUM, Placements};
use super::rules::Operand;
use super::slot::opened;
use super::traffic::{Phase, in_phase, phase};
use crate::collectives::CollectiveBackend;

thread_local! {
    /// Where the parameters that are fully sharded are, by their shapes, while their gradients are scattered early.
    static FULLY_SHARDED: RefCell<HashMap<Vec<usize>, Placements>> = RefCell::default();
}

/// Runs a backward pass, in which the gradients of the model's fully sharded parameters are scattered early.
pub(super) fn scattering_early<M: Module, T>(model: &M, run: impl FnOnce() -> T) -> T {
    struct Restore(HashMap<Vec<usize>, Placements>);
    impl Drop for Restore {
        fn drop(&mut self) {
            FULLY_SHARDED.set(std::mem::take(&mut self.0));
        }
    }
    let mut finder = Finder(HashMap::new());
    model.visit(&mut finder);
    let _restore = Restore(FULLY_SHARDED.replace(finder.0));
    run()
}

/// Returns the result of an operation. In a backward pass, terms over the data-parallel ranks that are as large as a
/// parameter that is cut there are taken for those of its gradient: they are scattered as it is. Where this guess is
/// wrong, it costs communication.
pub(super) fn scattered<B: CollectiveBackend, K: Kind<B>>(tensor: ShardedTensor<B, K>) -> ShardedTensor<B, K> {
    // Those of vectors are small, and often added up of several operations' results.
    if phase() != Phase::Backward || tensor.shape().num_dims() < 2 {
        return tensor;
    }
    let Some(mesh) = tensor.mesh().cloned() else {
        return tensor;
    };
    let before = tensor.places();
    let places = FULLY_SHARDED.with_borrow(|parameters| {
        let parameter = parameters.get(&tensor.logical_shape().to_vec())?;
        Some(scattered_places(&mesh, before, parameter))
    });
    match places {
        Some(places) if places != before => in_phase(Phase::Gradients, || placed(tensor, &mesh, places)),
        _ => tensor,
    }
}

/// The placements with the parameter's cuts where there are terms over data-parallel ranks.
fn scattered_places(mesh: &Mesh, mut places: Placements, parameter: &Placements) -> Placements {
    for axis in mesh.shape().axes_of(AxisRole::Data) {
        if places[axis] == PARTIAL_SUM && parameter[axis].cut().is_some() {
            places[axis] = parameter[axis];
        }
    }
    places
}

/// Finds parameters that are cut over data-parallel ranks.
struct Finder(HashMap<Vec<usize>, Placements>);

impl ModuleVisitor for Finder {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // What is on another device is not sharded.
        let Ok((tensor, placing)) = opened(param.base()) else {
            return;
        };
        let parameter = placing.look(tensor);
        let Some(mesh) = parameter.mesh() else {
            return;
        };
        let Operand { shape, places } = parameter.operand();
        let mut data = mesh.shape().axes_of(AxisRole::Data);
        if data.any(|axis| places[axis].cut().is_some()) {
            self.0.entry(shape).or_insert(places);
        }
    }
}
