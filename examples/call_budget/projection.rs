//! A projection of a training step's time and of model FLOPs utilisation on an A100-80, from what has been counted.
//!
//! Nothing here is measured on a GPU. Each [`Term`] says what it is made of: counted calls, bytes or FLOPs of this
//! rank's step, over a rate. Rates are those of `kernel_cost` ([`COSTS`], simulated from the compiled kernels) where it
//! has them, and stated constants otherwise. What memory bounds takes the time of its bytes, and a collective that of a
//! ring over NVLink; what runs during a matmul is not charged.
//!
//! A pipeline's step takes as long as its slowest stage: play the last rank, which has the head.

use anyhow::{Context as _, bail};
use burn_megatron::context::TensorOverlap;
use burn_megatron::topology::RankGrid;
use burn_megatron::training::flops::GptSize;
use examples::arguments::TrainingArguments;
use kernel_cost::attention::{Comparison, REACHED_BANDWIDTH};
use kernel_cost::gpu::Gpu;
use kernel_cost::row::{LAUNCH_SECONDS, REACHED_UTILISATION};
use serde_json::{Value, json};

use crate::counts::{Counts, Parts};
use crate::measure::Setting;

/// What the compiled kernels cost, which `kernel_cost --json` writes.
const COSTS: &str = include_str!("../../cubecl-kernels/kernel_cost/data/costs.jsonl");
const GPU: Gpu = Gpu::A100_80;
/// FLOP/s of cuBLASLt's matmuls in 16 bits, of 312e12 at the peak. Assumed: those of several thousand rows and
/// columns reach 64 to 74 % of it.
pub const MATMUL_FLOPS: [f64; 3] = [200e12, 215e12, 230e12];
/// Bytes per second that a ring of NCCL's carries through each GPU of a node. NVLink 3 has 300e9 in each direction
/// (NVIDIA A100 data sheet: 600 GB/s together); nccl-tests report a bus bandwidth of about 230e9 on a DGX A100.
const RING_BYTES_PER_SECOND: f64 = 230e9;
/// The share of a layer's gathered and of its reduced bytes under sequence parallelism that nothing hides: of 6
/// all-gathers, 2 in the forward pass and 2 for the gradients of row-parallel layers; of 4 reduce-scatters, 2 in the
/// forward pass. The others run during a matmul that does not need them
/// (`ColumnParallelLinear::forward`).
const EXPOSED_GATHERS: f64 = 4.0 / 6.0;
const EXPOSED_REDUCTIONS: f64 = 2.0 / 4.0;
/// Seconds of the host for each call that it queues: 8e-6 of CubeCL's server, as its emulated driver has it at the
/// median, and 2e-6 of a driver. It matters only if their sum is more than what the GPU takes.
const HOST_SECONDS: f64 = 10e-6;
/// Seconds of a copy of a few bytes from the host, between two kernels of a stream. Assumed.
const COPY_SECONDS: f64 = 5e-6;
const ELEMENT: f64 = 2.0;
const F32: f64 = 4.0;

/// A part of a step's time on this rank, in seconds.
#[derive(Clone, Debug)]
pub struct Term {
    /// What takes the time.
    pub name: &'static str,
    /// Seconds per step.
    pub seconds: f64,
    /// What it follows from.
    pub source: String,
}

/// A step, with matmuls at one rate.
#[derive(Clone, Debug)]
pub struct Projection {
    /// FLOP/s of matmuls.
    pub matmul_flops: f64,
    pub terms: Vec<Term>,
    /// Model FLOPs of the step, of one GPU.
    model_flops: f64,
}

impl Projection {
    /// Seconds per step.
    pub fn seconds(&self) -> f64 {
        self.terms.iter().map(|term| term.seconds).sum()
    }

    /// Model FLOPs over those that the GPU has at its peak.
    pub fn utilisation(&self) -> f64 {
        self.model_flops / (self.seconds() * GPU.matrix_flops())
    }

    pub fn to_json(&self) -> Value {
        let term = |term: &Term| json!({"term": term.name, "seconds": term.seconds, "source": term.source});
        json!({
            "projection": "A100-80, not measured",
            "matmul_flops": self.matmul_flops,
            "seconds": self.seconds(),
            "model_flops_utilisation": self.utilisation(),
            "terms": self.terms.iter().map(term).collect::<Vec<_>>(),
        })
    }
}

/// What a step's time follows from.
struct Step<'a> {
    setting: &'a Setting,
    parts: &'a Parts,
    /// Layers of this rank.
    layers: f64,
    micro_batches: f64,
    /// Bytes of a 16-bit number for each token and element of a layer's width, over the tensor ranks.
    unit: f64,
}

