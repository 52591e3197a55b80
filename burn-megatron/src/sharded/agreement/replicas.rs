//! [`check_replicas`]: whether what several ranks have is the same on all of them; [`ReplicaCheck`]: at an interval of
//! steps.

use std::hash::{DefaultHasher, Hasher};

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::collectives::{CollectiveError, ReduceOp};
use crate::parameters::{PathVisitor, visit_paths};
use crate::sharded::mesh::Mesh;
use crate::sharded::placement::{AxisPlacement, Placements};
use crate::sharded::slot::look;

/// Replicas that are not the same.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ReplicaError {
    #[error(
        "parameter {name} is not the same on rank {rank} and rank {other}, which both have {what} of it: an operation \
         outside the model may have changed it on one rank, or the ranks were given different batches or seeds"
    )]
    Differs {
        name: String,
        /// A global rank.
        rank: usize,
        other: usize,
        what: &'static str,
    },
    #[error("a parameter is not the same on other ranks, which say which")]
    Elsewhere,
    /// Found by a [`ReplicaCheck`].
    #[error("after step {step}: {source}")]
    AfterStep {
        /// The step, counted from 1.
        step: u64,
        source: Box<ReplicaError>,
    },
    /// A collective failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

/// [`check_replicas`] at an interval of steps of a training loop, which calls it after each.
///
/// A model in [`PlacedDataParallel`](crate::sharded::PlacedDataParallel) needs none:
/// [`DataParallelConfig::check_replicas_interval`](crate::data_parallel::DataParallelConfig::check_replicas_interval)
/// is its interval.
///
/// # Example
/// ```
/// use burn::nn::LinearConfig;
/// use burn_flex::{Flex, FlexDevice};
/// use burn_megatron::prelude::*;
/// use burn_megatron::sharded::{Mesh, Plan, ReplicaCheck, device, parallelize};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mesh = Mesh::of(&ParallelContext::single(1))?;
/// let device = device::<Flex>(FlexDevice);
/// let model = parallelize(LinearConfig::new(3, 2).init(&device), &Plan::new(), &mesh)?;
/// let mut replicas = ReplicaCheck::every(100);
/// for _step in 0..300 {
///     // … backward, optimizer.step …
///     replicas.after_step(&model, &mesh)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReplicaCheck {
    interval: u64,
    steps: u64,
}

impl ReplicaCheck {
    /// Returns a check after each `interval`th step; never if it is 0.
    pub fn every(interval: u64) -> Self {
        Self { interval, steps: 0 }
    }

    /// Returns the check of a run that has made `steps` steps before it was resumed.
    pub fn resumed_after(self, steps: u64) -> Self {
        Self { steps, ..self }
    }

    /// Counts a step, and compares replicas if they are due: every rank must call.
    ///
    /// # Communication
    /// The collectives of [`check_replicas`] at the interval, otherwise none.
    ///
    /// # Errors
    /// The errors of [`check_replicas`], with the step.
    pub fn after_step<M: Module>(&mut self, model: &M, mesh: &Mesh) -> Result<(), ReplicaError> {
        self.steps += 1;
        if self.interval == 0 || !self.steps.is_multiple_of(self.interval) {
            return Ok(());
        }
        check_replicas(model, mesh).map_err(|error| match error {
            error @ ReplicaError::Collective(_) => error,
            found => ReplicaError::AfterStep {
                step: self.steps,
                source: Box::new(found),
            },
        })
    }
}

/// Compares the parameters of a model over the ranks that have the same part of them, by hash.
///
/// Placements say which parts are the same; nothing else sees to it. [`ReplicaCheck`] calls this at an interval of
/// steps.
///
/// # Communication
/// Per axis of the mesh, one all-gather of 8 bytes per parameter, and one all-reduce of 8 bytes.
///
/// # Errors
/// On every rank when a parameter differs: its name and two of the ranks, on those that compared it. The error of a
/// collective that failed.
pub fn check_replicas<M: Module>(model: &M, mesh: &Mesh) -> Result<(), ReplicaError> {
    let mut hashes = Hashes(Vec::new());
    visit_paths(model, &mut hashes);
    let mut found = None;
    for axis in 0..mesh.shape().num_axes() {
        let group = mesh.group(axis).labelled("comparing replicas of sharded parameters");
        if group.size() == 1 {
            continue;
        }
        let compared: Vec<_> = hashes.0.iter().filter(|hash| hash.is_replicated(axis)).collect();
        let own: Vec<i64> = compared.iter().map(|hash| hash.hash).collect();
        let mut all = vec![0; own.len() * group.size()];
        group.all_gather(&own, &mut all)?;
        for (index, parameter) in compared.into_iter().enumerate() {
            let of_rank = |rank: usize| all[rank * own.len() + index];
            if let Some(other) = (1..group.size()).find(|&rank| of_rank(rank) != of_rank(0)) {
                let is_whole = parameter.places.iter().all(|place| place.cut().is_none());
                found = found.or(Some(ReplicaError::Differs {
                    name: parameter.name.clone(),
                    rank: group.ranks()[0],
                    other: group.ranks()[other],
                    what: if is_whole { "all" } else { "the same part" },
                }));
            }
        }
    }
    // All ranks end alike, those that have seen nothing too.
    let mut differs = [i64::from(found.is_some())];
    for axis in (0..mesh.shape().num_axes()).filter(|&axis| mesh.shape().size(axis) > 1) {
        mesh.group(axis).all_reduce(&mut differs, ReduceOp::Max)?;
    }
    match found {
        Some(error) => Err(error),
        None if differs[0] > 0 => Err(ReplicaError::Elsewhere),
        None => Ok(()),
    }
}

/// This rank's part of a parameter.
struct ParameterHash {
    name: String,
    places: Placements,
    hash: i64,
}

impl ParameterHash {
    fn is_replicated(&self, axis: usize) -> bool {
        self.places[axis] == AxisPlacement::Replicated
    }
}

/// Hashes this rank's parts of a model's parameters.
struct Hashes(Vec<ParameterHash>);

impl PathVisitor for Hashes {
    fn visit<const D: usize>(&mut self, name: String, param: &Param<Tensor<D>>) {
        let tensor = look(param.base());
        let mut hasher = DefaultHasher::new();
        hasher.write(tensor.part().as_bytes());
        self.0.push(ParameterHash {
            name,
            places: tensor.operand().places,
            hash: hasher.finish() as i64,
        });
    }
}
