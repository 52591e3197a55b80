//! [`connect_all`]: how groups get their engines, in rounds that all groups take together; `process_group` calls it.
//!
//! What each rank wants, `engine_choice` says.

use std::sync::Arc;

use super::engine_choice::{ENGINE_VARIABLE, EngineChoice, choose, is_auto};
use super::engines::engine::Engine;
use super::error::CollectiveError;
use super::health::GroupHealth;
use super::host::hierarchical::HierarchicalEngine;
use super::host::nodes::Placement;
use super::host::shared_memory::{self, SharedMemoryEngine};
use super::host::tcp::TcpEngine;
use super::rendezvous::{OfGroup, Rendezvous, agree_all};
use crate::launch::World;

/// Returns the engines of some groups of two or more ranks, connected. Collective over the ranks of each: all groups
/// together exchange what one would.
///
/// # Communication
/// A message to the store for the choice, and where ranks share memory three more, however many groups.
///
/// # Errors
/// When the ranks of a group choose differently or cannot be connected.
pub(in crate::collectives) fn connect_all(
    world: &World,
    healths: &[Arc<GroupHealth>],
    asked: EngineChoice,
) -> Result<Vec<Arc<dyn Engine>>, OfGroup> {
    let variable = std::env::var(ENGINE_VARIABLE).ok();
    let variable = variable.as_deref();
    let choose = |placement: &Placement| choose(asked, variable, placement);
    let groups = healths.iter().enumerate().map(|(index, health)| {
        let group = Connecting::new(world, health, choose);
        group.map_err(OfGroup::at(index))
    });
    let mut groups: Vec<Connecting> = groups.collect::<Result<_, _>>()?;
    agree_on_engines(&mut groups)?;
    share_memory(world, &mut groups)?;
    fall_back_to_tcp(world, &mut groups, is_auto(asked, variable))?;
    let engines = groups.into_iter().enumerate().map(|(index, group)| {
        let engine = group.finish();
        engine.map_err(OfGroup::at(index))
    });
    engines.collect()
}

/// A group on its way to its engine.
struct Connecting {
    health: Arc<GroupHealth>,
    rendezvous: Rendezvous,
    placement: Placement,
    /// Anything but `Auto`; or the rule that was broken.
    choice: Result<EngineChoice, String>,
    /// Open before the other ranks hear of the choice: they may connect when all have agreed.
    tcp: Option<TcpEngine>,
    memory: Memory,
}

/// What becomes of the memory that ranks of a group are to share.
enum Memory {
    /// They share none.
    None,
    /// This rank shares it with others.
    Shared(SharedMemoryEngine),
    /// It cannot be had, on no rank of the group.
    Refused(String),
}

impl Connecting {
    fn new(
        world: &World,
        health: &Arc<GroupHealth>,
        choose: impl Fn(&Placement) -> Result<EngineChoice, String>,
    ) -> Result<Self, CollectiveError> {
        let mut connecting = Self {
            health: Arc::clone(health),
            rendezvous: Rendezvous::new(world, health)?,
            placement: Placement::of(world, &health.label.ranks),
            choice: Err(String::new()),
            tcp: None,
            memory: Memory::None,
        };
        connecting.choice = choose(&connecting.placement);
        if let Ok(EngineChoice::Tcp | EngineChoice::Hierarchical) = connecting.choice {
            connecting.open_tcp(world)?;
        }
        Ok(connecting)
    }

    fn open_tcp(&mut self, world: &World) -> Result<(), CollectiveError> {
        let engine = TcpEngine::open(world, &self.health, &self.rendezvous, &self.placement)?;
        self.tcp = Some(engine);
        Ok(())
    }

