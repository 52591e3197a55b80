//! The pipes of a multiprocessor: which an instruction takes, for how many cycles, and its wavefronts in shared memory.

use serde::Serialize;

use crate::gpu::Gpu;
use crate::instruction::Instruction;

/// A pipe of a sub-partition; the last two are the issue of instructions only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pipe {
    Matrix,
    /// Sums and products, of floats and of integers (`IMAD`).
    Fma,
    /// Integers, comparisons, selections, logic.
    Alu,
    /// Exponentials, reciprocals, conversions of integers.
    Special,
    /// Accesses to memory, shuffles, barriers.
    LoadStore,
    /// Instructions of the whole warp on uniform registers.
    Uniform,
    /// Branches and what has no pipe.
    Control,
}

impl Pipe {
    pub const COUNT: usize = 7;

    /// The pipe that an instruction takes.
    pub fn of(instruction: &Instruction) -> Self {
        match instruction.base() {
            "HMMA" => Self::Matrix,
            "FFMA" | "FADD" | "FMUL" | "IMAD" | "HFMA2" | "HADD2" | "HMUL2" => Self::Fma,
            "MUFU" | "F2F" | "I2F" | "F2I" | "FRND" => Self::Special,
            "LDSM" | "LDS" | "STS" | "STSM" | "LDGSTS" | "LDG" | "STG" | "RED" | "REDG" | "ATOM" | "ATOMS"
            | "ATOMG" | "LDL" | "STL" | "SHFL" | "ARRIVES" | "SYNCS" | "LDGDEPBAR" | "BAR" => Self::LoadStore,
            "BRA" | "EXIT" | "BSSY" | "BSYNC" | "NOP" | "DEPBAR" | "WARPSYNC" | "YIELD" | "MEMBAR" | "ERRBAR"
            | "CCTL" | "CALL" | "RET" => Self::Control,
            base if base.starts_with('U') => Self::Uniform,
            _ => Self::Alu,
        }
    }

    /// Cycles that an instruction holds its pipe.
    ///
    /// Assumed: `F2FP`, which packs two floats, takes the pipe of integers at half its rate.
    pub fn cycles(instruction: &Instruction, gpu: &Gpu) -> f64 {
        match (Self::of(instruction), instruction.base()) {
            (Self::Matrix, _) if instruction.opcode.contains("16816") => gpu.matrix_cycles,
            (Self::Matrix, _) => gpu.matrix_cycles / 2.0,
            (Self::Fma, "FFMA" | "FADD" | "FMUL") => gpu.float_cycles,
            (Self::Special, _) => 8.0,
            (Self::Alu, "F2FP") => 4.0,
            (Self::Control, _) => 1.0,
            _ => 2.0,
        }
    }
}

/// Wavefronts of 128 bytes that a warp's instruction takes in shared memory, without bank conflicts.
pub fn wavefronts(instruction: &Instruction) -> u32 {
    if instruction.is_never_executed() {
        return 0;
    }
    let has = |modifier: &str| instruction.opcode.split('.').any(|part| part == modifier);
    match instruction.base() {
        "LDSM" | "STSM" if has("4") || has("x4") => 4,
        "LDSM" | "STSM" if has("2") || has("x2") => 2,
        "LDS" | "STS" | "LDGSTS" => instruction.bytes().div_ceil(4),
        "LDSM" | "STSM" | "SHFL" | "ARRIVES" | "SYNCS" | "ATOMS" => 1,
        _ => 0,
    }
}

/// Bytes that a thread adds to f32 sums in memory.
pub fn atomic_bytes(instruction: &Instruction) -> u32 {
    match instruction.base() {
        "RED" | "REDG" if instruction.opcode.contains("F32") => instruction.bytes(),
        _ => 0,
    }
}

/// Cycles per pipe of one warp, and of the multiprocessor's shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Use {
    /// Of a sub-partition's matrix unit.
    pub matrix: f64,
    /// Instructions issued.
    pub issue: f64,
    /// Of sums and products.
    pub fma: f64,
    /// Of integers.
    pub alu: f64,
    /// Of exponentials.
    pub special: f64,
    /// Wavefronts.
    pub shared_memory: f64,
}

impl Use {
    /// Adds up what a path of instructions takes.
    pub fn of(path: &[Instruction], gpu: &Gpu) -> Self {
        let cycles = |pipe: Pipe| -> f64 {
            let taken = path.iter().filter(|instruction| Pipe::of(instruction) == pipe);
            taken.map(|instruction| Pipe::cycles(instruction, gpu)).sum()
        };
        Self {
            matrix: cycles(Pipe::Matrix),
            issue: path.len() as f64,
            fma: cycles(Pipe::Fma),
            alu: cycles(Pipe::Alu),
            special: cycles(Pipe::Special),
            shared_memory: f64::from(path.iter().map(wavefronts).sum::<u32>()),
        }
    }

    /// The cycles of the busiest pipe of a sub-partition.
    pub fn busiest(&self) -> f64 {
        [self.matrix, self.issue, self.fma, self.alu, self.special]
            .into_iter()
            .fold(0.0, f64::max)
    }

    /// The share of time that the matrix units would have if everything overlapped: the four sub-partitions share the
    /// shared memory.
    pub fn matrix_bound(&self) -> f64 {
        self.matrix
            / self
                .busiest()
                .max(crate::gpu::SUB_PARTITIONS as f64 * self.shared_memory)
    }
}
