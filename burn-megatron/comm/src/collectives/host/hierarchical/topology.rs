//! Which ranks of a group share a node, and which of them stand for it.

use std::ops::Range;

/// The nodes of a group, by group indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Topology {
    /// The ranks of each node, in rank order.
    nodes: Vec<Range<usize>>,
    /// This rank's node.
    pub node: usize,
    /// This rank among the ranks of its node.
    pub local_rank: usize,
}

impl Topology {
    /// Returns the topology as the rank with group index `rank` sees it.
    pub fn new(nodes: Vec<Range<usize>>, rank: usize) -> Self {
        let node = nodes.iter().position(|node| node.contains(&rank));
        let node = node.expect("every rank of a group has a host");
        Self {
            local_rank: rank - nodes[node].start,
            node,
            nodes,
        }
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.nodes.last().map_or(0, |node| node.end)
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the ranks of a node.
    pub fn members(&self, node: usize) -> Range<usize> {
        self.nodes[node].clone()
    }

    /// Returns the ranks of this rank's node.
    pub fn own_members(&self) -> Range<usize> {
        self.members(self.node)
    }

    /// Returns the node of a rank.
    pub fn node_of(&self, rank: usize) -> usize {
        self.nodes.partition_point(|node| node.end <= rank)
    }

    /// Returns how many ranks of every node own a slice of each chunk and carry it between the nodes: the number of
    /// ranks of the smallest node, so that each owner has one partner in every node.
    pub fn owners(&self) -> usize {
        self.nodes.iter().map(Range::len).min().unwrap_or(0)
    }

    /// Returns the partner of this rank in another node: who owns the same slice there.
    pub fn partner(&self, node: usize) -> usize {
        debug_assert!(
            self.is_owner(),
            "rank {} of a node with {} owners",
            self.local_rank,
            self.owners()
        );
        self.nodes[node].start + self.local_rank
    }

    /// Returns whether this rank owns a slice.
    pub fn is_owner(&self) -> bool {
        self.local_rank < self.owners()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_knows_its_node_and_its_partners() {
        let topology = Topology::new(vec![0..2, 2..3, 3..6], 4);
        assert_eq!((topology.node, topology.local_rank), (2, 1));
        assert_eq!((topology.ranks(), topology.node_count(), topology.owners()), (6, 3, 1));
        assert!(!topology.is_owner());
        assert_eq!(
            (0..6).map(|rank| topology.node_of(rank)).collect::<Vec<_>>(),
            [0, 0, 1, 2, 2, 2]
        );
        let first = Topology::new(topology.nodes, 0);
        assert_eq!((first.partner(1), first.partner(2)), (2, 3));
    }
}
