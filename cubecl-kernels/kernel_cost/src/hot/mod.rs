//! The hot path of a kernel: what a warp issues in an iteration of its main loop, found from the control flow alone.
//!
//! Of the ways through the loop it is the one of a full block in the middle of the work: all products, all copies of
//! the next block, no edge. An edge is recognised by what it costs: of ways that do the same work, the shortest is
//! taken, and checks, masks and exceptional cases are never shorter.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Add;

use crate::flow::{Graph, Loop, Route, best_path, loops};
use crate::instruction::Instruction;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPath {
    /// Its instructions in the order of execution.
    pub instructions: Vec<Instruction>,
    /// Whether the last is followed by the first; otherwise it is a kernel's whole way from its entry to its end.
    pub is_loop: bool,
    /// Loops within it that do work of the kind that counts, and that are passed once here.
    pub inner_loops: usize,
}

/// What a way does, the most important first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Work([i64; 6]);

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index] + other.0[index]))
    }
}

/// How the work of a block is measured.
type Measure<'a> = &'a dyn Fn(&[Instruction]) -> Work;

/// Rounds of a loop of shuffles: each halves the 32 threads that still differ.
const SHUFFLES: usize = 5;
/// Exponentials that a block has at least if they are of the scores, and not of a row's changed maximum.
const MANY_EXPONENTIALS: usize = 8;

/// Returns the hot path of a kernel for the matrix units, if it has a loop with their instructions.
///
/// It is the path of most matrix instructions, copies and exponentials, and of these the shortest, in the innermost
/// loop in which the block's warps wait for one another or for copies. Without such a loop any that has matrix
/// instructions counts.
pub fn matrix_loop(instructions: &[Instruction]) -> Option<HotPath> {
    let graph = Graph::of(instructions);
    let with_matrix = having(&graph, instructions, loops(&graph), |instruction| {
        instruction.is_matrix()
    });
    let waiting = having(&graph, instructions, with_matrix.clone(), is_wait);
    let candidates = innermost(if waiting.is_empty() { &with_matrix } else { &waiting });
    let paths = candidates.into_iter().filter_map(|candidate| {
        let instructions = around(&graph, instructions, candidate, &matrix_work)?;
        let inside = |inner: &&Loop| inner.head != candidate.head && candidate.blocks.contains(&inner.head);
        Some(HotPath {
            instructions,
            is_loop: true,
            inner_loops: with_matrix.iter().filter(inside).count(),
        })
    });
    paths.max_by_key(|path| {
        (
            count(&path.instructions, Instruction::is_matrix),
            Reverse(path.instructions.len()),
        )
    })
}

/// Returns the hot path of a kernel that memory bounds: of the loop that moves most bytes per iteration, the outermost
/// of such, or of the whole kernel where no loop moves any.
///
/// It is the path of most bytes in the widest accesses that there are; of these the one of fewest narrow accesses, of
/// fewest calls, of most exponentials and reciprocals, of most shuffles, and the shortest. Loops within are passed
/// once, which overstates what surrounds them; those of shuffles five times.
pub fn memory_loop(instructions: &[Instruction]) -> Option<HotPath> {
    let graph = Graph::of(instructions);
    let widest = instructions
        .iter()
        .filter(|i| is_global(i))
        .map(Instruction::bytes)
        .max()?;
    let measure = |block: &[Instruction]| memory_work(block, widest);
    let is_wide = |instruction: &Instruction| is_global(instruction) && instruction.bytes() == widest;
    let moving = having(&graph, instructions, loops(&graph), is_wide);
    let paths = moving.iter().filter_map(|candidate| {
        let inside = |inner: &&Loop| inner.head != candidate.head && candidate.blocks.contains(&inner.head);
        Some(HotPath {
            instructions: around(&graph, instructions, candidate, &measure)?,
            is_loop: true,
            inner_loops: moving.iter().filter(inside).count(),
        })
    });
    let of_loop = paths.max_by_key(|path| (bytes(&path.instructions, is_wide), path.instructions.len()));
    of_loop.or_else(|| whole(&graph, instructions, &measure))
}

/// Returns the path around a loop.
fn around(graph: &Graph, instructions: &[Instruction], of: &Loop, measure: Measure<'_>) -> Option<Vec<Instruction>> {
    let is_tail = |block: &&usize| graph.blocks[**block].next.contains(&of.head);
    let route = Route {
        start: of.head,
        inside: of.blocks.clone(),
        ends: of.blocks.iter().filter(is_tail).copied().collect(),
    };
    along(graph, instructions, &route, measure)
}

/// Returns the path from a kernel's entry to its end.
fn whole(graph: &Graph, instructions: &[Instruction], measure: Measure<'_>) -> Option<HotPath> {
    let route = Route {
        start: 0,
        inside: (0..graph.blocks.len()).collect(),
        ends: ends(graph, instructions),
    };
    Some(HotPath {
        instructions: along(graph, instructions, &route, measure)?,
        is_loop: false,
        inner_loops: 0,
    })
}

/// Returns the blocks that end the kernel.
fn ends(graph: &Graph, instructions: &[Instruction]) -> BTreeSet<usize> {
    let is_end = |index: &usize| {
        let block = &graph.blocks[*index];
        block.next.is_empty() && instructions[block.instructions.end - 1].base() == "EXIT"
    };
    (0..graph.blocks.len()).filter(is_end).collect()
}