    /// Returns the ranks that are to share memory with this one, if there are any.
    fn part_with_memory(&self, world: &World) -> Result<Option<(Rendezvous, Arc<GroupHealth>)>, CollectiveError> {
        let label = &self.health.label;
        if self.is(EngineChoice::SharedMemory) {
            return Ok(Some((self.rendezvous.clone(), Arc::clone(&self.health))));
        }
        if !self.is(EngineChoice::Hierarchical) {
            return Ok(None);
        }
        let nodes = self.placement.nodes().map_err(|what| label.no_agreement(what))?;
        let node = nodes.iter().find(|node| node.contains(&label.rank) && node.len() > 1);
        let part = node.map(|node| Arc::new(self.health.of_part("node", node.clone())));
        part.map(|part| Ok((Rendezvous::new(world, &part)?, part))).transpose()
    }

    fn is(&self, choice: EngineChoice) -> bool {
        self.choice == Ok(choice)
    }

    fn finish(self) -> Result<Arc<dyn Engine>, CollectiveError> {
        let Self {
            health,
            placement,
            tcp,
            memory,
            ..
        } = self;
        let no_agreement = |what| health.label.no_agreement(what);
        Ok(match (self.choice.map_err(no_agreement)?, tcp, memory) {
            (EngineChoice::SharedMemory, _, Memory::Shared(engine)) => Arc::new(engine),
            (EngineChoice::Hierarchical, Some(tcp), memory) => {
                let node = match memory {
                    Memory::Shared(engine) => Some(engine),
                    Memory::None | Memory::Refused(_) => None,
                };
                let nodes = placement.nodes().map_err(no_agreement)?;
                Arc::new(HierarchicalEngine::new(&health, nodes, node, tcp))
            }
            (_, Some(tcp), _) => Arc::new(tcp),
            (choice, None, _) => unreachable!("{choice} has nothing to move bytes with"),
        })
    }
}

/// Lets the ranks of each group agree on its engine. A rank that cannot choose says so to the others, rather than not
/// to come.
fn agree_on_engines(groups: &mut [Connecting]) -> Result<(), OfGroup> {
    let statements: Vec<String> = groups
        .iter()
        .map(|group| group.choice.as_ref().map_or_else(Clone::clone, EngineChoice::to_string))
        .collect();
    let rendezvous = groups.iter().map(|group| &group.rendezvous);
    let agreements = agree_all("engine", rendezvous.zip(statements.iter().map(String::as_str)))?;
    for (index, (group, agreement)) in groups.iter().zip(agreements).enumerate() {
        let agreed = group.choice.as_ref().map_err(Clone::clone).and(agreement);
        let agreed = agreed.map_err(|what| group.health.label.no_agreement(what));
        agreed.map_err(OfGroup::at(index))?;
    }
    Ok(())
}

/// Makes the memory that ranks of the groups share: all of a group, or those of each of its nodes.
fn share_memory(world: &World, groups: &mut [Connecting]) -> Result<(), OfGroup> {
    let mut parts = vec![];
    for (index, group) in groups.iter().enumerate() {
        let part = group.part_with_memory(world).map_err(OfGroup::at(index))?;
        parts.extend(part.map(|(rendezvous, health)| (index, rendezvous, health)));
    }
    let connected: Vec<_> = parts
        .iter()
        .map(|(_, rendezvous, health)| (rendezvous, health))
        .collect();
    let places: Vec<usize> = parts.iter().map(|(index, ..)| *index).collect();
    let engines = shared_memory::connect_all(world, &connected).map_err(|of_group| {
        let OfGroup { index, error } = of_group.among(&places);
        let label = &groups[index].health.label;
        OfGroup::at(index)(error.of_whole_group(label.to_string(), label.describe_activity(None)))
    })?;
    for (index, engine) in places.into_iter().zip(engines) {
        groups[index].memory = engine.map_or_else(Memory::Refused, Memory::Shared);
    }
    agree_on_nodes(groups)
}

