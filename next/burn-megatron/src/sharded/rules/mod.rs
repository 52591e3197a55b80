//! The rules: from the placements and shapes of an operation's operands to those that it needs, and its results'.
//!
//! Pure functions of integers, one axis of the mesh at a time. The contract: **placement changes cost, never meaning**.
//! Whatever a rule answers, the operation on the parts that it asks for gives the parts of the result that it promises.

pub mod index;
pub mod matmul;
pub mod module;
pub mod movement;
pub mod pointwise;
pub mod reduce;

use super::placement::AxisPlacement::{self, Partial, Replicated, Shard};
use super::placement::{AxisRole, MeshShape, PARTIAL_SUM, Placements, REPLICATED, Reduction};

/// An operand of an operation, or a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The logical shape.
    pub shape: Vec<usize>,
    /// The placement on each axis.
    pub places: Placements,
}

impl Operand {
    /// The number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A rule's view of one axis.
#[derive(Clone, Copy, Debug)]
pub struct AxisView<'a> {
    /// The mesh.
    pub mesh: &'a MeshShape,
    /// The axis in question, of more than one rank.
    pub axis: usize,
    /// The operands; on the axes before this one, outside it, as they will be.
    pub operands: &'a [Operand],
    /// The dimension along which activations of three dimensions are cut in place of being made whole.
    pub sequence_dimension: Option<usize>,
    /// Says that gradients are computed, whose sums can wait.
    pub is_backward: bool,
}

/// A rule's answer for one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisPlan {
    /// The placement that each operand is brought to.
    pub needs: Vec<AxisPlacement>,
    /// The placement of each result.
    pub results: Vec<AxisPlacement>,
}

impl AxisPlan {
    /// Operands and results of these placements.
    pub fn new(needs: impl Into<Vec<AxisPlacement>>, results: impl Into<Vec<AxisPlacement>>) -> Self {
        Self {
            needs: needs.into(),
            results: results.into(),
        }
    }
}

/// The rule of an operation.
pub trait Rule {
    /// The logical shapes of the results: one of the first operand's shape, unless a rule says otherwise.
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![operands[0].shape.clone()]
    }

    /// Returns the placements that the operands need on one axis, and those of the results.
    fn plan(&self, view: &AxisView) -> AxisPlan;
}

/// The answer for an operation on a whole mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The placements that each operand is brought to.
    pub needs: Vec<Placements>,
    /// The results.
    pub results: Vec<Operand>,
}

/// The setting of an operation on a mesh, apart from its operands.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The mesh.
    pub mesh: &'a MeshShape,
    /// See [`AxisView::sequence_dimension`].
    pub sequence_dimension: Option<usize>,
    /// See [`AxisView::is_backward`].
    pub is_backward: bool,
}

/// Asks a rule about every axis, from the outermost cut inwards. On an axis where its answer would leave a rank with
/// nothing, everything is whole.
pub fn plan(rule: &dyn Rule, operands: Vec<Operand>, setting: Setting) -> Plan {
    let mesh = setting.mesh;
    let shapes = rule.shapes(&operands);
    let mut operands = operands;
    let mut results: Vec<Operand> = shapes
        .into_iter()
        .map(|shape| Operand {
            shape,
            places: REPLICATED,
        })
        .collect();
    for &axis in mesh.nested() {
        if operands.iter().all(|operand| operand.places[axis] == Replicated) {
            continue;
        }
        let view = AxisView {
            mesh,
            axis,
            operands: &operands,
            sequence_dimension: setting
                .sequence_dimension
                .filter(|_| mesh.role(axis) == AxisRole::Tensor),
            is_backward: setting.is_backward,
        };
        let answer = rule.plan(&view);
        debug_assert_eq!(
            (answer.needs.len(), answer.results.len()),
            (operands.len(), results.len())
        );
        let is_possible = |operand: &Operand, place: AxisPlacement| {
            place
                .cut()
                .is_none_or(|dimension| mesh.can_cut(&operand.shape, &operand.places, axis, dimension))
        };
        let fits = operands
            .iter()
            .zip(&answer.needs)
            .all(|(operand, &place)| is_possible(operand, place))
            && results
                .iter()
                .zip(&answer.results)
                .all(|(result, &place)| is_possible(result, place));
        if fits {
            for (operand, place) in operands.iter_mut().zip(answer.needs) {
                operand.places[axis] = place;
            }
            for (result, place) in results.iter_mut().zip(answer.results) {
                result.places[axis] = place;
            }
        } else {
            operands
                .iter_mut()
                .for_each(|operand| operand.places[axis] = Replicated);
        }
    }
    Plan {
        needs: operands.into_iter().map(|operand| operand.places).collect(),
        results,
    }
}

impl AxisView<'_> {
    /// The role of the axis.
    pub fn role(&self) -> AxisRole {
        self.mesh.role(self.axis)
    }

    /// The placement of an operand on the axis.
    pub fn place(&self, operand: usize) -> AxisPlacement {
        self.operands[operand].places[self.axis]
    }

    /// Returns the [placement](Self::place) of an operand, whole where it is a maximum or minimum that is not made.
    pub fn place_of_sum(&self, operand: usize) -> AxisPlacement {
        match self.place(operand) {
            Partial(Reduction::Max | Reduction::Min) => Replicated,
            place => place,
        }
    }

    /// The logical shape of an operand.
    pub fn shape(&self, operand: usize) -> &[usize] {
        &self.operands[operand].shape
    }

    /// Returns true if an operand can be cut along a dimension, next to its cuts on other axes.
    pub fn can_cut(&self, operand: usize, dimension: usize) -> bool {
        let Operand { shape, places } = &self.operands[operand];
        self.mesh.can_cut(shape, places, self.axis, dimension)
    }

    /// The placement of an operand's whole values where it is a sum that has not been made: its range of the sequence
    /// if it is an activation that sequence parallelism cuts, else all of it.
    pub fn settled(&self, operand: usize) -> AxisPlacement {
        match self.place(operand) {
            PARTIAL_SUM => self.sequence_of(operand).map_or(Replicated, Shard),
            Partial(_) => Replicated,
            place => place,
        }
    }

    /// The dimension along which sequence parallelism cuts an operand, if it does.
    pub fn sequence_of(&self, operand: usize) -> Option<usize> {
        let is_activation = self.shape(operand).len() == 3;
        self.sequence_dimension
            .filter(|&dimension| is_activation && self.can_cut(operand, dimension))
    }
}
