//! `Instruction`: one machine instruction of a kernel, and what its control word says.

use std::fmt;

/// What `ptxas` decided about an instruction's timing, in its control word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Cycles until the warp's next instruction may issue.
    pub stall: u8,
    /// The scoreboard that is released when the result is written.
    pub write: Option<u8>,
    /// The scoreboard that is released when the operands are read.
    pub read: Option<u8>,
    /// The scoreboards, as bits, that must be released first.
    pub wait: u8,
}

impl Control {
    /// Reads the upper half of an instruction's 128 bits.
    pub fn of_word(word: u64) -> Self {
        // The control bits begin at bit 105.
        let bits = word >> 41;
        let scoreboard = |bits: u64| Some((bits & 7) as u8).filter(|index| *index < 6);
        Self {
            stall: (bits & 15) as u8,
            write: scoreboard(bits >> 5),
            read: scoreboard(bits >> 8),
            wait: (bits >> 11 & 63) as u8,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Its address in the kernel, in bytes.
    pub address: u64,
    /// `@P0`, `@!UP1`, or nothing.
    pub predicate: Option<String>,
    /// The operation with its modifiers: `LDG.E.128`.
    pub opcode: String,
    /// The rest, as it is printed.
    pub operands: String,
    /// Its timing.
    pub control: Control,
}

impl Instruction {
    /// The operation without modifiers.
    pub fn base(&self) -> &str {
        self.opcode.split('.').next().unwrap_or_default()
    }

    /// Whether the operation is one of these.
    pub fn is_one_of(&self, bases: &[&str]) -> bool {
        bases.contains(&self.base())
    }

    /// Whether it is an `mma` on the matrix units.
    pub fn is_matrix(&self) -> bool {
        self.base() == "HMMA"
    }

    /// Whether no warp ever executes it: `ptxas` pads with such.
    pub fn is_never_executed(&self) -> bool {
        self.predicate.as_deref() == Some("@!PT")
    }

    /// Bytes that a thread moves, for instructions that access memory.
    pub fn bytes(&self) -> u32 {
        let mut width = 4;
        for modifier in self.opcode.split('.').skip(1) {
            match modifier {
                "U8" | "S8" => width = 1,
                "U16" | "S16" => width = 2,
                "64" | "F32x2" => width = 8,
                "128" | "F32x4" => width = 16,
                _ => {}
            }
        }
        width
    }

    /// The address that the operands name, of a branch, a call or a `BSSY`.
    pub fn target(&self) -> Option<u64> {
        let start = self.operands.rfind("0x")? + 2;
        let digits = self.operands[start..].split(|letter: char| !letter.is_ascii_hexdigit());
        u64::from_str_radix(digits.into_iter().next()?, 16).ok()
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let predicate = self.predicate.as_deref().unwrap_or_default();
        write!(
            f,
            "{:05x} {predicate:5} {} {}",
            self.address, self.opcode, self.operands
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_words_are_read() {
        // MOV R1, c[0x0][0x28]: stall 2; S2R: the write scoreboard 1.
        assert_eq!(
            Control::of_word(0x000f_c400_0000_0f00),
            Control {
                stall: 2,
                ..Control::default()
            }
        );
        let expected = Control {
            stall: 1,
            write: Some(1),
            ..Control::default()
        };
        assert_eq!(Control::of_word(0x000e_6200_0000_2500), expected);
    }

    #[test]
    fn widths_are_those_of_the_access_not_of_the_cache_hint() {
        let width = |opcode: &str| {
            Instruction {
                opcode: opcode.to_string(),
                ..Instruction::default()
            }
            .bytes()
        };
        assert_eq!(width("LDGSTS.E.BYPASS.LTC128B.128"), 16);
        assert_eq!(width("LDG.E.LTC128B.U16.CONSTANT"), 2);
        assert_eq!(width("STG.E"), 4);
        assert_eq!(width("RED.E.ADD.F32.FTZ.RN.STRONG.GPU"), 4);
    }
}