/// Lets the nodes of each group agree on their memory: what keeps one of them from sharing it is no error of that one
/// alone.
fn agree_on_nodes(groups: &mut [Connecting]) -> Result<(), OfGroup> {
    let places: Vec<usize> = (0..groups.len())
        .filter(|&index| groups[index].is(EngineChoice::Hierarchical))
        .collect();
    let statements = places.iter().map(|&index| {
        let group = &groups[index];
        let statement = match &group.memory {
            Memory::Refused(what) => what,
            Memory::None | Memory::Shared(_) => "shared",
        };
        (&group.rendezvous, statement)
    });
    let agreements = agree_all("the memory of each node", statements).map_err(|of_group| of_group.among(&places))?;
    for (&index, agreement) in places.iter().zip(agreements) {
        if let (Err(what), false) = (agreement, matches!(groups[index].memory, Memory::Refused(_))) {
            groups[index].memory = Memory::Refused(what);
        }
    }
    Ok(())
}

/// Lets groups whose ranks cannot share memory go over TCP, where they may. One host by its name, but two containers,
/// say: all ranks have come to the same verdict.
fn fall_back_to_tcp(world: &World, groups: &mut [Connecting], is_open: bool) -> Result<(), OfGroup> {
    let mut refused = vec![];
    for (index, group) in groups.iter_mut().enumerate() {
        let Memory::Refused(what) = &group.memory else { continue };
        refused.push((index, what.clone()));
        if is_open && group.tcp.is_none() {
            group.open_tcp(world).map_err(OfGroup::at(index))?;
        }
    }
    let places: Vec<usize> = refused.iter().map(|(index, _)| *index).collect();
    let asked = refused
        .iter()
        .map(|(index, what)| (&groups[*index].rendezvous, &**what));
    let fallbacks = fall_back(&asked.collect::<Vec<_>>(), is_open).map_err(|of_group| of_group.among(&places))?;
    for ((index, what), fallback) in refused.into_iter().zip(fallbacks) {
        let label = &groups[index].health.label;
        let fallback = fallback.map_err(|what| label.no_agreement(what));
        fallback.map_err(OfGroup::at(index))?;
        tracing::warn!("group {label} goes over TCP: {what}");
        groups[index].choice = Ok(EngineChoice::Tcp);
    }
    Ok(())
}

/// Returns, of each group, whether all its ranks go over TCP, since none of them was asked for the engine that cannot
/// be had, for the reason that it comes with; or why not. Collective: a rank that fell back by itself would wait for
/// one that was asked.
fn fall_back(groups: &[(&Rendezvous, &str)], is_open: bool) -> Result<Vec<Result<(), String>>, OfGroup> {
    let statement = if is_open {
        "tcp instead"
    } else {
        "no other engine than the one that it was asked for"
    };
    let agreements = agree_all(
        "fallback",
        groups.iter().map(|(rendezvous, _)| (*rendezvous, statement)),
    )?;
    let fallbacks = agreements.into_iter().zip(groups);
    let fallbacks = fallbacks.map(|(agreement, (_, what))| match (is_open, agreement) {
        (true, Ok(())) => Ok(()),
        (false, Ok(())) => Err((*what).to_owned()),
        (_, Err(difference)) => Err(format!("{what}; {difference}")),
    });
    Ok(fallbacks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::tests::{TIMEOUT, group_parts, run_ranks};

    /// What each of two ranks says when shared memory cannot be had.
    fn fallbacks(are_open: [bool; 2]) -> Vec<Result<(), String>> {
        run_ranks(2, TIMEOUT, |world| {
            let (_, rendezvous) = group_parts(&world, "fallback");
            let fallbacks = fall_back(&[(&rendezvous, "no shared memory: planted")], are_open[world.rank()]);
            fallbacks.unwrap().pop().unwrap()
        })
    }

    #[test]
    fn all_ranks_fall_back_to_tcp_or_none_does() {
        assert_eq!(fallbacks([true, true]), [Ok(()), Ok(())]);
        let refused = Err("no shared memory: planted".to_owned());
        assert_eq!(fallbacks([false, false]), [refused.clone(), refused]);
        for are_open in [[true, false], [false, true]] {
            for fallback in fallbacks(are_open) {
                let what = fallback.unwrap_err();
                let expected = "no shared memory: planted; the ranks do not agree on fallback: rank 1: ";
                assert!(what.starts_with(expected), "{what}");
            }
        }
    }
}
