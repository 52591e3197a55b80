//! [`LocalParameters`]: this rank's parts of a placed model's parameters, as a module on the device inside.

use std::collections::HashMap;

use burn::backend::DispatchTensor;
use burn::module::{Module, Param, ParamId};
use burn::tensor::Tensor;
use burn_backend::TensorMetadata;

use super::error::{LocalParameterError, PlacedError};
use super::model_axes::ModelAxes;
use crate::context::ParallelContext;
use crate::parameters::{Declaration, PathVisitor, Placement, visit_paths};
use crate::sharded::mesh::Mesh;
use crate::sharded::placement::{Placements, without_sums};
use crate::sharded::slot::opened;

/// Defines a parameter of any number of dimensions that is listed.
macro_rules! of_dimensions {
    ($($variant:ident $dimensions:literal),+) => {
        /// This rank's part of a parameter.
        #[derive(Module, Debug)]
        pub enum LocalParameter {
            $(
                #[doc = concat!("Of ", $dimensions, " dimensions.")]
                $variant(Param<Tensor<$dimensions>>),
            )+
        }

        impl LocalParameter {
            /// `None` if there are more dimensions.
            fn new(id: ParamId, value: DispatchTensor, is_trained: bool) -> Option<Self> {
                match value.shape().num_dims() {
                    $($dimensions => {
                        let value = Tensor::<$dimensions>::from_dispatch(value).autodiff();
                        Some(Self::$variant(Param::initialized(id, value.set_require_grad(is_trained))))
                    })+
                    _ => None,
                }
            }

            pub(super) fn id(&self) -> ParamId {
                match self {
                    $(Self::$variant(param) => param.id,)+
                }
            }

            /// The value, of no graph, after waiting for it where it is on its way.
            pub(super) fn value(&self) -> DispatchTensor {
                match self {
                    $(Self::$variant(param) => param.val().inner().into_dispatch(),)+
                }
            }
        }
    };
}

of_dimensions!(One 1, Two 2, Three 3, Four 4, Five 5, Six 6);

/// This rank's parts of the parameters of a model that is placed on a mesh, in the model's order and with its
/// identifiers.
#[derive(Module, Debug)]
pub struct LocalParameters {
    trained: Vec<LocalParameter>,
    /// Frozen parameters, and a batch norm's running statistics as the last step has left them.
    buffers: Vec<LocalParameter>,
}

impl LocalParameters {
    /// By number.
    pub(super) fn trained(&self) -> &[LocalParameter] {
        &self.trained
    }

    pub(super) fn buffers(&self) -> &[LocalParameter] {
        &self.buffers
    }

    /// With other values of what is not trained.
    pub(super) fn with_buffers(self, values: Vec<DispatchTensor>) -> Self {
        let buffers = self.buffers.iter().zip(values);
        let buffers = buffers.filter_map(|(buffer, value)| LocalParameter::new(buffer.id(), value, false));
        Self {
            buffers: buffers.collect(),
            trained: self.trained,
        }
    }
}

/// The numbers, shapes and places of a placed model's parameters.
#[derive(Default)]
pub(super) struct Known {
    /// Of those that are trained.
    pub(super) numbers: HashMap<ParamId, usize>,
    /// By number: the logical shape, where its elements are, and where they are kept.
    pub(super) shapes: Vec<Vec<usize>>,
    pub(super) places: Vec<Placements>,
    pub(super) kept_places: Vec<Placements>,
    /// Where its gradient is to be when it is handed on.
    pub(super) gradient_places: Vec<Placements>,
    /// Of what is not trained, where it is kept.
    pub(super) buffer_places: Vec<Placements>,
}

/// Takes this rank's parts out of a placed model, and declares their layout.
pub(super) fn take_local<M: Module>(
    model: &M,
    mesh: &Mesh,
    axes: ModelAxes,
    context: &ParallelContext,
) -> Result<(LocalParameters, Known), PlacedError> {
    let mut taker = Taker {
        mesh,
        axes,
        context,
        taken: LocalParameters {
            trained: Vec::new(),
            buffers: Vec::new(),
        },
        known: Known::default(),
        error: None,
    };
    visit_paths(model, &mut taker);
    match taker.error {
        Some(error) => Err(error),
        None => Ok((taker.taken, taker.known)),
    }
}

struct Taker<'a> {
    mesh: &'a Mesh,
    axes: ModelAxes,
    context: &'a ParallelContext,
    taken: LocalParameters,
    known: Known,
    error: Option<PlacedError>,
}

impl PathVisitor for Taker<'_> {
    fn visit<const D: usize>(&mut self, name: String, param: &Param<Tensor<D>>) {
        if self.error.is_none() {
            self.error = self.take(name, param).err();
        }
    }
}

impl Taker<'_> {
    fn take<const D: usize>(&mut self, name: String, param: &Param<Tensor<D>>) -> Result<(), PlacedError> {
        let value = param.val();
        let is_trained = value.is_require_grad();
        let (tensor, placing) = opened(value)?;
        let shape = tensor.shape().to_vec();
        let places = without_sums(placing.look(tensor.clone()).operand().places);
        if let Some(axis) = self.axes.cut_over_replicas(&places) {
            let ranks = self.mesh.group(axis).ranks().to_vec();
            return Err(LocalParameterError::CutOverReplicas { name, ranks }.into());
        }
        let (kept, distribution) = self.axes.kept(self.mesh, places, D);
        let part = LocalParameter::new(param.id, placing.part(tensor, self.mesh, &kept), is_trained);
        let Some(part) = part else {
            return Err(LocalParameterError::Dimensions { name, dimensions: D }.into());
        };
        self.context.registry().declare(
            param.id,
            Declaration {
                name,
                placement: placement(self.mesh, &shape, &kept),
                distribution,
                is_tied: false,
                is_reused: false,
            },
        );
        if !is_trained {
            self.taken.buffers.push(part);
            self.known.buffer_places.push(kept);
            return Ok(());
        }
        self.known.numbers.insert(param.id, self.taken.trained.len());
        self.taken.trained.push(part);
        self.known.shapes.push(shape);
        self.known.places.push(places);
        self.known.kept_places.push(kept);
        let gradient_places = self.axes.gradient_places(self.mesh, kept, distribution);
        self.known.gradient_places.push(gradient_places);
        Ok(())
    }
}

/// The box of the logical parameter that this rank has.
fn placement(mesh: &Mesh, shape: &[usize], places: &Placements) -> Placement {
    let ranges = (0..shape.len()).map(|dimension| {
        let length = shape[dimension];
        mesh.shape().range(length, places, dimension, mesh.ranks())
    });
    let (offset, local): (Vec<usize>, Vec<usize>) = ranges.map(|range| (range.start, range.len())).unzip();
    Placement::new(shape, offset, local)
}
