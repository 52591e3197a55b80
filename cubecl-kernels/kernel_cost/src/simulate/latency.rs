//! Latencies, in cycles: assumed, from published measurements of A100.

use crate::instruction::Instruction;
use crate::pipe::Pipe;

/// Cycles of the shared memory's port before an access takes its turn.
pub(super) const PORT_DELAY: u64 = 4;
/// Cycles until an asynchronous copy has read its operands.
pub(super) const COPY_ISSUED: u64 = 20;
/// Cycles until an instruction that no port delays has read its operands, on the pipe of memory and on others.
pub(super) const OPERANDS_READ: [u64; 2] = [12, 10];
/// Cycles between the last warp's arrival at a barrier and the block's next instruction.
pub(super) const BARRIER: u64 = 12;

/// Returns the cycles between an instruction's issue and its result, for those that release a scoreboard.
pub fn latency(instruction: &Instruction) -> u64 {
    match instruction.base() {
        "LDSM" | "S2R" | "RED" | "REDG" => 30,
        "LDS" | "SHFL" | "MUFU" | "SYNCS" => 24,
        "LDL" => 32,
        // Shapes and statistics of rows, which the block's other warps have just read into the L1 cache.
        "LDG" if instruction.bytes() <= 4 => 40,
        // From the L2 cache or memory.
        "LDG" => 450,
        "ATOM" | "ATOMG" => 300,
        "F2F" => 20,
        "VOTE" => 12,
        _ => match Pipe::of(instruction) {
            Pipe::LoadStore | Pipe::Special => 24,
            _ => 0,
        },
    }
}
