//! [`apply`]: an operation on placed tensors, by its rule.

use std::ops::Range;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::any_tensor::AnyTensor;
use super::compare::recorder;
use super::early_scatter::scattered;
use super::explain::work;
use super::kind::{Float, Kind};
use super::mesh::Mesh;
use super::movement::redistribute::{local_of_whole, redistribute};
use super::placement::{AxisPlacement, Placements, Reduction};
use super::rules::{self, Operand, Rule, Setting};
use super::tensor::ShardedTensor;
use super::traffic::{self, Phase};
use crate::collectives::CollectiveBackend;

/// Runs an operation of the inner backend on this rank's parts of the operands, brought to where `rule` wants them.
///
/// `run` gets the parts and what is known of them, and returns this rank's parts of the results.
///
/// # Communication
/// The collectives that the rule's answer needs: see [`redistribute`].
#[track_caller]
pub(super) fn apply<B, I, R>(
    name: &'static str,
    inputs: I,
    rule: impl FnOnce() -> Box<dyn Rule>,
    run: impl FnOnce(I::Locals, &Placed) -> R::Locals,
) -> R
where
    B: CollectiveBackend,
    I: Inputs<B>,
    R: Outputs<B>,
{
    let tensors = inputs.tensors();
    let seen = recorder::operands(&tensors);
    let Some(mesh) = tensors.iter().find_map(|tensor| tensor.mesh().cloned()) else {
        let shapes = work::is_counting().then(|| tensors.iter().map(|tensor| tensor.operand().shape).collect());
        let locals = run(inputs.wholes(), &Placed::default());
        count::<B, R>(name, shapes, &locals);
        let outputs = R::whole(locals);
        recorder::results(name, seen, || outputs.tensors());
        return outputs;
    };
    traffic::set_operation(name);
    mesh.traffic()
        .begin(|| tensors.iter().map(|tensor| tensor.id()).collect());
    let operands: Vec<Operand> = tensors.iter().map(|tensor| tensor.operand()).collect();
    let setting = Setting {
        mesh: mesh.shape(),
        sequence_dimension: mesh.sequence_dimension(),
        is_backward: traffic::phase() == Phase::Backward,
    };
    #[cfg(test)]
    let before = operands.clone();
    let plan = rules::plan(&*rule(), operands, setting);
    #[cfg(test)]
    let plan = super::compare::faults::change(name, &before, plan);
    let shapes = work::is_counting().then(|| {
        let needed = tensors.iter().zip(&plan.needs);
        needed
            .map(|(tensor, places)| mesh.shape().local_shape(&tensor.operand().shape, places, mesh.ranks()))
            .collect()
    });
    let locals = inputs.place(&mesh, &mut plan.needs.iter());
    let placed = Placed {
        mesh: Some(mesh),
        needs: plan.needs,
        results: plan.results,
    };
    let locals = run(locals, &placed);
    count::<B, R>(name, shapes, &locals);
    let outputs = R::placed(locals, &placed);
    recorder::results(name, seen, || outputs.tensors());
    outputs
}

/// `shapes` are those of this rank's parts of the operands, if its work is counted.
fn count<B: CollectiveBackend, R: Outputs<B>>(name: &str, shapes: Option<Vec<Vec<usize>>>, locals: &R::Locals) {
    if let Some(shapes) = shapes {
        work::add(name, &shapes, R::elements(locals));
    }
}

/// The places of an operation's operands and results after its rule has answered.
///
/// Without a mesh everything is whole, and nothing is recorded.
#[derive(Default)]
pub(super) struct Placed {
    mesh: Option<Mesh>,
    needs: Vec<Placements>,
    results: Vec<Operand>,
}

impl Placed {
    /// The shape of this rank's part of a result, whose logical shape is `logical`.
    pub(super) fn result_shape(&self, result: usize, logical: &[usize]) -> Shape {
        match &self.mesh {
            None => Shape::from(logical.to_vec()),
            Some(mesh) => {
                let Operand { shape, places } = &self.results[result];
                Shape::from(mesh.shape().local_shape(shape, places, mesh.ranks()))
            }
        }
    }

    /// The range of a dimension of length `length` that this rank's part of an operand has.
    pub(super) fn operand_range(&self, operand: usize, dimension: usize, length: usize) -> Range<usize> {
        self.range(|placed| &placed.needs[operand], dimension, length)
    }

