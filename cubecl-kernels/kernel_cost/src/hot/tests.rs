//! Hot paths of kernels that are written here, an instruction per line: `address [predicate] operation operands`.

use super::*;

fn kernel(text: &str) -> Vec<Instruction> {
    let instruction = |line: &str| {
        let (address, rest) = line.trim().split_once(' ')?;
        let (predicate, rest) = match rest.strip_prefix('@') {
            Some(rest) => rest
                .split_once(' ')
                .map(|(predicate, rest)| (Some(format!("@{predicate}")), rest))?,
            None => (None, rest),
        };
        let (opcode, operands) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(Instruction {
            address: u64::from_str_radix(address, 16).ok()?,
            predicate,
            opcode: opcode.to_string(),
            operands: operands.to_string(),
            ..Instruction::default()
        })
    };
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| instruction(line).expect(line))
        .collect()
}

fn addresses(path: &HotPath) -> Vec<u64> {
    path.instructions
        .iter()
        .map(|instruction| instruction.address)
        .collect()
}

/// A loop with a check for a next block to copy, two ways to copy it, a masked way for edges, and a polling loop.
const ATTENTION: &str = "
    0 MOV
    10 BAR.SYNC 0x0
    20 @P0 BRA 0x80
    30 @P1 BRA 0x60
    40 LDGSTS.E.128
    50 BRA 0x80
    60 ISETP
    70 LDGSTS.E.128
    78 ISETP
    80 SYNCS.PHASECHK
    90 @!P0 BRA 0x80
    a0 HMMA.16816
    b0 @!P2 BRA 0xe0
    c0 FSEL
    d0 FSEL
    e0 HMMA.16816
    f0 @P3 BRA 0x10
    100 EXIT
";

#[test]
fn the_path_copies_the_next_block_without_checks_and_masks_nothing() {
    let path = matrix_loop(&kernel(ATTENTION)).expect("has a loop");
    assert_eq!(
        addresses(&path),
        [0x10, 0x20, 0x30, 0x40, 0x50, 0x80, 0x90, 0xa0, 0xb0, 0xe0, 0xf0]
    );
    assert_eq!((path.is_loop, path.inner_loops), (true, 0));
}

#[test]
fn the_loop_over_blocks_is_the_one_that_waits() {
    // A loop over tiles around the one over blocks, which has one that is not unrolled.
    let text = "
        0 MOV
        10 BAR.SYNC 0x0
        20 LDSM.16.M88.4
        30 HMMA.16816
        40 @P0 BRA 0x20
        50 @P1 BRA 0x10
        60 STG.E
        70 @P2 BRA 0x0
        80 EXIT
    ";
    let path = matrix_loop(&kernel(text)).expect("has a loop");
    assert_eq!(addresses(&path), [0x10, 0x20, 0x30, 0x40, 0x50]);
    assert_eq!(path.inner_loops, 1);
}

#[test]
fn blocks_out_of_line_are_in_the_order_of_execution() {
    let text = "
        0 BRA 0x40
        10 LDGSTS.E.128
        20 BRA 0x60
        40 BAR.SYNC 0x0
        50 @P0 BRA 0x10
        60 HMMA.16816
        70 @P1 BRA 0x40
        80 EXIT
    ";
    let path = matrix_loop(&kernel(text)).expect("has a loop");
    assert_eq!(addresses(&path), [0x40, 0x50, 0x10, 0x20, 0x60, 0x70]);
}

#[test]
fn vectors_are_taken_before_single_numbers_and_calls() {
    let text = "
        0 MOV
        10 @P0 BRA 0x60
        20 LDG.E.128
        30 @P1 BRA 0x50
        40 STG.E.128
        48 BRA 0x80
        50 CALL.REL.NOINC 0x100
        58 BRA 0x40
        60 LDG.E.U16
        70 STG.E.U16
        80 @P2 BRA 0x10
        90 EXIT
        100 RET.REL
    ";
    let path = memory_loop(&kernel(text)).expect("has a loop");
    assert_eq!(addresses(&path), [0x10, 0x20, 0x30, 0x40, 0x48, 0x80]);
}

#[test]
fn shuffles_in_a_loop_are_five() {
    let text = "
        0 LDG.E.128
        10 SHFL.BFLY
        20 @P0 BRA 0x10
        30 @P1 BRA 0x0
        40 EXIT
    ";
    let path = memory_loop(&kernel(text)).expect("has a loop");
    let shuffles = path
        .instructions
        .iter()
        .filter(|instruction| instruction.base() == "SHFL")
        .count();
    assert_eq!((shuffles, path.instructions.len()), (5, 12));
}

#[test]
fn the_outermost_loop_of_the_same_bytes_counts() {
    let text = "
        0 MOV
        10 LDG.E.128
        20 @P0 BRA 0x10
        30 STG.E
        40 @P1 BRA 0x0
        50 EXIT
    ";
    let path = memory_loop(&kernel(text)).expect("has a loop");
    assert_eq!(addresses(&path), [0x0, 0x10, 0x20, 0x30, 0x40]);
    assert_eq!(path.inner_loops, 1);
}

#[test]
fn without_a_loop_the_whole_kernel_counts() {
    let text = "
        0 ISETP
        10 @P0 EXIT
        20 BSSY B0, 0x60
        30 @P1 BRA 0x50
        40 LDG.E.128
        48 BRA 0x60
        50 LDG.E
        58 BSYNC B0
        60 EXIT
        70 BRA 0x70
    ";
    let path = memory_loop(&kernel(text)).expect("loads");
    assert_eq!(addresses(&path), [0x0, 0x10, 0x20, 0x30, 0x40, 0x48, 0x60]);
    assert!(!path.is_loop);
    assert_eq!(memory_loop(&kernel("0 MOV\n10 EXIT")), None);
}
