//! `Graph`: basic blocks and where each continues.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::instruction::Instruction;

/// Instructions that run one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where they are in the kernel's list.
    pub instructions: Range<usize>,
    /// The blocks that may follow.
    pub next: Vec<usize>,
}

/// A kernel's blocks, in the order of addresses; the first is the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    pub blocks: Vec<Block>,
}

/// Where an instruction continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Continuation {
    /// At the next instruction.
    falls_through: bool,
    /// At this address.
    target: Option<u64>,
}

impl Graph {
    /// Divides a kernel's instructions, of which there must be at least one.
    ///
    /// Calls continue after the call. Branches to addresses in registers end the path.
    pub fn of(instructions: &[Instruction]) -> Self {
        let joins = joins(instructions);
        let continuations: HashMap<usize, Continuation> = instructions
            .iter()
            .enumerate()
            .filter_map(|(index, instruction)| Some((index, continuation(instruction, joins.get(&index).copied())?)))
            .collect();
        let index_of: HashMap<u64, usize> = instructions
            .iter()
            .enumerate()
            .map(|(index, instruction)| (instruction.address, index))
            .collect();
        let starts = starts(&continuations, &index_of, instructions.len());
        let block_at: HashMap<usize, usize> = starts
            .iter()
            .enumerate()
            .map(|(block, start)| (*start, block))
            .collect();
        let ends = starts.iter().skip(1).copied().chain([instructions.len()]);
        let blocks = std::iter::zip(&starts, ends).map(|(start, end)| {
            let falls = Continuation {
                falls_through: true,
                target: None,
            };
            let last = continuations.get(&(end - 1)).unwrap_or(&falls);
            let after = last.falls_through.then(|| block_at.get(&end)).flatten();
            let target = last.target.and_then(|address| index_of.get(&address)?.into());
            let target = target.and_then(|index| block_at.get(index));
            let mut next: Vec<usize> = after.into_iter().chain(target).copied().collect();
            next.dedup();
            Block {
                instructions: *start..end,
                next,
            }
        });
        Self {
            blocks: blocks.collect(),
        }
    }

    /// Returns the blocks before each.
    pub fn previous(&self) -> Vec<Vec<usize>> {
        let mut previous = vec![Vec::new(); self.blocks.len()];
        for (index, block) in self.blocks.iter().enumerate() {
            for &next in &block.next {
                previous[next].push(index);
            }
        }
        previous
    }
}

/// Returns the first instruction of each block.
fn starts(continuations: &HashMap<usize, Continuation>, index_of: &HashMap<u64, usize>, count: usize) -> Vec<usize> {
    let mut starts = BTreeSet::from([0]);
    for (index, continuation) in continuations {
        starts.insert(index + 1);
        starts.extend(continuation.target.and_then(|address| index_of.get(&address)));
    }
    starts.remove(&count);
    starts.into_iter().collect()
}

/// Returns where each `BSYNC` continues: at the address of the nearest `BSSY` before it with the same barrier.
fn joins(instructions: &[Instruction]) -> HashMap<usize, u64> {
    let mut open: HashMap<&str, u64> = HashMap::new();
    let mut joins = HashMap::new();
    for (index, instruction) in instructions.iter().enumerate() {
        let barrier = instruction.operands.split(',').next().unwrap_or_default().trim();
        match (instruction.base(), instruction.target()) {
            ("BSSY", Some(target)) => {
                open.insert(barrier, target);
            }
            ("BSYNC", _) => joins.extend(open.get(barrier).map(|target| (index, *target))),
            _ => {}
        }
    }
    joins
}

/// Returns where an instruction continues, if it may be elsewhere than at the next one.
fn continuation(instruction: &Instruction, join: Option<u64>) -> Option<Continuation> {
    let is_conditional = instruction.predicate.is_some() || has_condition(instruction);
    let target = instruction.target();
    match instruction.base() {
        // Taken by warps whose threads have diverged.
        "BRA" if instruction.opcode.split('.').any(|part| matches!(part, "DIV" | "CONV")) => None,
        "BRA" | "JMP" => Some(Continuation {
            falls_through: is_conditional,
            target,
        }),
        "BSYNC" => Some(Continuation {
            falls_through: is_conditional || join.is_none(),
            target: join,
        }),
        "EXIT" | "RET" | "BRX" | "JMX" | "KILL" => Some(Continuation {
            falls_through: is_conditional,
            target: None,
        }),
        _ => None,
    }
}

/// Whether a branch has its condition among its operands: `BRA P0, 0x40`.
fn has_condition(instruction: &Instruction) -> bool {
    let first = instruction.operands.split(',').next().unwrap_or_default().trim();
    let register = first.trim_start_matches('!').trim_start_matches('U');
    register
        .strip_prefix('P')
        .is_some_and(|number| number.starts_with(|letter: char| letter.is_ascii_digit()))
}
