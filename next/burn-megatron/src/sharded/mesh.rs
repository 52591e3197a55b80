//! [`Mesh`]: the ranks as a grid, an axis for each kind of parallelism, and what is counted of their communication.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::placement::{AxisRole, MAX_AXES, MeshShape};
use super::traffic::{Traffic, TrafficRecord};
use crate::collectives::{CollectiveError, GroupConfig, ProcessGroup};
use crate::launch::World;

/// An axis of a mesh: this rank's group along it.
#[derive(Clone, Debug)]
pub struct MeshAxis {
    /// What its ranks are for.
    pub role: AxisRole,
    /// The ranks that differ from this one along the axis alone, and this one.
    pub group: ProcessGroup,
}

/// A grid of ranks that tensors are placed on. Clones are the same mesh.
///
/// # Example
/// ```
/// use burn_megatron::collectives::GroupConfig;
/// use burn_megatron::launch::World;
/// use burn_megatron::sharded::{AxisRole, Mesh, MeshError};
///
/// fn mesh_of_all_ranks(world: &World) -> Result<Mesh, MeshError> {
///     Mesh::connect(world, &[(AxisRole::Tensor, world.world_size())], &GroupConfig::new())
/// }
/// ```
#[derive(Clone)]
pub struct Mesh {
    inner: Arc<Inner>,
}

struct Inner {
    axes: Vec<MeshAxis>,
    shape: MeshShape,
    /// This rank's index along each axis.
    ranks: [usize; MAX_AXES],
    sequence_dimension: Option<usize>,
    traffic: Mutex<Traffic>,
}

/// A mesh that cannot be.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MeshError {
    #[error("a mesh has at most {MAX_AXES} axes, got {0}")]
    TooManyAxes(usize),
    #[error("a mesh of axes of {sizes:?} ranks has {num_ranks}, and the world {world_size}")]
    WorldSize {
        sizes: Vec<usize>,
        num_ranks: usize,
        world_size: usize,
    },
    /// A group could not be connected.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

impl Mesh {
    /// Connects the groups of a grid of all ranks of the world: the last axis is the fastest. Two axes of data make
    /// hybrid sharding: replicas on the first, each cut over the ranks of the second.
    ///
    /// # Communication
    /// A rendezvous of each group's ranks; every rank of the world must call.
    ///
    /// # Errors
    /// When there are too many axes, when their sizes are not those of the world, or a group does not come together in
    /// time.
    ///
    /// # Reference
    /// Zhao et al. 2023, arXiv:2304.11277, section 3.2.2.
    pub fn connect(world: &World, axes: &[(AxisRole, usize)], groups: &GroupConfig) -> Result<Self, MeshError> {
        let num_ranks: usize = axes.iter().map(|&(_, size)| size).product();
        if axes.len() > MAX_AXES {
            return Err(MeshError::TooManyAxes(axes.len()));
        }
        if num_ranks != world.world_size() {
            return Err(MeshError::WorldSize {
                sizes: axes.iter().map(|&(_, size)| size).collect(),
                num_ranks,
                world_size: world.world_size(),
            });
        }
        let mut members = Vec::new();
        let mut stride = num_ranks;
        for (number, &(role, size)) in axes.iter().enumerate() {
            stride /= size;
            let index = world.rank() / stride % size;
            let first = world.rank() - index * stride;
            let ranks: Vec<usize> = (0..size).map(|index| first + index * stride).collect();
            let name = format!("{role:?} axis {number}").to_lowercase();
            members.push((name, ranks));
        }
        let connected = ProcessGroup::connect_all(world, &members, groups)?;
        let roles = axes.iter().map(|&(role, _)| role);
        let axes = roles.zip(connected).map(|(role, group)| MeshAxis { role, group });
        Self::new(axes.collect::<Vec<_>>())
    }

    /// Returns a mesh of these axes. Every rank is at one place of the grid, and gives the axes in the same order.
    ///
    /// # Errors
    /// When there are too many axes.
    pub fn new(axes: impl Into<Vec<MeshAxis>>) -> Result<Self, MeshError> {
        let axes = axes.into();
        if axes.len() > MAX_AXES {
            return Err(MeshError::TooManyAxes(axes.len()));
        }
        let shape = MeshShape::new(
            axes.iter()
                .map(|axis| (axis.role, axis.group.size()))
                .collect::<Vec<_>>(),
        );
        let mut ranks = [0; MAX_AXES];
        for (rank, axis) in ranks.iter_mut().zip(&axes) {
            *rank = axis.group.rank();
        }
        Ok(Self {
            inner: Arc::new(Inner {
                axes,
                shape,
                ranks,
                sequence_dimension: None,
                traffic: Mutex::default(),
            }),
        })
    }

    /// Returns the mesh with sequence parallelism: where sums over a tensor axis are due in an activation of three
    /// dimensions, each rank keeps its range of this dimension of it.
    pub fn with_sequence_dimension(self, dimension: usize) -> Self {
        let Inner { axes, shape, ranks, .. } = &*self.inner;
        Self {
            inner: Arc::new(Inner {
                axes: axes.clone(),
                shape: shape.clone(),
                ranks: *ranks,
                sequence_dimension: Some(dimension),
                traffic: Mutex::default(),
            }),
        }
    }

    /// The sizes and roles of the axes.
    pub fn shape(&self) -> &MeshShape {
        &self.inner.shape
    }

    /// This rank's index along each axis.
    pub fn ranks(&self) -> &[usize] {
        &self.inner.ranks[..self.inner.axes.len()]
    }

    /// The number of ranks.
    pub fn num_ranks(&self) -> usize {
        self.inner.axes.iter().map(|axis| axis.group.size()).product()
    }

    /// The range of `length` samples, or of a dimension's elements, that this rank has if all axes of a role cut them.
    pub fn part(&self, role: AxisRole, length: usize) -> Range<usize> {
        let places = self.shape().cut_by(role, 0);
        self.shape().range(length, &places, 0, self.ranks())
    }

    /// This rank's group along an axis.
    pub fn group(&self, axis: usize) -> &ProcessGroup {
        &self.inner.axes[axis].group
    }

    /// The dimension along which activations are cut between tensor-parallel layers.
    pub fn sequence_dimension(&self) -> Option<usize> {
        self.inner.sequence_dimension
    }

    /// Starts to count communication from nothing.
    pub fn start_counting(&self) {
        self.traffic().start();
    }

    /// Stops to count, and returns what was communicated since [`start_counting`](Self::start_counting).
    pub fn stop_counting(&self) -> Vec<TrafficRecord> {
        self.traffic().stop()
    }

    pub(super) fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.inner.traffic.lock()
    }

    /// Whether both are the same mesh.
    pub fn is_same(&self, other: &Mesh) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.inner.axes).finish()
    }
}