    pub(super) fn result_range(&self, result: usize, dimension: usize, length: usize) -> Range<usize> {
        self.range(|placed| &placed.results[result].places, dimension, length)
    }

    fn range(&self, places: impl FnOnce(&Self) -> &Placements, dimension: usize, length: usize) -> Range<usize> {
        match &self.mesh {
            None => 0..length,
            Some(mesh) => mesh.shape().range(length, places(self), dimension, mesh.ranks()),
        }
    }

    /// Returns true if the part of an operand has all of a dimension.
    pub(super) fn has_all(&self, operand: usize, dimension: usize) -> bool {
        match &self.mesh {
            None => true,
            Some(mesh) => mesh.shape().parts(&self.needs[operand], dimension) == 1,
        }
    }

    /// A part of a first result with the other ranks' added in, over the axes that cut a dimension of an operand; of
    /// other axes it is as the result is. `lead` is the number of dimensions that it has before the result's.
    #[track_caller]
    pub(super) fn joined<B: CollectiveBackend>(
        &self,
        part: FloatTensor<B>,
        reduction: Reduction,
        (operand, dimension): (usize, usize),
        lead: usize,
    ) -> FloatTensor<B> {
        let Some(mesh) = &self.mesh else {
            return part;
        };
        let mut shape = part.shape();
        let result = &self.results[0];
        for (index, &length) in result.shape.iter().enumerate() {
            shape[lead + index] = length;
        }
        let whole = result.places.map(|place| match place {
            AxisPlacement::Shard(cut) => AxisPlacement::Shard(lead + cut),
            place => place,
        });
        let mut terms = whole;
        for (place, cut) in terms.iter_mut().zip(self.needs[operand]) {
            if cut == AxisPlacement::Shard(dimension) {
                *place = AxisPlacement::Partial(reduction);
            }
        }
        let terms = ShardedTensor::<B, Float>::placed(part, shape, Some(mesh.clone()), terms);
        redistribute(terms, mesh, &whole)
    }

    /// Returns true if everything is whole.
    pub(super) fn is_whole(&self) -> bool {
        self.mesh.is_none()
    }
}

/// The operands of an operation: tensors, those that may be missing, and lists of them.
pub(super) trait Inputs<B: CollectiveBackend>: Sized {
    /// This rank's parts.
    type Locals;

    fn tensors(&self) -> Vec<&dyn AnyTensor>;
    /// The parts where they are needed, one placement per tensor.
    fn place(self, mesh: &Mesh, needs: &mut std::slice::Iter<'_, Placements>) -> Self::Locals;
    /// The parts where every rank has everything.
    fn wholes(self) -> Self::Locals;
}

impl<B: CollectiveBackend, K: Kind<B>> Inputs<B> for ShardedTensor<B, K> {
    type Locals = K::Tensor;

    fn tensors(&self) -> Vec<&dyn AnyTensor> {
        vec![self]
    }

    #[track_caller]
    fn place(self, mesh: &Mesh, needs: &mut std::slice::Iter<'_, Placements>) -> K::Tensor {
        let places = needs.next().expect("one placement per operand");
        redistribute(self, mesh, places)
    }

    fn wholes(self) -> K::Tensor {
        local_of_whole(self)
    }
}

impl<B: CollectiveBackend, T: Inputs<B>> Inputs<B> for Option<T> {
    type Locals = Option<T::Locals>;

    fn tensors(&self) -> Vec<&dyn AnyTensor> {
        self.iter().flat_map(Inputs::tensors).collect()
    }

    #[track_caller]
    fn place(self, mesh: &Mesh, needs: &mut std::slice::Iter<'_, Placements>) -> Self::Locals {
        self.map(|tensor| tensor.place(mesh, needs))
    }

    fn wholes(self) -> Self::Locals {
        self.map(Inputs::wholes)
    }
}

impl<B: CollectiveBackend, T: Inputs<B>> Inputs<B> for Vec<T> {
    type Locals = Vec<T::Locals>;

    fn tensors(&self) -> Vec<&dyn AnyTensor> {
        self.iter().flat_map(Inputs::tensors).collect()
    }

    #[track_caller]
    fn place(self, mesh: &Mesh, needs: &mut std::slice::Iter<'_, Placements>) -> Self::Locals {
        self.into_iter().map(|tensor| tensor.place(mesh, needs)).collect()
    }

