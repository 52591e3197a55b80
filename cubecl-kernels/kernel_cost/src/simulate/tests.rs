//! The simulation of paths whose time is known.

use super::*;
use crate::gpu::Gpu;
use crate::instruction::{Control, Instruction};

fn instruction(opcode: &str, stall: u8) -> Instruction {
    Instruction {
        opcode: opcode.to_string(),
        control: Control {
            stall,
            ..Control::default()
        },
        ..Instruction::default()
    }
}

fn utilisation(path: &[Instruction], blocks: usize, warps: usize) -> f64 {
    let residency = Residency { blocks, warps };
    matrix_utilisation(path, residency, &Gpu::A100_80).expect("ends").mean
}

#[test]
fn products_alone_keep_the_matrix_units_busy() {
    let path = vec![instruction("HMMA.16816.F32.BF16", 2); 50];
    let busy = utilisation(&path, 1, 4);
    assert!((busy - 1.0).abs() < 0.01, "{busy}");
}

#[test]
fn one_warp_waits_out_its_stalls_and_two_fill_them() {
    let path = vec![[instruction("HMMA.16816.F32.BF16", 15), instruction("MOV", 1)]; 50].concat();
    let alone = utilisation(&path, 1, 4);
    assert!((alone - 0.5).abs() < 0.01, "{alone}");
    let both = utilisation(&path, 2, 4);
    assert!((both - 1.0).abs() < 0.02, "{both}");
}

#[test]
fn shared_memory_is_one_port() {
    // 16 wavefronts of four warps for 8 cycles of each matrix unit.
    let load = instruction("LDSM.16.M88.4", 1);
    let path = vec![[load, instruction("HMMA.16816.F32.BF16", 1)]; 100].concat();
    let busy = utilisation(&path, 2, 4);
    assert!((busy - 0.5).abs() < 0.01, "{busy}");
}

#[test]
fn a_result_is_waited_for() {
    let mut load = instruction("LDS.128", 1);
    load.control.write = Some(0);
    let mut product = instruction("HMMA.16816.F32.BF16", 1);
    product.control.wait = 1;
    // Four cycles to the port, four wavefronts of each warp, 18 cycles of latency.
    let busy = utilisation(&vec![[load, product]; 50].concat(), 1, 1);
    assert!((0.25 * 8.0 / 30.0 * 0.8..0.25 * 8.0 / 24.0).contains(&busy), "{busy}");
}

#[test]
fn barriers_hold_a_blocks_warps_together() {
    let path = vec![[instruction("BAR.SYNC", 1), instruction("HMMA.16816.F32.BF16", 1)]; 50].concat();
    let busy = utilisation(&path, 1, 8);
    // Twelve cycles after the last of them, then two products on each matrix unit.
    assert!((0.5..0.8).contains(&busy), "{busy}");
}

#[test]
fn sums_in_memory_take_their_time() {
    let sum = instruction("RED.E.ADD.F32.FTZ.RN.STRONG.GPU", 1);
    let sums = vec![[sum, instruction("HMMA.16816.F32.BF16", 1)]; 100].concat();
    let busy = utilisation(&sums, 2, 4);
    let expected = 8.0 / (4.0 * 128.0 / Gpu::A100_80.atomic_bytes_per_cycle);
    assert!((busy - expected).abs() < 0.02, "{busy}, expected {expected}");
}

#[test]
fn without_products_there_is_no_share() {
    let residency = Residency { blocks: 1, warps: 4 };
    assert_eq!(
        matrix_utilisation(&[instruction("MOV", 1)], residency, &Gpu::A100_80),
        None
    );
}