fn along(graph: &Graph, instructions: &[Instruction], route: &Route, measure: Measure<'_>) -> Option<Vec<Instruction>> {
    let of_block = |block: usize| &instructions[graph.blocks[block].instructions.clone()];
    let path = best_path(graph, route, |block| measure(of_block(block)))?;
    let path = repeat(path, &shuffle_loops(graph, instructions));
    Some(path.into_iter().flat_map(of_block).cloned().collect())
}

/// Returns the loops that exchange numbers within a warp and do nothing with memory.
fn shuffle_loops(graph: &Graph, instructions: &[Instruction]) -> Vec<Loop> {
    let shuffling = having(graph, instructions, loops(graph), |i| i.base() == "SHFL");
    let others = |i: &Instruction| is_global(i) || i.is_matrix() || i.base() == "BAR";
    let busy: BTreeSet<usize> = having(graph, instructions, shuffling.clone(), others)
        .iter()
        .map(|l| l.head)
        .collect();
    shuffling
        .into_iter()
        .filter(|found| !busy.contains(&found.head))
        .collect()
}

/// Returns a path that passes each of these loops as often as it shuffles.
fn repeat(path: Vec<usize>, shuffling: &[Loop]) -> Vec<usize> {
    let loop_of = |block: &usize| shuffling.iter().position(|found| found.blocks.contains(block));
    let runs = path.chunk_by(|a, b| loop_of(a) == loop_of(b));
    let repeated = runs.flat_map(|run| {
        let times = if loop_of(&run[0]).is_some() { SHUFFLES } else { 1 };
        std::iter::repeat_n(run, times).flatten()
    });
    repeated.copied().collect()
}

/// Returns the loops that have an instruction of a kind.
fn having(
    graph: &Graph,
    instructions: &[Instruction],
    loops: Vec<Loop>,
    is_of_kind: impl Fn(&Instruction) -> bool,
) -> Vec<Loop> {
    let has = |block: &usize| {
        instructions[graph.blocks[*block].instructions.clone()]
            .iter()
            .any(&is_of_kind)
    };
    loops.into_iter().filter(|found| found.blocks.iter().any(has)).collect()
}

/// Returns the loops that hold none of the others.
fn innermost(loops: &[Loop]) -> Vec<&Loop> {
    let holds_another = |outer: &Loop| {
        let is_inside = |inner: &Loop| inner.head != outer.head && outer.blocks.contains(&inner.head);
        loops.iter().any(is_inside)
    };
    loops.iter().filter(|found| !holds_another(found)).collect()
}

/// Matrix instructions, bytes moved, exponentials; then few instructions.
///
/// Narrow loads are those of a row's statistics, which a part of the warps loads.
fn matrix_work(block: &[Instruction]) -> Work {
    let is_moved = |instruction: &Instruction| {
        let is_load = instruction.is_one_of(&["LDG", "LDGSTS"]) && instruction.bytes() >= 8;
        is_load || instruction.is_one_of(&["STG", "RED", "REDG"])
    };
    let moved = bytes(block, is_moved);
    let exponentials = count(block, |instruction| instruction.opcode.starts_with("MUFU.EX2"));
    let of_scores = if exponentials >= MANY_EXPONENTIALS {
        exponentials
    } else {
        0
    };
    let matrix = count(block, Instruction::is_matrix);
    Work([
        matrix as i64,
        moved.into(),
        of_scores as i64,
        -(block.len() as i64),
        0,
        0,
    ])
}

/// Bytes in wide accesses; then few narrow ones, few calls, exponentials and reciprocals, shuffles, few instructions.
fn memory_work(block: &[Instruction], widest: u32) -> Work {
    let wide = bytes(block, |instruction| {
        is_global(instruction) && instruction.bytes() == widest
    });
    let narrow = count(block, |i| is_global(i) && i.bytes() < widest);
    let calls = count(block, |i| i.is_one_of(&["CALL", "BRX"]));
    let special = count(block, |i| i.base() == "MUFU");
    let shuffles = count(block, |i| i.base() == "SHFL");
    let few = |count: usize| -(count as i64);
    let [special, shuffles] = [special, shuffles].map(|count| count as i64);
    Work([
        wide.into(),
        few(narrow),
        few(calls),
        special,
        shuffles,
        few(block.len()),
    ])
}

/// Whether an instruction makes the warps of a block wait for one another, or for copies.
fn is_wait(instruction: &Instruction) -> bool {
    instruction.is_one_of(&["BAR", "LDGDEPBAR", "SYNCS", "ARRIVES"])
}

/// Whether an instruction reads or writes the GPU's memory.
pub(crate) fn is_global(instruction: &Instruction) -> bool {
    instruction.is_one_of(&["LDG", "STG", "RED", "REDG", "LDGSTS"])
}

/// Bytes that a thread moves by instructions of a kind.
fn bytes(block: &[Instruction], is_of_kind: impl Fn(&Instruction) -> bool) -> u32 {
    block
        .iter()
        .filter(|instruction| is_of_kind(instruction))
        .map(Instruction::bytes)
        .sum()
}

fn count(block: &[Instruction], is_of_kind: impl Fn(&Instruction) -> bool) -> usize {
    block.iter().filter(|instruction| is_of_kind(instruction)).count()
}

#[cfg(test)]
mod tests;
