//! The text that `cuobjdump -sass` prints, read into functions of instructions.

use crate::instruction::{Control, Instruction};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// Its instructions, by address.
    pub instructions: Vec<Instruction>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListingError {
    #[error("the listing has no instructions: is it what `cuobjdump -sass` prints?")]
    Empty,
    #[error("line {line}: the instruction at {address:#x} has no second word, which holds its control bits")]
    NoControl {
        /// The line, from one.
        line: usize,
        address: u64,
    },
}

/// Reads a listing's functions; those without instructions are left out.
///
/// # Errors
///
/// If there is no instruction, or one without its control bits.
pub fn parse(text: &str) -> Result<Vec<Function>, ListingError> {
    let mut functions: Vec<Function> = Vec::new();
    // The instruction whose second word is expected.
    let mut open: Option<Instruction> = None;
    for (index, line) in text.lines().enumerate() {
        if let Some((_, name)) = line.split_once("Function : ") {
            functions.push(Function {
                name: name.trim().to_string(),
                instructions: Vec::new(),
            });
        } else if let Some(instruction) = first_line(line) {
            if let Some(unfinished) = open.replace(instruction) {
                return Err(no_control(index, &unfinished));
            }
        } else if let Some(word) = word(line)
            && let Some(mut instruction) = open.take()
        {
            instruction.control = Control::of_word(word);
            if let Some(function) = functions.last_mut() {
                function.instructions.push(instruction);
            }
        }
    }
    if let Some(unfinished) = open {
        return Err(no_control(text.lines().count(), &unfinished));
    }
    functions.retain(|function| !function.instructions.is_empty());
    if functions.is_empty() {
        return Err(ListingError::Empty);
    }
    Ok(functions)
}

fn no_control(line: usize, instruction: &Instruction) -> ListingError {
    ListingError::NoControl {
        line,
        address: instruction.address,
    }
}

/// Reads `/*0010*/ @P0 LDG.E R2, [R4.64] ; /* 0x… */`.
fn first_line(line: &str) -> Option<Instruction> {
    let (address, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (text, _) = rest.split_once(';')?;
    let (predicate, text) = match text.trim().strip_prefix('@') {
        Some(predicated) => {
            let (predicate, text) = predicated.split_once(char::is_whitespace)?;
            (Some(format!("@{predicate}")), text.trim())
        }
        None => (None, text.trim()),
    };
    let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    Some(Instruction {
        address,
        predicate,
        opcode: opcode.to_string(),
        operands: operands.trim().to_string(),
        control: Control::default(),
    })
}

/// Reads the line of the second word: `/* 0x000fe20000000800 */`.
fn word(line: &str) -> Option<u64> {
    let digits = line.trim().strip_prefix("/* 0x")?.strip_suffix(" */")?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
	code for sm_80
		Function : kernel
	.headerflags	@\"EF_CUDA_SM80\"
        /*0000*/                   MOV R1, c[0x0][0x28] ;     /* 0x00000a0000017a02 */
                                                              /* 0x000fc40000000f00 */
        /*0010*/              @!P0 BRA 0x40;                  /* 0x0000000000107919 */
                                                              /* 0x000e620000002500 */
";

    #[test]
    fn instructions_are_read() {
        let functions = parse(TEXT).expect("is a listing");
        assert_eq!((functions.len(), functions[0].name.as_str()), (1, "kernel"));
        let [first, second] = &functions[0].instructions[..] else {
            panic!("two instructions: {functions:?}");
        };
        assert_eq!(
            (first.opcode.as_str(), first.operands.as_str()),
            ("MOV", "R1, c[0x0][0x28]")
        );
        assert_eq!((first.control.stall, first.predicate.as_deref()), (2, None));
        assert_eq!((second.address, second.predicate.as_deref()), (16, Some("@!P0")));
        assert_eq!((second.target(), second.control.write), (Some(64), Some(1)));
    }

    #[test]
    fn other_texts_are_refused() {
        assert_eq!(parse("nothing"), Err(ListingError::Empty));
        let cut: Vec<&str> = TEXT.lines().collect();
        let cut = cut[..cut.len() - 1].join("\n");
        assert_eq!(parse(&cut), Err(ListingError::NoControl { line: 7, address: 16 }));
    }
}
