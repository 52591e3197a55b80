//! Attention's passes next to FlashAttention-2's.

use anyhow::{Context, bail, ensure};
use burn::tensor::DType;
use cubecl_kernels::flash_attention::{AttentionMask, PackedHeads, flash_attention_packed};
use cuda_emulator::Architecture;
use kernel_cost::attention::{BACKWARD, Comparison, FORWARD, MatrixLaunch, Part, Pass};
use kernel_cost::gpu::Gpu;
use kernel_cost::grid::Attention;
use kernel_cost::peer::Peers;
use kernel_cost::row::Cost;

use super::row;
use crate::attention::{Form, options};
use crate::launches::{KernelReport, function, is_ours, launches_of};

/// Heads that FlashAttention-2's data has.
pub const HEADS: [usize; 2] = [128, 64];
/// What grids are read from: samples, heads and blocks of a head are different numbers.
const PROBE: Attention = Attention {
    samples: 3,
    heads: 5,
    sequence: 1792,
};

/// A kernel of a pass.
enum Work {
    Matrix {
        part: Part,
        has_atomics: bool,
    },
    /// Bytes of memory per element of a head and row.
    Other(f64),
}

/// Compares the passes of causal attention with FlashAttention-2's on an A100: forward, backward, and the deterministic
/// form of the latter.
pub fn compare(d_head: usize) -> anyhow::Result<Vec<Comparison>> {
    let mut compared = compare_form(d_head, Form::default())?;
    let form = Form {
        is_deterministic: true,
        ..Form::default()
    };
    compared.extend(compare_form(d_head, form)?.into_iter().skip(1));
    Ok(compared)
}

/// Compares the forward and the backward pass of a form.
fn compare_form(d_head: usize, form: Form) -> anyhow::Result<Vec<Comparison>> {
    let gpu = Gpu::A100_80;
    let peers = Peers::flash_attention_2()?;
    let kernels = launches_of(DType::BF16, Architecture::Sm80, |setting| {
        let heads = PackedHeads {
            queries: PROBE.heads,
            keys: PROBE.heads,
        };
        let tensor = setting.leaf([PROBE.samples, PROBE.sequence, heads.total(), d_head]);
        let options = options(PROBE.samples, d_head, AttentionMask::Causal, form);
        flash_attention_packed(tensor, heads, options)?.backward();
        Ok(())
    })?;
    let works = kernels
        .iter()
        .map(|kernel| work(kernel, d_head, &gpu))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let (forward, backward) = works.split_at(1);
    let passes = [("forward", FORWARD, forward), ("backward", BACKWARD, backward)];
    let compared = passes.into_iter().map(|(name, useful, works)| {
        let pass = pass(d_head, useful, works);
        ensure!(
            !pass.parts.is_empty(),
            "{name}, d_head {d_head}: no kernel on the matrix units"
        );
        let peer = peers
            .kernels
            .iter()
            .find(|peer| peer.d_head == d_head && peer.products == useful);
        let peer = peer.with_context(|| format!("FlashAttention-2 has no {name} pass of d_head {d_head}"))?;
        let has_atomics = works
            .iter()
            .any(|work| matches!(work, Work::Matrix { has_atomics: true, .. }));
        let is_deterministic = useful == BACKWARD && !has_atomics;
        let name = if is_deterministic {
            "backward, deterministic"
        } else {
            name
        };
        Ok(Comparison::new(name, &pass, &Pass::of_peer(peer, &gpu)?, &gpu))
    });
    compared.collect()
}

fn pass(d_head: usize, useful: f64, works: &[Work]) -> Pass {
    let parts = works.iter().filter_map(|work| match work {
        Work::Matrix { part, .. } => Some(*part),
        Work::Other(_) => None,
    });
    let others = works.iter().map(|work| match work {
        Work::Matrix { .. } => 0.0,
        Work::Other(bytes) => *bytes,
    });
    Pass {
        d_head,
        useful,
        parts: parts.collect(),
        other_bytes: others.sum(),
    }
}

fn work(kernel: &KernelReport, d_head: usize, gpu: &Gpu) -> anyhow::Result<Work> {
    if kernel.resources.matrix_instructions == 0 {
        return other_bytes(kernel).map(Work::Other);
    }
    let row = row(kernel, gpu)?;
    let Cost::Matrix(cost) = &row.cost else {
        bail!("{}: its matrix instructions are in no loop", kernel.name);
    };
    let launch = MatrixLaunch {
        attention: PROBE,
        d_head,
        threads: kernel.units,
        grid: kernel.grid,
    };
    Ok(Work::Matrix {
        part: launch
            .part(cost, row.blocks_per_multiprocessor)
            .with_context(|| kernel.name.clone())?,
        has_atomics: cost.atomic_bytes > 0,
    })
}

/// Returns the bytes of memory that a kernel without matrix instructions moves per element of a head and row.
fn other_bytes(kernel: &KernelReport) -> anyhow::Result<f64> {
    match function(kernel.path) {
        // Reads the output and its gradient; a number for each row is written.
        "dot" => Ok(4.0),
        // Reads sums of f32, writes gradients.
        "finish_queries" => Ok(6.0),
        // Sums begin with zeros.
        "full_kernel" if kernel.name.contains("f32") => Ok(4.0),
        // What the backward pass begins with, which is not attention's.
        _ if !is_ours(kernel) => Ok(0.0),
        other => bail!("{other}: how many bytes it moves per element must be written here"),
    }
}
