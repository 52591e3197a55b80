//! [`EngineChoice`]: which engine moves the bytes of a group's host memory.
//!
//! [`connect`] chooses one and makes it; `process_group` calls it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::engine::Engine;
use super::error::CollectiveError;
use super::external::ConnectEngine;
use super::health::GroupHealth;
use super::host::nodes::nodes_of;
use super::host::{hierarchical, shared_memory, tcp};
use super::rendezvous::Rendezvous;
use crate::launch::World;

/// The environment variable that chooses the engine where the configuration leaves it open.
const ENGINE_VARIABLE: &str = "BURN_MEGATRON_ENGINE";

/// Why a group does not get the engine over MPI.
pub(in crate::collectives) const MPI_NOT_OFFERED: &str = concat!(
    "the engine over MPI is not in this program, or not among this group's options: build it with --features mpi, ",
    "and connect with burn-megatron's GroupConfig or burn-megatron-mpi's WithMpi"
);

/// Which engine moves the bytes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum EngineChoice {
    /// What `BURN_MEGATRON_ENGINE` says (`auto`, `shared-memory`, `tcp`, `hierarchical`, `mpi`); without it
    /// shared memory when all ranks are on one host, hierarchical when they are on several, next to
    /// each other on each and at least two on one, otherwise TCP.
    #[default]
    Auto,
    /// Shared memory; an error when the ranks are on several hosts.
    SharedMemory,
    /// TCP, also between ranks of one host.
    Tcp,
    /// Shared memory inside a host and TCP between hosts, where a byte crosses once for all ranks
    /// of a host; shared memory when all ranks are on one host; an error when the ranks of a host
    /// are not next to each other in the group.
    Hierarchical,
    /// MPI, in processes that `mpirun` has started; needs [`GroupOptions`](super::GroupOptions) that offer the engine,
    /// as burn-megatron's do with its feature `mpi`.
    Mpi,
}

/// Returns the engine of a group of two or more ranks, connected; `mpi` connects the one over MPI, if the program has
/// it. Collective over the ranks.
///
/// # Errors
/// When the ranks choose differently or cannot be connected.
pub(crate) fn connect(
    world: &World,
    health: &Arc<GroupHealth>,
    asked: EngineChoice,
    mpi: Option<ConnectEngine>,
) -> Result<Arc<dyn Engine>, CollectiveError> {
    let label = &health.label;
    let hosts: Vec<&str> = label.ranks.iter().map(|&rank| world.host_of(rank)).collect();
    let variable = std::env::var(ENGINE_VARIABLE).ok();
    let rendezvous = Rendezvous::new(world, health)?;
    // A rank that cannot choose says so to the others, rather than not to come.
    let choice = choose(asked, variable.as_deref(), &hosts).and_then(|choice| check_offered(choice, mpi));
    let statement = choice.as_ref().map_or_else(Clone::clone, EngineChoice::to_string);
    let agreement = rendezvous.agree("engine", &statement)?;
    let no_agreement = |what| label.no_agreement(what);
    let choice = choice.map_err(no_agreement)?;
    agreement.map_err(no_agreement)?;
    let shared: Result<Arc<dyn Engine>, CollectiveError> = match choice {
        EngineChoice::SharedMemory => {
            shared_memory::connect(world, health, &rendezvous).map(|engine| Arc::new(engine) as _)
        }
        EngineChoice::Hierarchical => {
            hierarchical::connect(world, health, &rendezvous, &hosts).map(|engine| Arc::new(engine) as _)
        }
        EngineChoice::Mpi => {
            let connect = mpi.expect("a choice that is not offered has been refused");
            return connect(world, health, &rendezvous);
        }
        _ => return Ok(Arc::new(tcp::connect(world, health, &rendezvous)?)),
    };
    match shared {
        // One host by its name, but two containers, say. All ranks have come to the same verdict.
        Err(CollectiveError::NoAgreement { what, .. }) => {
            let is_open = is_auto(asked, variable.as_deref());
            fall_back(&rendezvous, is_open, &what)?.map_err(no_agreement)?;
            tracing::warn!("group {label} goes over TCP: {what}");
            Ok(Arc::new(tcp::connect(world, health, &rendezvous)?))
        }
        shared => shared,
    }
}

/// Returns whether all ranks go over TCP, since none of them was asked for the engine that cannot be had, for the
/// reason `what`; or why not. Collective: a rank that fell back by itself would wait for one that was asked.
fn fall_back(rendezvous: &Rendezvous, is_open: bool, what: &str) -> Result<Result<(), String>, CollectiveError> {
    let statement = if is_open {
        "tcp instead"
    } else {
        "no other engine than the one that it was asked for"
    };
    let agreement = rendezvous.agree("fallback", statement)?;
    Ok(match (is_open, agreement) {
        (true, Ok(())) => Ok(()),
        (false, Ok(())) => Err(what.to_owned()),
        (_, Err(difference)) => Err(format!("{what}; {difference}")),
    })
}