/// Checks that a layout is one whose step the terms describe.
///
/// # Errors
/// The flag that asks for what no term has.
pub fn check(arguments: &TrainingArguments, grid: &RankGrid) -> anyhow::Result<()> {
    let overlap = arguments.parallel.communication.layer_overlap()?;
    let unknown = [
        ("data parallelism", grid.data_parallel_size() > 1),
        (
            "--recompute-granularity",
            arguments.model.recompute.recompute_granularity.is_some(),
        ),
        ("--tp-comm-overlap off", !overlap.overlaps_reduce),
        ("--tp-comm-overlap", overlap.chunks != TensorOverlap::Off),
    ];
    match unknown.into_iter().find(|(_, is_asked)| *is_asked) {
        Some((what, _)) => bail!("--projection has no terms for {what}"),
        None => Ok(()),
    }
}

/// Returns the projections, one for each of [`MATMUL_FLOPS`].
///
/// # Errors
/// When the file of costs has no row that is needed.
pub fn project(setting: &Setting, parts: &Parts) -> anyhow::Result<Vec<Projection>> {
    let grid = &setting.grid;
    let [tensor, stages] = [grid.tensor_parallel_size(), grid.pipeline_parallel_size()];
    let tokens = (setting.sequence * setting.micro_batch) as f64;
    let step = Step {
        setting,
        parts,
        layers: (setting.layers / stages) as f64,
        micro_batches: setting.micro_batches as f64,
        unit: tokens * setting.hidden as f64 * ELEMENT / tensor as f64,
    };
    let size = GptSize {
        n_layers: setting.layers as u64,
        d_model: setting.hidden as u64,
        vocabulary_size: setting.vocabulary as u64,
        seq_length: setting.sequence as u64,
    };
    let samples = setting.micro_batch * setting.micro_batches;
    let model_flops = size.model_flops_per_iteration(samples as u64) / (tensor * stages) as f64;
    let others = step.others()?;
    let of_rate = |matmul_flops| Projection {
        matmul_flops,
        terms: step.terms(matmul_flops, &others),
        model_flops,
    };
    Ok(MATMUL_FLOPS.map(of_rate).to_vec())
}

