//! The natural loops of a kernel's control flow.

use std::collections::{BTreeMap, BTreeSet};

use super::Graph;

/// A loop: the blocks from which its head is reached again without leaving it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The block that every iteration begins with.
    pub head: usize,
    /// All of its blocks, the head among them.
    pub blocks: BTreeSet<usize>,
}

/// Returns the loops of a graph, by their heads.
///
/// A loop that has several entries, which compilers do not make of structured sources, is not found.
pub fn loops(graph: &Graph) -> Vec<Loop> {
    let dominators = dominators(graph);
    let previous = graph.previous();
    let mut found = BTreeMap::<usize, BTreeSet<usize>>::new();
    for (tail, block) in graph.blocks.iter().enumerate() {
        for &head in &block.next {
            if dominators[tail].contains(&head) {
                let blocks = found.entry(head).or_insert_with(|| BTreeSet::from([head]));
                collect(blocks, tail, &previous);
            }
        }
    }
    found.into_iter().map(|(head, blocks)| Loop { head, blocks }).collect()
}

/// Adds the blocks from which `tail` is reached, up to those already there.
fn collect(blocks: &mut BTreeSet<usize>, tail: usize, previous: &[Vec<usize>]) {
    let mut pending = vec![tail];
    while let Some(block) = pending.pop() {
        if blocks.insert(block) {
            pending.extend(&previous[block]);
        }
    }
}

/// Returns for each block those that every way to it passes, itself among them; nothing for blocks that are not
/// reached.
fn dominators(graph: &Graph) -> Vec<BTreeSet<usize>> {
    let order = reverse_postorder(graph);
    let previous = graph.previous();
    let mut dominators: Vec<Option<BTreeSet<usize>>> = vec![None; graph.blocks.len()];
    let mut is_changing = true;
    while is_changing {
        is_changing = false;
        for &block in &order {
            let mut ways = previous[block]
                .iter()
                .filter_map(|previous| dominators[*previous].as_ref());
            let mut common = if block == 0 {
                BTreeSet::new()
            } else {
                ways.next().cloned().unwrap_or_default()
            };
            if block != 0 {
                for way in ways {
                    common.retain(|dominator| way.contains(dominator));
                }
            }
            common.insert(block);
            if dominators[block].as_ref() != Some(&common) {
                dominators[block] = Some(common);
                is_changing = true;
            }
        }
    }
    dominators.into_iter().map(Option::unwrap_or_default).collect()
}

/// Returns the blocks that are reached, each before those that follow it, save around loops.
pub(super) fn reverse_postorder(graph: &Graph) -> Vec<usize> {
    reverse_postorder_from(graph, 0, |_| true)
}

/// The same from another block, within those that `is_inside` names.
pub(super) fn reverse_postorder_from(graph: &Graph, start: usize, is_inside: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut is_seen = vec![false; graph.blocks.len()];
    let mut order = Vec::new();
    // Blocks with how many of their successors have been visited.
    let mut stack = vec![(start, 0)];
    is_seen[start] = true;
    while let Some((block, visited)) = stack.last_mut() {
        if let Some(&next) = graph.blocks[*block].next.get(*visited) {
            *visited += 1;
            if is_inside(next) && !std::mem::replace(&mut is_seen[next], true) {
                stack.push((next, 0));
            }
        } else {
            order.push(*block);
            stack.pop();
        }
    }
    order.reverse();
    order
}
