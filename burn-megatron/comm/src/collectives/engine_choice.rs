//! [`EngineChoice`]: which engine moves the bytes of a group's host memory.
//!
//! `connecting` asks each group's ranks to agree on it, and connects it.

use serde::{Deserialize, Serialize};

use super::host::nodes::Placement;

/// The environment variable that chooses the engine where the configuration leaves it open.
pub(super) const ENGINE_VARIABLE: &str = "BURN_MEGATRON_ENGINE";

/// Which engine moves the bytes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum EngineChoice {
    /// What `BURN_MEGATRON_ENGINE` says (`auto`, `shared-memory`, `tcp`, `hierarchical`); without it
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
}

/// Returns whether neither the option nor the variable names an engine.
pub(super) fn is_auto(option: EngineChoice, variable: Option<&str>) -> bool {
    option == EngineChoice::Auto && variable.is_none_or(|text| text == "auto")
}

/// Returns anything but `Auto`, from the option, the environment variable and the placement of the ranks; or the rule
/// that was broken.
pub(super) fn choose(
    option: EngineChoice,
    variable: Option<&str>,
    placement: &Placement,
) -> Result<EngineChoice, String> {
    let wanted = match (option, variable) {
        (EngineChoice::Auto, Some(text)) => text
            .parse()
            .map_err(|_| format!("{ENGINE_VARIABLE} is {text:?}: expected auto, shared-memory, tcp or hierarchical"))?,
        (option, _) => option,
    };
    match (wanted, placement.apart()) {
        (EngineChoice::Auto | EngineChoice::Hierarchical, None) => Ok(EngineChoice::SharedMemory),
        (EngineChoice::Auto, Some(_)) => Ok(match placement.nodes() {
            Ok(nodes) if nodes.iter().any(|node| node.len() > 1) => EngineChoice::Hierarchical,
            _ => EngineChoice::Tcp,
        }),
        (EngineChoice::Hierarchical, Some(_)) => placement.nodes().map(|_| wanted),
        (EngineChoice::SharedMemory, Some([first, second])) => Err(format!(
            "shared memory needs all ranks on one node, but ranks {first} and {second} are on different ones; use tcp \
             or auto"
        )),
        (wanted, _) => Ok(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EngineChoice::{Auto, Hierarchical, SharedMemory, Tcp};

    /// What is chosen where the ranks are on these hosts.
    fn choose(option: EngineChoice, variable: Option<&str>, hosts: &[&str]) -> Result<EngineChoice, String> {
        let ranks: Vec<usize> = (0..hosts.len()).collect();
        let node_of = |rank: usize| hosts.iter().position(|host| *host == hosts[rank]).unwrap();
        super::choose(option, variable, &Placement::new(&ranks, node_of))
    }

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
        assert!(
            error.contains("next to each other, but between ranks 0 and 2"),
            "{error}"
        );
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
            error.contains("\"rdma\": expected auto, shared-memory, tcp or hierarchical"),
            "{error}"
        );
        let error = choose(SharedMemory, None, &["a", "a", "b"]).unwrap_err();
        assert!(error.contains("ranks 0 and 2 are on different ones"), "{error}");
    }
}