impl Step<'_> {
    fn terms(&self, matmul_flops: f64, others: &[Term]) -> Vec<Term> {
        let flops = self.sum(matmul_flops_of);
        let mut terms = vec![Term {
            name: "matmuls",
            seconds: flops / matmul_flops,
            source: format!("{:.3e} FLOPs of the counted matmuls", flops),
        }];
        terms.extend(others.iter().cloned());
        let passes: f64 = terms.iter().map(|term| term.seconds).sum();
        let waiting = self.waiting_for_the_host(passes);
        let passes = passes + waiting.seconds;
        let stages = self.setting.grid.pipeline_parallel_size() as f64;
        let chunks = self.setting.chunks as f64;
        let bubble = (stages - 1.0) / (self.micro_batches * chunks);
        terms.push(waiting);
        terms.push(Term {
            name: "pipeline bubble",
            seconds: passes * bubble,
            source: format!("(p - 1) / (v m) = {bubble:.3} of all above"),
        });
        terms.push(self.tail());
        terms
    }

    /// What does not depend on the rate of matmuls.
    fn others(&self) -> anyhow::Result<Vec<Term>> {
        Ok(vec![
            self.attention()?,
            self.layer_passes(),
            self.passes_outside(),
            self.exposed_collectives(),
            self.launches(),
        ])
    }

    /// Returns the sum over the step's parts of what is counted in each.
    fn sum(&self, count: impl Fn(&Counts) -> f64) -> f64 {
        let Parts {
            per_layer_and_micro_batch,
            per_micro_batch,
            per_layer,
            per_step,
        } = self.parts;
        count(per_layer_and_micro_batch) * self.layers * self.micro_batches
            + count(per_micro_batch) * self.micro_batches
            + count(per_layer) * self.layers
            + count(per_step)
    }

    fn attention(&self) -> anyhow::Result<Term> {
        let setting = self.setting;
        let d_head = setting.hidden / setting.heads;
        let heads = (setting.heads / setting.grid.tensor_parallel_size() * setting.micro_batch) as f64;
        // A product of half of all pairs, a multiplication and a sum for each element of a head.
        let product = heads * (setting.sequence as f64).powi(2) * d_head as f64;
        let [forward, backward] = [(2.0, "forward"), (5.0, "backward")].map(|(products, pass)| {
            let reached = attention_utilisation(pass, d_head)?;
            Ok::<_, anyhow::Error>((products * product / (GPU.matrix_flops() * reached), reached))
        });
        let ((forward, of_forward), (backward, of_backward)) = (forward?, backward?);
        Ok(Term {
            name: "attention",
            seconds: (forward + backward) * self.layers * self.micro_batches,
            source: format!(
                "kernel_cost: {of_forward:.2} of the peak forward, {of_backward:.2} of 5 products backward"
            ),
        })
    }

    /// What memory bounds in layers: norms read and write, the residual sum, GELU at four times the width.
    fn layer_passes(&self) -> Term {
        // Forward: norm 2, sum with norm 4, GELU 8, sum 3. Backward: sum's bias 1, GELU 12, norms 4 and 4. Without
        // sequence parallelism the norms and sums are those of all tokens.
        let (between, inside) = (2.0 + 4.0 + 3.0 + 1.0 + 4.0 + 4.0, 8.0 + 12.0);
        let between = if self.setting.is_sequence_parallel {
            between
        } else {
            between * self.setting.grid.tensor_parallel_size() as f64
        };
        let units = between + inside;
        Term {
            name: "norms, sums, GELU",
            seconds: seconds_of(units * self.unit) * self.layers * self.micro_batches,
            source: format!(
                "{units} passes over s b h / t in 16 bits per layer, at {REACHED_BANDWIDTH} of the bandwidth"
            ),
        }
    }

    /// Loss and embedding, where they are.
    fn passes_outside(&self) -> Term {
        let setting = self.setting;
        let tensor = setting.grid.tensor_parallel_size();
        let tokens = (setting.sequence * setting.micro_batch) as f64;
        // The statistics read the logits, the gradient is written over them.
        let logits = 3.0 * tokens * (setting.vocabulary / tensor) as f64 * ELEMENT;
        // Rows 2, positions 2; backward: rows added up in f32, 1 and 4, positions 1. The norm before the head 2 and 4.
        let rows = tokens * setting.hidden as f64 * ELEMENT;
        let bytes = f64::from(u8::from(setting.has_head)) * (logits + 6.0 * rows)
            + f64::from(u8::from(setting.has_embedding)) * 10.0 * rows;
        Term {
            name: "loss, embedding",
            seconds: seconds_of(bytes) * self.micro_batches,
            source: format!("{:.2e} bytes per micro-batch", bytes),
        }
    }

    fn exposed_collectives(&self) -> Term {
        let size = self.setting.grid.tensor_parallel_size() as f64;
        let ring = (size - 1.0) / size / RING_BYTES_PER_SECOND;
        let bytes = |counts: &Counts, call: &str| counts.bytes_of("nccl", &format!("{call} of {size}"));
        let exposed = |counts: &Counts, gathers: f64, reductions: f64| {
            let moved = gathers * bytes(counts, "AllGather") + reductions * bytes(counts, "ReduceScatter");
            ring * (moved + reductions * 2.0 * bytes(counts, "AllReduce"))
        };
        let in_layers = exposed(
            &self.parts.per_layer_and_micro_batch,
            EXPOSED_GATHERS,
            EXPOSED_REDUCTIONS,
        );
        let outside = exposed(&self.parts.per_micro_batch, 1.0, 1.0);
        Term {
            name: "exposed collectives",
            seconds: (in_layers * self.layers + outside) * self.micro_batches,
            source: format!("counted bytes at {RING_BYTES_PER_SECOND:.1e} per second, what no matmul hides"),
        }
    }

    fn launches(&self) -> Term {
        let calls = self.sum(|counts| counts.calls_of(&["launch", "matmul"]));
        let copies = self.sum(|counts| counts.calls_of(&["copy"]));
        Term {
            name: "launches, copies",
            seconds: calls * LAUNCH_SECONDS + copies * COPY_SECONDS,
            source: format!(
                "{calls:.0} launches of {LAUNCH_SECONDS:.0e} s, {copies:.0} copies of {COPY_SECONDS:.0e} s"
            ),
        }
    }

    /// What the host takes longer than the GPU for all passes.
    fn waiting_for_the_host(&self, passes: f64) -> Term {
        let calls = self.sum(|counts| counts.calls_of(&["launch", "matmul", "nccl", "copy"]));
        Term {
            name: "waits for the host",
            seconds: (calls * HOST_SECONDS - passes).max(0.0),
            source: format!("{calls:.0} calls of {HOST_SECONDS:.0e} s, of the host, over the GPU's time above"),
        }
    }

    /// What follows the last backward pass.
    fn tail(&self) -> Term {
        let setting = self.setting;
        let tensor = setting.grid.tensor_parallel_size() as f64;
        let h = setting.hidden as f64;
        let ends = u8::from(setting.has_embedding) + u8::from(setting.has_head && !setting.has_embedding);
        let parameters = (self.layers * 12.0 * h * h + f64::from(ends) * setting.vocabulary as f64 * h) / tensor;
        // The norm reads gradients; AdamW reads them, main values and two moments, writes these and 16 bits.
        let bytes = parameters * (F32 + 4.0 * F32 + 3.0 * F32 + ELEMENT);
        Term {
            name: "norm, AdamW",
            seconds: seconds_of(bytes),
            source: format!("{:.3e} parameters of 34 bytes", parameters),
        }
    }
}

