//! How a group is made: its options, and the connecting of its ranks.

use super::ProcessGroup;
use crate::collectives::call::GroupLabel;
use crate::collectives::connecting;
use crate::collectives::engine_choice::EngineChoice;
use crate::collectives::engines::engine::Engine;
use crate::collectives::engines::fake::FakeEngine;
use crate::collectives::engines::single::SingleEngine;
use crate::collectives::error::CollectiveError;
use crate::collectives::health::GroupHealth;
use crate::collectives::rendezvous::OfGroup;
use crate::launch::World;
use crate::ranks::listed_ranks;
use std::panic::Location;
use std::sync::Arc;

/// The longest name of a group: it becomes part of file names and store keys.
const MAX_NAME_BYTES: usize = 64;

/// How a group is made. [`EngineChoice`] is one.
pub trait GroupOptions {
    /// Which engine moves the bytes of host memory. The same on every rank of the group.
    fn engine(&self) -> EngineChoice;

    /// Checks what does not depend on other ranks.
    ///
    /// # Errors
    /// What is wrong, in words.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Gives a group that has been connected what else it is to have. Collective over the group.
    ///
    /// # Errors
    /// As the group's calls.
    fn attach(&self, group: &ProcessGroup) -> Result<(), CollectiveError> {
        let _ = group;
        Ok(())
    }
}

impl GroupOptions for EngineChoice {
    fn engine(&self) -> EngineChoice {
        *self
    }
}

impl ProcessGroup {
    /// Returns the group of `ranks`, called `name` in messages. Collective over `ranks`, which are
    /// global ranks, ascending, among them this one.
    ///
    /// # Errors
    /// When the arguments are wrong, when the ranks do not agree, when some do not come within
    /// [`World::timeout`], when one of them fails.
    #[track_caller]
    pub fn connect(
        world: &World,
        name: &str,
        ranks: &[usize],
        options: &impl GroupOptions,
    ) -> Result<ProcessGroup, CollectiveError> {
        let mut groups = Self::connect_all(world, &[(name, ranks)], options)?;
        Ok(groups.pop().expect("one was asked for"))
    }

    /// Returns groups of these names and ranks, as [`connect`](Self::connect) returns one. Collective over the ranks of
    /// each: a rank makes in one call what the others do, as far as it is a member, and in the same order.
    ///
    /// # Communication
    /// A message to the store, and where ranks of a node share memory three more, however many groups. Connections
    /// between ranks are made when they are first used.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); the error is of the first group that has one, and no group is made: ranks of the
    /// others wait for this one until it has left the job.
    #[track_caller]
    pub fn connect_all<N: AsRef<str>, R: AsRef<[usize]>>(
        world: &World,
        groups: &[(N, R)],
        options: &impl GroupOptions,
    ) -> Result<Vec<ProcessGroup>, CollectiveError> {
        let called_at = Location::caller();
        let mut healths = vec![];
        for (name, ranks) in groups {
            let label = check_membership(world, name.as_ref(), ranks.as_ref())?;
            options.check().map_err(|what| label.no_agreement(what))?;
            healths.push(Arc::new(GroupHealth::new(label, world)));
        }
        let has_others = |health: &&Arc<GroupHealth>| health.label.size() > 1 && !world.is_fake();
        let connected: Vec<_> = healths.iter().filter(has_others).map(Arc::clone).collect();
        let engines = connecting::connect_all(world, &connected, options.engine());
        let mut engines = engines
            .map_err(|OfGroup { index, error }| {
                connected[index].suspect(&error, called_at);
                connected[index].flight_recorder.write_failure(&error.to_string());
                error
            })?
            .into_iter();
        let mut made = vec![];
        for health in healths {
            let engine = match health.label.place() {
                (_, 1) => Arc::new(SingleEngine) as Arc<dyn Engine>,
                (rank, size) if world.is_fake() => Arc::new(FakeEngine::new(rank, size)),
                _ => engines.next().expect("each has an engine"),
            };
            tracing::debug!(group = %health.label, engine = engine.name(), "connected");
            made.push(Self::new(health, engine).ending_with(world));
        }
        made.iter().try_for_each(|group| options.attach(group))?;
        Ok(made)
    }
}

/// Checks the arguments of [`ProcessGroup::connect`].
fn check_membership(world: &World, name: &str, ranks: &[usize]) -> Result<GroupLabel, CollectiveError> {
    let refuse = |what: String| {
        Err(CollectiveError::InvalidArgument {
            group: format!("{name} {}", listed_ranks(ranks)),
            operation: "connect".to_string(),
            what,
        })
    };
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        let length = name.len();
        return refuse(format!("name of {length} bytes: expected 1 to {MAX_NAME_BYTES}"));
    }
    if name.contains(char::is_control) {
        return refuse("the name contains a control character".to_string());
    }
    if !ranks.is_sorted_by(|first, second| first < second) {
        return refuse("ranks are not ascending".to_string());
    }
    if let Some(last) = ranks.last()
        && *last >= world.world_size()
    {
        let world_size = world.world_size();
        return refuse(format!("rank {last}: expected less than the world size {world_size}"));
    }
    match ranks.binary_search(&world.rank()) {
        Ok(rank) => Ok(GroupLabel {
            name: name.into(),
            ranks: ranks.into(),
            rank,
        }),
        Err(_) => refuse(format!("this rank, {}, is not among the ranks", world.rank())),
    }
}
