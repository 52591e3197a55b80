//! [`Mesh`]: the ranks as a grid, an axis for each kind of parallelism, and what is counted of their communication.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::placement::{AxisRole, MAX_AXES, MeshShape};
use super::traffic::{Traffic, TrafficRecord};
use crate::collectives::{CollectiveError, GroupConfig, ProcessGroup};
use crate::context::ParallelContext;
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
/// use burn_megatron::prelude::*;
/// use burn_megatron::sharded::Mesh;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = ParallelContext::single(1);
/// let mesh = Mesh::of(&context)?;
/// assert_eq!(mesh.shape().num_axes(), 2); // data and tensor
/// # Ok(())
/// # }
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
    check_inputs_interval: u64,
    /// Backward passes whose gradients were placed.
    steps: AtomicU64,
    traffic: Mutex<Traffic>,
}

/// Steps from one comparison of what ranks were given to the next.
const CHECK_INPUTS_INTERVAL: u64 = 100;

/// A mesh that may be gone.
pub(super) struct WeakMesh(Weak<Inner>);

impl WeakMesh {
    pub(super) fn upgrade(&self) -> Option<Mesh> {
        self.0.upgrade().map(|inner| Mesh { inner })
    }
}

/// A mesh that cannot be.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MeshError {
    #[error(
        "a mesh of all ranks with pipeline_parallel_size {0}: each stage has layers of its own; use \
         pipeline_parallel_size 1, or the layers of burn_megatron::tensor_parallel with PipelineStage"
    )]
    Pipeline(usize),
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
    /// Returns the mesh of a context's data-parallel and tensor-parallel groups, in this order. If the context's
    /// configuration asks for sequence parallelism, activations of three dimensions are cut along dimension 1 between
    /// the layers.
    ///
    /// # Errors
    /// When the context has pipeline stages.
    pub fn of(context: &ParallelContext) -> Result<Self, MeshError> {
        let stages = context.pipeline_group().size();
        if stages > 1 {
            return Err(MeshError::Pipeline(stages));
        }
        let axis = |role, group: &ProcessGroup| MeshAxis {
            role,
            group: group.clone(),
        };
        let mesh = Self::new([
            axis(AxisRole::Data, context.data_group()),
            axis(AxisRole::Tensor, context.tensor_group()),
        ])?;
        Ok(if context.is_sequence_parallel() {
            mesh.with_sequence_dimension(1)
        } else {
            mesh
        })
    }

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
                check_inputs_interval: CHECK_INPUTS_INTERVAL,
                steps: AtomicU64::new(0),
                traffic: Mutex::default(),
            }),
        })
    }

    /// Returns the mesh with sequence parallelism: where sums over a tensor axis are due in an activation of three
    /// dimensions, each rank keeps its range of this dimension of it.
    pub fn with_sequence_dimension(self, dimension: usize) -> Self {
        self.with(Some(dimension), self.inner.check_inputs_interval)
    }

    /// Returns the mesh with this many steps from one comparison of what its ranks were given to the next, in place of
    /// 100; never if it is 0. The first step is always compared, in [`backward`](super::backward),
    /// [`place_gradients`](super::place_gradients) and [`PlacedDataParallel`](super::PlacedDataParallel): what the
    /// calling thread has given [`distribute`](super::distribute) and [`from_local`](super::from_local), and the loss.
    pub fn with_check_inputs_interval(self, steps: u64) -> Self {
        self.with(self.inner.sequence_dimension, steps)
    }

    fn with(&self, sequence_dimension: Option<usize>, check_inputs_interval: u64) -> Self {
        let Inner { axes, shape, ranks, .. } = &*self.inner;
        Self {
            inner: Arc::new(Inner {
                axes: axes.clone(),
                shape: shape.clone(),
                ranks: *ranks,
                sequence_dimension,
                check_inputs_interval,
                steps: AtomicU64::new(0),
                traffic: Mutex::default(),
            }),
        }
    }

    pub(super) fn downgrade(&self) -> WeakMesh {
        WeakMesh(Arc::downgrade(&self.inner))
    }

    /// Returns whether what ranks are given is compared in the step at hand.
    pub(super) fn compares_next(&self) -> bool {
        let (interval, steps) = (
            self.inner.check_inputs_interval,
            self.inner.steps.load(Ordering::Relaxed),
        );
        interval > 0 && steps.is_multiple_of(interval)
    }

    /// Counts a step; returns whether what ranks were given is compared in it.
    pub(super) fn ends_step(&self) -> bool {
        let is_due = self.compares_next();
        self.inner.steps.fetch_add(1, Ordering::Relaxed);
        is_due
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

    /// Gives up this rank's groups, which then fail on the other ranks, too: see [`ProcessGroup::give_up`].
    pub(super) fn give_up(&self, cause: &str) {
        let groups = self.inner.axes.iter().map(|axis| &axis.group);
        groups
            .filter(|group| group.size() > 1)
            .for_each(|group| group.give_up(cause));
    }

    /// The dimension along which activations are cut between tensor-parallel layers.
    pub fn sequence_dimension(&self) -> Option<usize> {
        self.inner.sequence_dimension
    }

    /// Starts to count communication from nothing.
    pub fn start_counting(&self) {
        self.start_counting_near(BTreeMap::new());
    }

    /// As [`start_counting`](Self::start_counting), with the names of parameters by the numbers of their tensors.
    pub(super) fn start_counting_near(&self, names: BTreeMap<u64, String>) {
        self.traffic().start(names);
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