    fn wholes(self) -> Self::Locals {
        self.into_iter().map(Inputs::wholes).collect()
    }
}

macro_rules! tuple {
    ($($input:ident . $index:tt),+) => {
        impl<B: CollectiveBackend, $($input: Inputs<B>),+> Inputs<B> for ($($input,)+) {
            type Locals = ($($input::Locals,)+);

            fn tensors(&self) -> Vec<&dyn AnyTensor> {
                [$(self.$index.tensors()),+].concat()
            }

            #[track_caller]
            fn place(self, mesh: &Mesh, needs: &mut std::slice::Iter<'_, Placements>) -> Self::Locals {
                ($(self.$index.place(mesh, needs),)+)
            }

            fn wholes(self) -> Self::Locals {
                ($(self.$index.wholes(),)+)
            }
        }
    };
}

tuple!(I0.0);
tuple!(I0.0, I1.1);
tuple!(I0.0, I1.1, I2.2);
tuple!(I0.0, I1.1, I2.2, I3.3);
tuple!(I0.0, I1.1, I2.2, I3.3, I4.4);
tuple!(I0.0, I1.1, I2.2, I3.3, I4.4, I5.5);

/// The results of an operation: one tensor, or several.
pub(super) trait Outputs<B: CollectiveBackend> {
    /// This rank's parts.
    type Locals;

    /// The elements of this rank's parts together.
    fn elements(locals: &Self::Locals) -> usize;
    fn whole(locals: Self::Locals) -> Self;
    fn placed(locals: Self::Locals, placed: &Placed) -> Self;
    fn tensors(&self) -> Vec<&dyn AnyTensor>;
}

impl<B: CollectiveBackend, K: Kind<B>> Outputs<B> for ShardedTensor<B, K> {
    type Locals = K::Tensor;

    fn elements(local: &K::Tensor) -> usize {
        local.shape().num_elements()
    }

    fn whole(local: K::Tensor) -> Self {
        ShardedTensor::whole(local)
    }

    fn placed(local: K::Tensor, placed: &Placed) -> Self {
        result(local, placed, 0)
    }

    fn tensors(&self) -> Vec<&dyn AnyTensor> {
        vec![self]
    }
}

impl<B: CollectiveBackend, K: Kind<B>, L: Kind<B>> Outputs<B> for (ShardedTensor<B, K>, ShardedTensor<B, L>) {
    type Locals = (K::Tensor, L::Tensor);

    fn elements((first, second): &Self::Locals) -> usize {
        first.shape().num_elements() + second.shape().num_elements()
    }

    fn whole((first, second): Self::Locals) -> Self {
        (ShardedTensor::whole(first), ShardedTensor::whole(second))
    }

    fn placed((first, second): Self::Locals, placed: &Placed) -> Self {
        (result(first, placed, 0), result(second, placed, 1))
    }

    fn tensors(&self) -> Vec<&dyn AnyTensor> {
        vec![&self.0, &self.1]
    }
}

impl<B: CollectiveBackend, K: Kind<B>> Outputs<B> for Vec<Option<ShardedTensor<B, K>>> {
    type Locals = Vec<Option<K::Tensor>>;

    fn elements(locals: &Self::Locals) -> usize {
        let of_each = locals.iter().flatten().map(|local| local.shape().num_elements());
        of_each.sum()
    }

    fn whole(locals: Self::Locals) -> Self {
        locals
            .into_iter()
            .map(|local| local.map(ShardedTensor::whole))
            .collect()
    }

    fn placed(locals: Self::Locals, placed: &Placed) -> Self {
        let locals = locals.into_iter().enumerate();
        locals
            .map(|(index, local)| local.map(|local| result(local, placed, index)))
            .collect()
    }

    fn tensors(&self) -> Vec<&dyn AnyTensor> {
        let made = self.iter().flatten();
        made.map(|tensor| tensor as &dyn AnyTensor).collect()
    }
}

fn result<B: CollectiveBackend, K: Kind<B>>(local: K::Tensor, placed: &Placed, index: usize) -> ShardedTensor<B, K> {
    let Operand { shape, places } = &placed.results[index];
    let mut shape = shape.clone();
    for (dimension, length) in shape.iter_mut().enumerate() {
        // What a rule has not known is whole.
        if *length == 0 {
            *length = local.shape()[dimension];
        }
    }
    scattered(ShardedTensor::placed(
        local,
        Shape::from(shape),
        placed.mesh.clone(),
        *places,
    ))
}
