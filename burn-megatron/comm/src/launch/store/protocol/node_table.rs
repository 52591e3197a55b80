//! [`NodeTable`]: which ranks share a node.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::encoding;

/// The node of each rank. Nodes are numbered in the order of their first ranks; names are the store's to tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeTable {
    /// In rank order.
    #[serde(deserialize_with = "encoding::list")]
    runs: Vec<NodeRun>,
}

/// Adjacent ranks of one node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct NodeRun {
    node: u32,
    /// The rank after the last.
    end: u32,
}

impl NodeTable {
    /// Returns the table of ranks on `hosts`.
    pub(in crate::launch) fn of_hosts<'a>(hosts: impl IntoIterator<Item = &'a str>) -> NodeTable {
        let mut runs: Vec<NodeRun> = vec![];
        let mut known = HashMap::new();
        for (rank, host) in hosts.into_iter().enumerate() {
            let next = known.len() as u32;
            let node = *known.entry(host).or_insert(next);
            let end = rank as u32 + 1;
            match runs.last_mut() {
                Some(last) if last.node == node => last.end = end,
                _ => runs.push(NodeRun { node, end }),
            }
        }
        NodeTable { runs }
    }

    /// Returns the table of `world_size` ranks on one node.
    pub(in crate::launch) fn of_one_node(world_size: usize) -> NodeTable {
        let end = world_size as u32;
        NodeTable {
            runs: vec![NodeRun { node: 0, end }],
        }
    }

    /// Returns whether it has the node of each of `world_size` ranks: a message may say anything.
    pub(in crate::launch) fn is_of(&self, world_size: usize) -> bool {
        self.world_size() == world_size && self.runs.is_sorted_by(|run, next| run.end < next.end)
    }

    /// Returns the number of ranks.
    pub(crate) fn world_size(&self) -> usize {
        self.runs.last().map_or(0, |run| run.end as usize)
    }

    /// Returns whether all ranks are on one node.
    pub(crate) fn is_one_node(&self) -> bool {
        self.runs.len() <= 1
    }

    /// Returns the node of a rank; `None` if there is no such rank.
    pub(crate) fn node_of(&self, rank: usize) -> Option<usize> {
        let place = self.runs.partition_point(|run| run.end as usize <= rank);
        Some(self.runs.get(place)?.node as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_share_a_node_exactly_if_they_share_a_host(hosts in prop::collection::vec("[a-d]", 1..20)) {
            let table = NodeTable::of_hosts(hosts.iter().map(String::as_str));
            prop_assert!(table.is_of(hosts.len()));
            prop_assert!(!table.is_of(hosts.len() + 1));
            prop_assert_eq!(table.node_of(hosts.len()), None);
            let node_of = |rank| table.node_of(rank).unwrap();
            prop_assert_eq!(node_of(0), 0);
            for (rank, host) in hosts.iter().enumerate() {
                for (other, other_host) in hosts.iter().enumerate() {
                    prop_assert_eq!(node_of(rank) == node_of(other), host == other_host);
                }
            }
            prop_assert_eq!(table.is_one_node(), hosts.iter().all(|host| *host == hosts[0]));
        }
    }

    #[test]
    fn runs_that_overlap_are_refused() {
        let run = |node, end| NodeRun { node, end };
        for runs in [vec![run(0, 2), run(1, 2)], vec![run(0, 3), run(1, 2)]] {
            assert!(!NodeTable { runs }.is_of(2));
        }
        assert!(NodeTable::of_one_node(2).is_of(2));
    }
}
