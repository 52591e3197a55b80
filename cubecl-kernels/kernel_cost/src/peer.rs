//! FlashAttention-2's kernels, as data: what the model needs of them.

use serde::{Deserialize, Serialize};

use crate::gpu::Gpu;
use crate::grid::Order;
use crate::hot::HotPath;
use crate::instruction::{Control, Instruction};
use crate::matrix::{MatrixCost, MatrixCostError, matrix_cost};
use crate::simulate::Residency;

/// Kernels of another project.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Peers {
    /// What they are and where they are from.
    pub source: String,
    pub licence: String,
    pub kernels: Vec<Peer>,
}

/// A kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Peer {
    pub name: String,
    /// Its function, with its template's numbers.
    pub function: String,
    pub d_head: usize,
    /// Products that it computes of each pair of a query and a key.
    pub products: f64,
    /// Rows that a block keeps.
    pub kept: usize,
    /// Rows that pass in an iteration.
    pub passing: usize,
    /// The order in which its blocks start.
    pub order: Order,
    /// Warps of a block.
    pub warps: usize,
    /// Blocks of a multiprocessor.
    pub blocks: usize,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of memory per element of a head and row that the kernels before and after it move.
    pub other_bytes: f64,
    /// Where its hot path is in the listing, in the order of execution: `first-last` in hexadecimal digits.
    pub addresses: Vec<String>,
    /// The hot path: operation, stall, scoreboards that are released by the result and by the operands, and those that
    /// are waited for, as bits in hexadecimal digits.
    pub path: Vec<String>,
}

/// Why the data cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Not the JSON that is expected.
    #[error("the data of FlashAttention-2: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{peer}: `{text}` is not an instruction with stall, two scoreboards or `-`, and those waited for")]
    Instruction { peer: String, text: String },
    /// The model does not take it.
    #[error("{peer}: {source}")]
    Model { peer: String, source: MatrixCostError },
}

impl Peers {
    /// Returns FlashAttention-2's kernels for A100, which are part of this crate.
    pub fn flash_attention_2() -> Result<Self, PeerError> {
        Ok(serde_json::from_str(include_str!("../data/flash_attention_2.json"))?)
    }
}

impl Peer {
    /// Returns its cost on a GPU.
    ///
    /// # Errors
    ///
    /// If its instructions cannot be read, or do not end in the simulation.
    pub fn cost(&self, gpu: &Gpu) -> Result<MatrixCost, PeerError> {
        let residency = Residency {
            blocks: self.blocks,
            warps: self.warps,
        };
        matrix_cost(&self.hot_path()?, residency, gpu).map_err(|source| PeerError::Model {
            peer: self.name.clone(),
            source,
        })
    }

    pub fn hot_path(&self) -> Result<HotPath, PeerError> {
        let instruction = |text: &String| {
            compact_instruction(text).ok_or_else(|| PeerError::Instruction {
                peer: self.name.clone(),
                text: text.clone(),
            })
        };
        Ok(HotPath {
            instructions: self.path.iter().map(instruction).collect::<Result<_, _>>()?,
            is_loop: true,
            inner_loops: 0,
        })
    }
}

/// Writes an instruction as [`Peer::path`] has it.
pub fn compact(instruction: &Instruction) -> String {
    let scoreboard = |index: Option<u8>| index.map_or("-".to_string(), |index| index.to_string());
    let Control {
        stall,
        write,
        read,
        wait,
    } = instruction.control;
    let never = if instruction.is_never_executed() { "@!PT " } else { "" };
    let (write, read) = (scoreboard(write), scoreboard(read));
    format!("{never}{} {stall} {write} {read} {wait:x}", instruction.opcode)
}

fn compact_instruction(text: &str) -> Option<Instruction> {
    let (predicate, text) = match text.strip_prefix("@!PT ") {
        Some(text) => (Some("@!PT".to_string()), text),
        None => (None, text),
    };
    let [opcode, stall, write, read, wait] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let scoreboard = |text: &str| match text {
        "-" => Some(None),
        index => index.parse().ok().filter(|index| *index < 6).map(Some),
    };
    Some(Instruction {
        predicate,
        opcode: opcode.to_string(),
        control: Control {
            stall: stall.parse().ok()?,
            write: scoreboard(write)?,
            read: scoreboard(read)?,
            wait: u8::from_str_radix(wait, 16).ok()?,
        },
        ..Instruction::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_attention_2_is_as_it_was_disassembled() {
        let peers = Peers::flash_attention_2().expect("is whole");
        // Instructions, matrix instructions, accesses to local memory, the share of time of the matrix units.
        let expected = [
            ("forward, d_head 128", 918, 256, 12, 0.76),
            ("forward, d_head 64", 1173, 256, 46, 0.69),
            ("backward, d_head 128", 978, 320, 7, 0.67),
            ("backward, d_head 64", 1293, 320, 10, 0.61),
        ];
        assert_eq!(peers.kernels.len(), expected.len());
        for (peer, (name, instructions, matrix, local, busy)) in std::iter::zip(&peers.kernels, expected) {
            let cost = peer.cost(&Gpu::A100_80).expect("is simulated");
            assert_eq!(peer.name, name);
            assert_eq!(
                (cost.instructions, cost.matrix_instructions),
                (instructions, matrix),
                "{name}"
            );
            assert_eq!(cost.local_accesses, local, "{name}");
            let found = cost.utilisation_without_atomics;
            let distance = (found.mean - busy).abs();
            assert!(
                distance < 0.03 && found.standard_error < 0.01,
                "{name}: {found:?}, expected {busy}"
            );
        }
    }

    #[test]
    fn compact_instructions_are_read_as_they_are_written() {
        for text in [
            "HMMA.16816.F32.BF16 2 - - 0",
            "@!PT LDS 1 - - 0",
            "LDSM.16.M88.4 4 3 - 21",
            "STG.E.128 1 - 0 3f",
        ] {
            let instruction = compact_instruction(text).expect("is one");
            assert_eq!(compact(&instruction), text);
        }
        for text in ["HMMA", "HMMA 1 - - 0 0", "HMMA 1 6 - 0", "HMMA x - - 0"] {
            assert_eq!(compact_instruction(text), None, "{text}");
        }
    }
}
