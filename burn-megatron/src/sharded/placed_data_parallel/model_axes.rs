//! [`ModelAxes`]: which axes of a mesh are over ranks that hold different parts of the model, and which over replicas.

use super::error::PlacedError;
use crate::collectives::ProcessGroup;
use crate::context::ParallelContext;
use crate::parameters::Distribution;
use crate::sharded::mesh::Mesh;
use crate::sharded::placement::{AxisPlacement, AxisRole, MAX_AXES, PARTIAL_SUM, Placements, REPLICATED};

/// The axes of a mesh that are over the ranks of the context's tensor-parallel group: those of role `Tensor`, and,
/// where parameters are fully sharded, the last of role `Data`. The other axes are over its data-parallel group.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelAxes {
    holds_parts: [bool; MAX_AXES],
    /// Whether some of them see other samples.
    pub(super) cuts_samples: bool,
}

impl ModelAxes {
    /// Matches the axes of several ranks with the context's groups.
    pub(super) fn of(mesh: &Mesh, context: &ParallelContext) -> Result<Self, PlacedError> {
        let several = |&axis: &usize| mesh.shape().size(axis) > 1;
        let of_role = |role| mesh.shape().axes_of(role).filter(several).collect::<Vec<_>>();
        let mut parts = of_role(AxisRole::Tensor);
        let size = |axes: &[usize]| axes.iter().map(|&axis| mesh.shape().size(axis)).product::<usize>();
        let mut replicas = of_role(AxisRole::Data);
        let tensor = context.tensor_group();
        while size(&parts) < tensor.size()
            && let Some(axis) = replicas.pop()
        {
            parts.insert(0, axis);
        }
        let context_axes = of_role(AxisRole::Context);
        check(mesh, "parts of the model", &parts, tensor)?;
        check(mesh, "replicas", &replicas, context.data_group())?;
        check(mesh, "a context", &context_axes, &ProcessGroup::single())?;
        let mut axes = Self {
            holds_parts: [false; MAX_AXES],
            cuts_samples: false,
        };
        for axis in parts {
            axes.holds_parts[axis] = true;
            axes.cuts_samples |= mesh.shape().role(axis) == AxisRole::Data;
        }
        Ok(axes)
    }

    /// The axis over replicas that a parameter is cut over.
    pub(super) fn cut_over_replicas(&self, places: &Placements) -> Option<usize> {
        (0..MAX_AXES).find(|&axis| places[axis].cut().is_some() && !self.holds_parts[axis])
    }

    /// Where a parameter is kept, and who has it: parts that every rank of these axes has another one of, or the whole.
    pub(super) fn kept(&self, mesh: &Mesh, places: Placements, dimensions: usize) -> (Placements, Distribution) {
        let mut parts = (0..MAX_AXES).filter(|&axis| self.holds_parts[axis]).peekable();
        let is_cut = |axis: usize| places[axis].cut().is_some();
        if parts.peek().is_some() && parts.all(is_cut) {
            return (places, Distribution::Sharded);
        }
        // What some of these axes cut and others do not is too small to be cut further.
        let is_whole = (0..MAX_AXES).all(|axis| !is_cut(axis));
        let distribution = if !is_whole || self.has_terms(mesh, dimensions) {
            Distribution::PartialOverTensor
        } else {
            Distribution::Replicated
        };
        (REPLICATED, distribution)
    }

    /// Whether gradients of what every rank has are summed together at the end of a step: where tokens or samples are
    /// cut, all; elsewhere those of vectors, which are many and small.
    fn has_terms(&self, mesh: &Mesh, dimensions: usize) -> bool {
        dimensions == 1 || mesh.sequence_dimension().is_some() || self.cuts_samples
    }

    /// Where the gradient of a parameter that is kept so is handed on: each replica has a term of it, and each rank of
    /// these axes where its terms are summed at the end of the step.
    pub(super) fn gradient_places(&self, mesh: &Mesh, kept: Placements, distribution: Distribution) -> Placements {
        let mut places = kept;
        for (axis, place) in places.iter_mut().enumerate().take(mesh.shape().num_axes()) {
            let has_terms = !self.holds_parts[axis] || distribution == Distribution::PartialOverTensor;
            if has_terms && *place == AxisPlacement::Replicated {
                *place = PARTIAL_SUM;
            }
        }
        places
    }
}

/// Whether these axes are over the ranks of a group, in its order.
fn check(mesh: &Mesh, of: &'static str, axes: &[usize], group: &ProcessGroup) -> Result<(), PlacedError> {
    let (size, rank) = axes.iter().fold((1, 0), |(size, rank), &axis| {
        let length = mesh.shape().size(axis);
        (size * length, rank * length + mesh.ranks()[axis])
    });
    let ranks_of = |axis: usize| mesh.group(axis).ranks().to_vec();
    let is_in_group = |&axis: &usize| ranks_of(axis).iter().all(|rank| group.ranks().contains(rank));
    if (size, rank) == (group.size(), group.rank()) && axes.iter().all(is_in_group) {
        return Ok(());
    }
    Err(PlacedError::Mesh {
        of,
        axes: axes.iter().map(|&axis| ranks_of(axis)).collect(),
        group: group.ranks().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use AxisPlacement::{Replicated, Shard};

    fn axes(holds_parts: &[usize], cuts_samples: bool) -> ModelAxes {
        let mut axes = ModelAxes {
            holds_parts: [false; MAX_AXES],
            cuts_samples,
        };
        for &axis in holds_parts {
            axes.holds_parts[axis] = true;
        }
        axes
    }

    fn places(first: AxisPlacement, second: AxisPlacement) -> Placements {
        let mut places = REPLICATED;
        (places[0], places[1]) = (first, second);
        places
    }

    #[test]
    fn a_parameter_that_only_some_of_the_axes_cut_is_kept_whole() {
        let mesh = Mesh::of(&ParallelContext::single(1)).expect("one rank");
        let both = axes(&[0, 1], true);
        let cut = places(Shard(0), Shard(1));
        assert_eq!(both.kept(&mesh, cut, 2), (cut, Distribution::Sharded));
        for places in [places(Replicated, Shard(1)), places(Replicated, Replicated)] {
            let (kept, distribution) = both.kept(&mesh, places, 2);
            assert_eq!((kept, distribution), (REPLICATED, Distribution::PartialOverTensor));
            let gradient = both.gradient_places(&mesh, kept, distribution);
            assert_eq!(gradient[..2], [PARTIAL_SUM, PARTIAL_SUM]);
        }
    }

    #[test]
    fn over_replicas_each_rank_has_a_term_of_the_gradient() {
        let mesh = Mesh::of(&ParallelContext::single(1)).expect("one rank");
        let tensor = axes(&[1], false);
        let cut = places(Replicated, Shard(1));
        assert_eq!(tensor.kept(&mesh, cut, 2), (cut, Distribution::Sharded));
        assert_eq!(
            tensor.gradient_places(&mesh, cut, Distribution::Sharded)[..2],
            [PARTIAL_SUM, Shard(1)]
        );
        assert_eq!(tensor.cut_over_replicas(&places(Shard(0), Replicated)), Some(0));
    }
}
