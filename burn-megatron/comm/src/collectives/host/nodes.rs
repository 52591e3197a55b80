//! [`Placement`]: which ranks of a group are on the same node.

use crate::launch::World;
use std::collections::HashMap;
use std::ops::Range;

/// The nodes of a group's ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::collectives) struct Placement {
    /// Neighbours on one node, by group index, in rank order.
    runs: Vec<Range<usize>>,
    /// The first ranks of two runs on one node, and the rank before the second, if there are such: global ranks.
    split: Option<[usize; 3]>,
    /// The first ranks of two nodes, if there are two: global ranks.
    apart: Option<[usize; 2]>,
}

impl Placement {
    /// Returns the placement of the ranks `ranks`.
    pub fn of(world: &World, ranks: &[usize]) -> Self {
        Self::new(ranks, |rank| world.node_of(rank))
    }

    pub fn new(ranks: &[usize], node_of: impl Fn(usize) -> usize) -> Self {
        let mut runs: Vec<Range<usize>> = Vec::new();
        let mut split = None;
        let mut known = HashMap::new();
        let mut last_node = None;
        for (index, &rank) in ranks.iter().enumerate() {
            let node = node_of(rank);
            match runs.last_mut() {
                Some(last) if last_node == Some(node) => last.end = index + 1,
                _ => {
                    let first = *known.entry(node).or_insert(rank);
                    if first != rank {
                        split.get_or_insert([first, ranks[index - 1], rank]);
                    }
                    runs.push(index..index + 1);
                }
            }
            last_node = Some(node);
        }
        Self {
            apart: runs.get(1).map(|second| [ranks[0], ranks[second.start]]),
            runs,
            split,
        }
    }

    /// Returns two ranks on different nodes, if there are such: global ranks.
    pub fn apart(&self) -> Option<[usize; 2]> {
        self.apart
    }

    /// Returns the ranks of each node, by group index, in rank order.
    ///
    /// # Errors
    /// When the ranks of a node are not next to each other: a sum in rank order would then go back and forth.
    pub fn nodes(&self) -> Result<&[Range<usize>], String> {
        match self.split {
            None => Ok(&self.runs),
            Some([first, between, second]) => Err(format!(
                "hierarchical needs the ranks of each node next to each other, but between ranks {first} and {second}, \
                 which share one, there is rank {between} of another; use tcp or auto"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_on_a_node_are_a_run() {
        let placement = Placement::new(&[0, 1, 2, 4, 5, 6], |rank| [0, 0, 1, 1, 2, 2, 2][rank]);
        assert_eq!(placement.nodes().unwrap(), [0..2, 2..3, 3..6]);
        assert_eq!(placement.apart(), Some([0, 2]));
        assert_eq!(Placement::new(&[3, 5], |_| 7).apart(), None);
    }

    #[test]
    fn a_node_that_comes_back_is_refused() {
        let placement = Placement::new(&[1, 2, 3], |rank| rank % 2);
        let error = placement.nodes().unwrap_err();
        assert!(
            error.contains("between ranks 1 and 3, which share one, there is rank 2 of another"),
            "{error}"
        );
        assert_eq!(placement.apart(), Some([1, 2]));
    }
}
