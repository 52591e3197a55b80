//! [`Shape`]: which ranks of a group a rank talks to in the tree.
//!
//! A rank stands for a range of ranks, the first of which it is. Its children stand for the rest, each for a part of
//! it: first the other ranks of its node, then the other nodes, so that the ranks of a node talk to one rank of another
//! at most. Knows nothing of sockets.

use std::ops::Range;

/// The most parts that the ranks of a node, or the nodes, are divided into.
pub(in super::super) const ARITY: usize = 8;

/// A rank's place in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Shape {
    /// The ranks that this rank stands for, itself first.
    pub own: Range<usize>,
    /// The rank that stands for this one; none for the root, which is the first rank.
    pub parent: Option<usize>,
    /// What each child stands for, in rank order; the child is the first rank of it.
    pub children: Vec<Range<usize>>,
}

impl Shape {
    /// Returns the place of `rank`; `nodes` are the ranks of each node, in rank order. The nodes are divided into
    /// `arity` parts at most, and the other ranks of a node into `node_arity`.
    pub fn new(nodes: &[Range<usize>], arity: usize, node_arity: usize, rank: usize) -> Self {
        let mut nodes = nodes.to_vec();
        let mut parent = None;
        loop {
            let (first, others) = nodes.split_first().expect("a group has a node");
            let leader = first.start;
            let in_node = divide(leader + 1..first.end, node_arity).map(|ranks| vec![ranks]);
            let between_nodes = divide(0..others.len(), arity).map(|part| others[part].to_vec());
            let parts: Vec<Vec<Range<usize>>> = in_node.chain(between_nodes).collect();
            if rank == leader {
                return Self {
                    own: whole(&nodes),
                    parent,
                    children: parts.iter().map(|nodes| whole(nodes)).collect(),
                };
            }
            let with_rank = parts.into_iter().find(|nodes| whole(nodes).contains(&rank));
            nodes = with_rank.expect("every rank of a group has a node");
            parent = Some(leader);
        }
    }
}

fn whole(nodes: &[Range<usize>]) -> Range<usize> {
    nodes[0].start..nodes[nodes.len() - 1].end
}

/// Divides a range into at most `parts` parts, none of them empty, whose lengths differ by one at most.
fn divide(range: Range<usize>, parts: usize) -> impl Iterator<Item = Range<usize>> {
    let length = range.len();
    let parts = parts.min(length);
    (0..parts).map(move |part| range.start + length * part / parts..range.start + length * (part + 1) / parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_rank_has_the_parent_that_has_it_as_a_child(
            sizes in proptest::collection::vec(1..20_usize, 1..60), arity in 1..10_usize, node_arity in 1..20_usize,
        ) {
            let mut start = 0;
            let nodes: Vec<_> = sizes.iter().map(|size| { start += size; start - size..start }).collect();
            let size = start;
            let shapes: Vec<_> = (0..size).map(|rank| Shape::new(&nodes, arity, node_arity, rank)).collect();
            prop_assert_eq!(&shapes[0].own, &(0..size));
            prop_assert_eq!(shapes[0].parent, None);
            let mut children = 0;
            for (rank, shape) in shapes.iter().enumerate() {
                prop_assert_eq!(shape.own.start, rank);
                prop_assert!(shape.children.len() <= arity + node_arity);
                let mut next = rank + 1;
                for child in &shape.children {
                    prop_assert_eq!(child.start, next);
                    prop_assert_eq!(&shapes[child.start].own, child);
                    prop_assert_eq!(shapes[child.start].parent, Some(rank));
                    next = child.end;
                }
                prop_assert_eq!(next, shape.own.end);
                children += shape.children.len();
            }
            prop_assert_eq!(children, size - 1);
        }
    }

    #[test]
    fn four_thousand_ranks_are_four_steps_from_the_root() {
        let nodes: Vec<_> = (0..512).map(|node| 8 * node..8 * node + 8).collect();
        let depth = |mut rank: usize| {
            let mut depth = 0;
            while let Some(parent) = Shape::new(&nodes, ARITY, ARITY, rank).parent {
                (rank, depth) = (parent, depth + 1);
            }
            depth
        };
        let deepest = (0..4096).map(depth).max();
        assert_eq!(deepest, Some(4));
        // Only the leader of a node has a link to another node.
        for rank in (0..4096).filter(|rank| rank % 8 != 0) {
            let shape = Shape::new(&nodes, ARITY, ARITY, rank);
            assert_eq!((shape.parent, shape.children), (Some(rank - rank % 8), Vec::new()));
        }
    }
}