/// The time of bytes that a kernel reads and writes once.
fn seconds_of(bytes: f64) -> f64 {
    bytes / (REACHED_BANDWIDTH * GPU.memory_bytes_per_second)
}

/// The share of the matrix units' peak that the products of a pass of attention reach, with its other kernels and the
/// balance of its grid: of its faster form, where there are two.
fn attention_utilisation(pass: &str, d_head: usize) -> anyhow::Result<f64> {
    let comparisons = COSTS
        .lines()
        .filter_map(|line| serde_json::from_str::<Comparison>(line).ok());
    let of_pass = comparisons.filter(|found| {
        let is_of_pass = found.pass == pass || found.pass == format!("{pass}, deterministic");
        found.gpu == GPU.name && is_of_pass && found.d_head >= d_head
    });
    let nearest = of_pass.min_by_key(|found| (found.d_head, found.pass != pass));
    let nearest = nearest.with_context(|| {
        format!("the table of kernels' costs has no {pass} pass of attention with heads of {d_head} elements or more")
    })?;
    // Heads that are narrower than those of the row fill as much of the matrix units as they are wide.
    let filled = d_head as f64 / nearest.d_head as f64;
    Ok(nearest.with_others[0] * nearest.balance[0] * REACHED_UTILISATION * filled)
}

/// FLOPs of all counted matmuls, whose names begin with their sizes.
fn matmul_flops_of(counts: &Counts) -> f64 {
    let of_name = |name: &str| -> Option<f64> {
        let sizes = name.split(' ').next()?.split('x').map(str::parse::<f64>);
        sizes
            .collect::<Result<Vec<_>, _>>()
            .ok()
            .map(|sizes| 2.0 * sizes.iter().product::<f64>())
    };
    let matmuls = counts.iter().filter(|(key, _)| key.kind == "matmul");
    matmuls
        .filter_map(|(key, count)| Some(of_name(&key.name)? * count.calls))
        .sum()
}

/// Prints a table, one column for each rate of matmuls.
pub fn print(projections: &[Projection]) {
    let Some(first) = projections.first() else { return };
    let rates: Vec<String> = projections
        .iter()
        .map(|of| format!("{:.0} TFLOP/s", of.matmul_flops / 1e12))
        .collect();
    println!("\nProjected on A100-80, not measured: seconds of a step, with matmuls at several rates.\n");
    println!(
        "| | {} | from |\n|---|{}---|",
        rates.join(" | "),
        "---|".repeat(rates.len())
    );
    for (number, term) in first.terms.iter().enumerate() {
        let seconds = projections.iter().map(|of| format!("{:.3}", of.terms[number].seconds));
        println!(
            "| {} | {} | {} |",
            term.name,
            seconds.collect::<Vec<_>>().join(" | "),
            term.source
        );
    }
    let row = |name: &str, value: &dyn Fn(&Projection) -> String| {
        let values: Vec<String> = projections.iter().map(value).collect();
        println!("| {name} | {} | |", values.join(" | "));
    };
    row("**step**", &|of| format!("{:.3}", of.seconds()));
    row("**model FLOPs utilisation**", &|of| {
        format!("{:.1} %", 100.0 * of.utilisation())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::{Count, Key};

    fn counts(rows: &[(&str, &str, f64)]) -> Counts {
        let row = |&(kind, name, calls): &(&str, &str, f64)| {
            let [kind, name, thread] = [kind, name, "main"].map(str::to_owned);
            (Key { kind, name, thread }, Count { calls, bytes: 0.0 })
        };
        Counts::from(rows.iter().map(row).collect::<Vec<_>>())
    }

    #[test]
    fn matmuls_are_counted_by_their_sizes_and_what_is_none_is_not() {
        let counts = counts(&[
            ("matmul", "2x3x5 NT BF16 to F32, added", 2.0),
            ("matmul", "2x3x5 NT BF16 to F32", -1.0),
            ("launch", "2x3x5", 7.0),
        ]);
        assert_eq!(matmul_flops_of(&counts), 60.0);
    }

    #[test]
    fn attention_is_of_the_row_of_its_heads_and_wider_heads_reach_more() {
        let [narrow, whole] = [96, 128].map(|d_head| attention_utilisation("forward", d_head).expect("a row"));
        assert!(0.0 < narrow && narrow < whole && whole < 1.0, "{narrow} and {whole}");
        assert!((narrow / whole - 0.75).abs() < 1e-12);
        let error = attention_utilisation("backward", 512)
            .expect_err("no such row")
            .to_string();
        assert!(error.contains("512"), "{error}");
    }
}