/// Returns whether neither the option nor the variable names an engine.
fn is_auto(option: EngineChoice, variable: Option<&str>) -> bool {
    option == EngineChoice::Auto && variable.is_none_or(|text| text == "auto")
}

/// Returns anything but `Auto`, from the option, the environment variable and the hosts of the ranks;
/// or the rule that was broken.
fn choose(option: EngineChoice, variable: Option<&str>, hosts: &[&str]) -> Result<EngineChoice, String> {
    let wanted = match (option, variable) {
        (EngineChoice::Auto, Some(text)) => text.parse().map_err(|_| {
            format!("{ENGINE_VARIABLE} is {text:?}: expected auto, shared-memory, tcp, hierarchical or mpi")
        })?,
        (option, _) => option,
    };
    let other_host = hosts.iter().find(|host| **host != hosts[0]);
    match (wanted, other_host) {
        (EngineChoice::Auto | EngineChoice::Hierarchical, None) => Ok(EngineChoice::SharedMemory),
        (EngineChoice::Auto, Some(_)) => Ok(match nodes_of(hosts) {
            Ok(nodes) if nodes.len() < hosts.len() => EngineChoice::Hierarchical,
            _ => EngineChoice::Tcp,
        }),
        (EngineChoice::Hierarchical, Some(_)) => nodes_of(hosts).map(|_| wanted),
        (EngineChoice::SharedMemory, Some(other)) => Err(format!(
            "shared memory needs all ranks on one host, but they are on {} and {other}; use tcp \
             or auto",
            hosts[0]
        )),
        (wanted, _) => Ok(wanted),
    }
}

/// Returns the choice, unless it is an engine that the group was not offered.
fn check_offered(choice: EngineChoice, mpi: Option<ConnectEngine>) -> Result<EngineChoice, String> {
    if choice == EngineChoice::Mpi && mpi.is_none() {
        return Err(MPI_NOT_OFFERED.to_owned());
    }
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::tests::{TIMEOUT, group_parts, run_ranks};
    use EngineChoice::{Auto, Hierarchical, Mpi, SharedMemory, Tcp};

    #[test]
    fn auto_takes_shared_memory_on_one_host_and_tcp_between_hosts() {
        assert_eq!(choose(Auto, None, &["a", "a"]), Ok(SharedMemory));
        assert_eq!(choose(Auto, None, &["a", "b"]), Ok(Tcp));
        assert_eq!(choose(Auto, Some("auto"), &["a", "a"]), Ok(SharedMemory));
    }

    #[test]
    fn auto_is_hierarchical_where_hosts_have_several_ranks_next_to_each_other() {
        assert_eq!(choose(Auto, None, &["a", "a", "b"]), Ok(Hierarchical));
        assert_eq!(choose(Auto, None, &["a", "b", "b", "c"]), Ok(Hierarchical));
        assert_eq!(choose(Auto, None, &["a", "b", "c"]), Ok(Tcp));
        assert_eq!(choose(Auto, None, &["a", "b", "a"]), Ok(Tcp));
    }

    #[test]
    fn hierarchical_is_shared_memory_on_one_host_and_refuses_a_host_that_comes_back() {
        assert_eq!(choose(Auto, Some("hierarchical"), &["a", "a"]), Ok(SharedMemory));
        assert_eq!(choose(Auto, Some("hierarchical"), &["a", "b"]), Ok(Hierarchical));
        let error = choose(Hierarchical, None, &["a", "b", "a"]).unwrap_err();
        assert!(error.contains("next to each other, but between those on a"), "{error}");
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
            error.contains("\"rdma\": expected auto, shared-memory, tcp, hierarchical or mpi"),
            "{error}"
        );
        let error = choose(SharedMemory, None, &["a", "a", "b"]).unwrap_err();
        assert!(error.contains("they are on a and b"), "{error}");
    }

    /// What each of two ranks says when shared memory cannot be had.
    fn fallbacks(are_open: [bool; 2]) -> Vec<Result<(), String>> {
        run_ranks(2, TIMEOUT, |world| {
            let (_, rendezvous) = group_parts(&world, "fallback");
            fall_back(&rendezvous, are_open[world.rank()], "no shared memory: planted").unwrap()
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

    #[test]
    fn mpi_is_chosen_by_its_name_and_refused_where_it_is_not_offered() {
        assert_eq!(choose(Auto, Some("mpi"), &["a", "b"]), Ok(Mpi));
        assert_eq!(choose(Mpi, Some("tcp"), &["a", "a"]), Ok(Mpi));
        assert_eq!(check_offered(Tcp, None), Ok(Tcp));
        assert_eq!(
            check_offered(Mpi, Some(|_, _, _| unreachable!("nothing is connected"))),
            Ok(Mpi)
        );
        let error = check_offered(Mpi, None).unwrap_err();
        assert!(error.contains("build it with --features mpi"), "{error}");
    }
}
