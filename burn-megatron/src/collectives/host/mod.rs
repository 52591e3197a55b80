//! Engines for host memory: shared memory inside a node, TCP between nodes.
//!
//! [`connect`] chooses one and makes it; `process_group` calls it.

mod reduce;
mod rendezvous;
mod shared_memory;
pub(super) mod tcp;

use super::engine::Engine;
use super::error::CollectiveError;
use super::health::GroupHealth;
use super::process_group::GroupOptions;
use crate::launch::World;
use rendezvous::Rendezvous;
use std::fmt;
use std::sync::Arc;

/// The environment variable that chooses the engine where the options leave it open.
const ENGINE_VARIABLE: &str = "BURN_MEGATRON_ENGINE";

/// Which engine moves the bytes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// What `BURN_MEGATRON_ENGINE` says (`auto`, `shared-memory`, `tcp`); without it shared memory
    /// when all ranks are on one host, otherwise TCP.
    #[default]
    Auto,
    /// Shared memory; an error when the ranks are on several hosts.
    SharedMemory,
    /// TCP, also between ranks of one host.
    Tcp,
}

impl EngineChoice {
    const ALL: [EngineChoice; 3] = [EngineChoice::Auto, EngineChoice::SharedMemory, EngineChoice::Tcp];
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            EngineChoice::Auto => "auto",
            EngineChoice::SharedMemory => "shared-memory",
            EngineChoice::Tcp => "tcp",
        })
    }
}

/// Returns the engine of a group of two or more ranks, connected. Collective over the ranks.
///
/// # Errors
/// When the ranks choose differently or cannot be connected.
pub(crate) fn connect(
    world: &World,
    health: &Arc<GroupHealth>,
    options: &GroupOptions,
) -> Result<Arc<dyn Engine>, CollectiveError> {
    let label = &health.label;
    let hosts: Vec<&str> = label.ranks.iter().map(|&rank| world.host_of(rank)).collect();
    let variable = std::env::var(ENGINE_VARIABLE).ok();
    let rendezvous = Rendezvous::new(world, health)?;
    // A rank that cannot choose says so to the others, rather than not to come.
    let choice = choose(options.engine, variable.as_deref(), &hosts);
    let statement = choice.as_ref().map_or_else(Clone::clone, EngineChoice::to_string);
    let agreement = rendezvous.agree("engine", &statement)?;
    let no_agreement = |what| CollectiveError::NoAgreement {
        group: label.to_string(),
        what,
    };
    let choice = choice.map_err(no_agreement)?;
    agreement.map_err(no_agreement)?;
    Ok(match choice {
        EngineChoice::SharedMemory => match shared_memory::connect(world, health, &rendezvous) {
            Ok(engine) => Arc::new(engine),
            // One host by its name, but two containers, say. All ranks have come to the same verdict.
            Err(CollectiveError::NoAgreement { what, .. }) if is_auto(options.engine, variable.as_deref()) => {
                tracing::warn!("group {label} goes over TCP: {what}");
                Arc::new(tcp::connect(world, health, &rendezvous)?)
            }
            Err(error) => return Err(error),
        },
        _ => Arc::new(tcp::connect(world, health, &rendezvous)?),
    })
}

/// Whether nobody asked for an engine.
fn is_auto(option: EngineChoice, variable: Option<&str>) -> bool {
    option == EngineChoice::Auto && variable.is_none_or(|text| text == "auto")
}

/// Returns `SharedMemory` or `Tcp`, from the option, the environment variable and the hosts of the
/// ranks; or the rule that was broken.
fn choose(option: EngineChoice, variable: Option<&str>, hosts: &[&str]) -> Result<EngineChoice, String> {
    let wanted = match (option, variable) {
        (EngineChoice::Auto, Some(text)) => EngineChoice::ALL
            .into_iter()
            .find(|choice| choice.to_string() == text)
            .ok_or_else(|| format!("{ENGINE_VARIABLE} is {text:?}: expected auto, shared-memory or tcp"))?,
        (option, _) => option,
    };
    let other_host = hosts.iter().find(|host| **host != hosts[0]);
    match (wanted, other_host) {
        (EngineChoice::Auto, None) => Ok(EngineChoice::SharedMemory),
        (EngineChoice::Auto, Some(_)) => Ok(EngineChoice::Tcp),
        (EngineChoice::SharedMemory, Some(other)) => Err(format!(
            "shared memory needs all ranks on one host, but they are on {} and {other}; use tcp \
             or auto",
            hosts[0]
        )),
        (wanted, _) => Ok(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EngineChoice::{Auto, SharedMemory, Tcp};

    #[test]
    fn auto_takes_shared_memory_on_one_host_and_tcp_between_hosts() {
        assert_eq!(choose(Auto, None, &["a", "a"]), Ok(SharedMemory));
        assert_eq!(choose(Auto, None, &["a", "b"]), Ok(Tcp));
        assert_eq!(choose(Auto, Some("auto"), &["a", "a"]), Ok(SharedMemory));
    }

    #[test]
    fn the_option_wins_over_the_variable_and_the_variable_over_auto() {
        assert_eq!(choose(Auto, Some("tcp"), &["a", "a"]), Ok(Tcp));
        assert_eq!(choose(SharedMemory, Some("tcp"), &["a", "a"]), Ok(SharedMemory));
    }

    #[test]
    fn a_wrong_choice_says_what_is_right() {
        let error = choose(Auto, Some("rdma"), &["a"]).unwrap_err();
        assert!(
            error.contains("\"rdma\": expected auto, shared-memory or tcp"),
            "{error}"
        );
        let error = choose(SharedMemory, None, &["a", "a", "b"]).unwrap_err();
        assert!(error.contains("they are on a and b"), "{error}");
    }
}
