//! The best path through a part of a kernel, by a measure that adds up over blocks.

use std::collections::{BTreeSet, HashMap};

use super::Graph;
use super::loops::reverse_postorder_from;

/// From where to where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub start: usize,
    /// The blocks that it may pass.
    pub inside: BTreeSet<usize>,
    /// The blocks that it may end with.
    pub ends: BTreeSet<usize>,
}

/// Returns the blocks of the path whose measures add up to the greatest, if there is a path.
///
/// Loops within are passed once.
pub fn best_path<M>(graph: &Graph, route: &Route, measure: impl Fn(usize) -> M) -> Option<Vec<usize>>
where
    M: Clone + Ord + std::ops::Add<Output = M>,
{
    let order = reverse_postorder_from(graph, route.start, |block| route.inside.contains(&block));
    let place: HashMap<usize, usize> = order.iter().enumerate().map(|(place, block)| (*block, place)).collect();
    // The best measure from the start up to and with each block, and the block before.
    let mut best: HashMap<usize, (M, Option<usize>)> = HashMap::new();
    best.insert(route.start, (measure(route.start), None));
    for &block in &order {
        let Some((so_far, _)) = best.get(&block).cloned() else {
            continue;
        };
        for next in graph.blocks[block].next.iter().copied() {
            // Backward edges close loops.
            if place.get(&next).is_none_or(|after| *after <= place[&block]) {
                continue;
            }
            let total = so_far.clone() + measure(next);
            if best.get(&next).is_none_or(|(other, _)| total > *other) {
                best.insert(next, (total, Some(block)));
            }
        }
    }
    let ends = route.ends.iter().filter(|end| best.contains_key(end));
    let mut block = *ends.max_by(|a, b| best[a].0.cmp(&best[b].0))?;
    let mut path = vec![block];
    while let Some(previous) = best[&block].1 {
        path.push(previous);
        block = previous;
    }
    path.reverse();
    Some(path)
}
