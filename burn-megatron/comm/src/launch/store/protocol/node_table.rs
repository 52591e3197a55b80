//! [`NodeTable`]: which ranks share a node.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::encoding;

/// The node of each rank. Nodes are numbered in the order of their first ranks; names are the store's to tell.
///
/// A job has the same number of ranks on each node, next to each other or round the nodes: its table has a few entries,
/// however many nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeTable {
    /// In rank order.
    #[serde(deserialize_with = "encoding::list")]
    blocks: Vec<NodeBlock>,
}

/// Adjacent ranks of adjacent nodes, the same number of each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct NodeBlock {
    /// The first of the nodes.
    node: u32,
    /// Of each node.
    ranks: u32,
    /// The rank after the last.
    end: u32,
}

impl NodeTable {
    /// Returns the table of ranks on `hosts`.
    pub(in crate::launch) fn of_hosts<'a>(hosts: impl IntoIterator<Item = &'a str>) -> NodeTable {
        let mut known = HashMap::new();
        let mut runs: Vec<(u32, u32)> = vec![];
        for host in hosts {
            let next = known.len() as u32;
            let node = *known.entry(host).or_insert(next);
            match runs.last_mut() {
                Some((last, ranks)) if *last == node => *ranks += 1,
                _ => runs.push((node, 1)),
            }
        }
        let mut blocks: Vec<NodeBlock> = vec![];
        let (mut nodes, mut end) = (0, 0);
        for (node, ranks) in runs {
            end += ranks;
            match blocks.last_mut() {
                Some(last) if (last.node + nodes, last.ranks) == (node, ranks) => last.end = end,
                _ => {
                    nodes = 0;
                    blocks.push(NodeBlock { node, ranks, end });
                }
            }
            nodes += 1;
        }
        NodeTable { blocks }
    }

    /// Returns the table of `world_size` ranks on one node.
    pub(in crate::launch) fn of_one_node(world_size: usize) -> NodeTable {
        let ranks = world_size as u32;
        NodeTable {
            blocks: vec![NodeBlock {
                node: 0,
                ranks,
                end: ranks,
            }],
        }
    }

    /// Returns whether it has the node of each of `world_size` ranks: a message may say anything.
    pub(in crate::launch) fn is_of(&self, world_size: usize) -> bool {
        let mut start = 0;
        let mut are_whole = true;
        for block in &self.blocks {
            let is_whole = block.end > start && block.ranks > 0 && (block.end - start).is_multiple_of(block.ranks);
            are_whole &= is_whole && block.node.checked_add(block.end).is_some();
            start = block.end.max(start);
        }
        are_whole && self.world_size() == world_size
    }

    /// Returns the number of ranks.
    pub(crate) fn world_size(&self) -> usize {
        self.blocks.last().map_or(0, |block| block.end as usize)
    }

    /// Returns whether all ranks are on one node.
    pub(crate) fn is_one_node(&self) -> bool {
        match &self.blocks[..] {
            [] => true,
            [block] => block.ranks == block.end,
            _ => false,
        }
    }

    /// Returns the node of a rank; `None` if there is no such rank.
    pub(crate) fn node_of(&self, rank: usize) -> Option<usize> {
        let place = self.blocks.partition_point(|block| block.end as usize <= rank);
        let block = self.blocks.get(place)?;
        let start = place
            .checked_sub(1)
            .map_or(0, |before| self.blocks[before].end as usize);
        Some(block.node as usize + (rank - start) / block.ranks as usize)
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
    fn usual_jobs_have_few_entries() {
        let host = |node: usize| format!("node{node}/boot");
        let blocks = |node_of: fn(usize) -> usize, ranks: usize| {
            let hosts: Vec<String> = (0..ranks).map(|rank| host(node_of(rank))).collect();
            NodeTable::of_hosts(hosts.iter().map(String::as_str)).blocks.len()
        };
        assert_eq!(blocks(|rank| rank / 8, 4096), 1);
        assert_eq!(blocks(|rank| rank % 512, 4096), 8);
        // The last node has fewer.
        assert_eq!(blocks(|rank| rank / 8, 4090), 2);
    }

    #[test]
    fn blocks_that_make_no_sense_are_refused() {
        let block = |node, ranks, end| NodeBlock { node, ranks, end };
        let table = |blocks: &[NodeBlock]| NodeTable {
            blocks: blocks.to_vec(),
        };
        assert!(table(&[block(0, 2, 4), block(0, 1, 5)]).is_of(5));
        for blocks in [
            [block(0, 2, 2), block(1, 1, 2)],
            [block(0, 1, 3), block(1, 1, 2)],
            [block(0, 0, 1), block(1, 1, 2)],
            [block(0, 1, 0), block(1, 1, 2)],
            [block(0, 1, 1), block(1, 2, 2)],
            [block(0, 1, 1), block(u32::MAX, 1, 2)],
        ] {
            assert!(!table(&blocks).is_of(2), "{blocks:?}");
        }
        assert!(NodeTable::of_one_node(2).is_of(2));
    }
}
