//! Compares the recordings of a layout with those of the one-rank run, rank by rank and step by step.
//!
//! Of each run, one step of one kind of tensors is in memory at a time; a layout's recordings are removed as they are
//! judged, those of the one-rank run stay for the next layout.

use std::collections::HashMap;

use anyhow::{Context as _, ensure};
use burn_megatron::parameters::Placement;
use burn_megatron::parity::{
    Judge, PartDifference, RecordedTensor, TensorKind, Tolerance, compare_shard, read_step, remove_step,
};

use super::interrupt::Interrupt;
use super::jobs::Run;

pub struct Rules {
    /// The largest differences that rounding explains.
    pub tolerance: Tolerance,
    /// Parameters of the whole model.
    pub num_parameters: usize,
    /// Whether parameters without a true gradient are judged, too.
    pub judges_noise: bool,
}

/// How a layout compares with the one-rank run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Whether every rank starts with the bits of the one-rank run.
    pub same_start: bool,
    /// The largest relative difference of a step's loss.
    pub worst_loss: f64,
    /// The largest difference of a gradient, over its norm or the floor.
    pub worst_gradient: f64,
    /// The largest difference of a judged parameter, over its norm.
    pub worst_parameter: f64,
    /// The first thing that breaks parity, if something does: rank, step, what, of which parameter.
    pub first_failure: Option<String>,
    /// How many things break parity.
    pub num_failures: usize,
}

/// Judges a layout by the one-rank run.
///
/// # Errors
/// When a recording is missing or damaged, or this process is asked to stop.
pub fn judge(reference: &Run, layout: &Run, rules: &Rules, interrupt: &Interrupt) -> anyhow::Result<Verdict> {
    let ranks = 0..layout.world_size();
    let judges = ranks.map(|_| Judge::new(rules.tolerance, rules.num_parameters, rules.judges_noise));
    let mut bench = Bench {
        reference,
        layout,
        judges: judges.collect(),
        heard: vec![0; layout.world_size()],
        verdict: Verdict::default(),
    };
    bench.start()?;
    for (index, whole) in reference.metrics(0).iter().enumerate() {
        interrupt.check()?;
        let step = whole.step;
        bench.tensors(step, TensorKind::Gradient, |judge, part| {
            judge.gradient(step, part, whole.grad_norm);
        })?;
        bench.tensors(step, TensorKind::Parameter, |judge, part| judge.parameter(step, part))?;
        // Last, so that the first failure of a step names a parameter if there is one to name.
        for rank in 0..layout.world_size() {
            let part = &layout.metrics(rank)[index];
            let judge = &mut bench.judges[rank];
            judge.scalars(step, [part.loss, whole.loss], [part.grad_norm, whole.grad_norm]);
            bench.hear(rank);
        }
    }
    Ok(bench.verdict())
}

/// A layout before its judges, one per rank.
struct Bench<'a> {
    reference: &'a Run,
    layout: &'a Run,
    judges: Vec<Judge>,
    /// How many failures of each judge the verdict knows.
    heard: Vec<usize>,
    verdict: Verdict,
}

impl Bench<'_> {
    /// Compares the bits that training starts from.
    fn start(&mut self) -> anyhow::Result<()> {
        self.verdict.same_start = true;
        self.each_shard(0, TensorKind::Parameter, |bench, rank, shard, whole| {
            if has_other_bits(shard, whole) {
                bench.verdict.same_start = false;
                bench.fail(rank, format!("before step 1: {} starts with other bits", shard.name));
            }
        })
    }

    /// Judges every rank's tensors of one kind.
    fn tensors(
        &mut self,
        step: u64,
        kind: TensorKind,
        judge: impl Fn(&mut Judge, &PartDifference),
    ) -> anyhow::Result<()> {
        self.each_shard(step, kind, |bench, rank, shard, whole| {
            for part in compare_shard(&shard.name, whole, &shard.values, &shard.placement) {
                judge(&mut bench.judges[rank], &part);
            }
            bench.hear(rank);
            if kind == TensorKind::Parameter && !is_padding_zero(shard) {
                bench.fail(rank, format!("step {step}: the padding of {} is not zero", shard.name));
            }
        })
    }

    /// Calls `show` with each rank's tensors of a step and the whole ones of the one-rank run.
    fn each_shard(
        &mut self,
        step: u64,
        kind: TensorKind,
        mut show: impl FnMut(&mut Self, usize, &RecordedTensor, &[f64]),
    ) -> anyhow::Result<()> {
        // By name: the whole tensor, and whether some rank has had a part of it.
        let mut wholes: HashMap<String, (Vec<f64>, bool)> = read_step(self.reference.folder(), step, kind, 0)?
            .into_iter()
            .map(|tensor| (tensor.name, (without_padding(&tensor.values, &tensor.placement), false)))
            .collect();
        for rank in 0..self.layout.world_size() {
            for shard in read_step(self.layout.folder(), step, kind, rank)? {
                let (whole, is_seen) = wholes
                    .get_mut(&shard.name)
                    .with_context(|| format!("rank {rank} has a {kind} of {}, one rank has not", shard.name))?;
                *is_seen = true;
                show(self, rank, &shard, whole);
            }
            remove_step(self.layout.folder(), step, kind, rank)?;
        }
        let unseen = wholes.iter().find(|(_, (_, is_seen))| !is_seen);
        ensure!(
            unseen.is_none(),
            "no rank has a {kind} of {}",
            unseen.map_or("", |(name, _)| name)
        );
        Ok(())
    }

    /// Takes what a judge has found since it was last heard.
    fn hear(&mut self, rank: usize) {
        let found = self.judges[rank].failures();
        let new: Vec<String> = found[self.heard[rank]..].to_vec();
        self.heard[rank] = found.len();
        for failure in new {
            self.fail(rank, failure);
        }
    }

    fn fail(&mut self, rank: usize, what: String) {
        self.verdict.num_failures += 1;
        self.verdict.first_failure.get_or_insert(format!("rank {rank}, {what}"));
    }

    fn verdict(self) -> Verdict {
        let worst = |of: fn(&Judge) -> f64| self.judges.iter().map(of).fold(0.0, worse);
        Verdict {
            worst_loss: worst(Judge::worst_loss),
            worst_gradient: worst(Judge::worst_gradient),
            worst_parameter: worst(Judge::worst_parameter),
            ..self.verdict
        }
    }
}

/// The elements in logical order.
fn without_padding(values: &[f64], placement: &Placement) -> Vec<f64> {
    let mut logical = vec![0.0; placement.logical_len()];
    for run in placement.runs() {
        logical[run.logical..][..run.length].copy_from_slice(&values[run.local..][..run.length]);
    }
    logical
}

fn has_other_bits(shard: &RecordedTensor, whole: &[f64]) -> bool {
    shard.placement.runs().iter().any(|run| {
        let (here, there) = (
            &shard.values[run.local..][..run.length],
            &whole[run.logical..][..run.length],
        );
        here.iter().zip(there).any(|(a, b)| a.to_bits() != b.to_bits())
    }) || !is_padding_zero(shard)
}

fn is_padding_zero(shard: &RecordedTensor) -> bool {
    let mut end = 0;
    for run in shard.placement.runs() {
        if shard.values[end..run.local].iter().any(|&value| value != 0.0) {
            return false;
        }
        end = run.local + run.length;
    }
    shard.values[end..].iter().all(|&value| value == 0.0)
}

/// The larger one, with NaN the largest.
fn worse(a: f64, b: f64) -> f64 {
    if b.is_nan() || b > a { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second of two shards of a vocabulary of 5 rows, padded to 8: row 4 and three rows of padding.
    fn shard(values: [f64; 8]) -> RecordedTensor {
        RecordedTensor {
            name: "wte.weight".into(),
            placement: Placement::new([5, 2], [4, 0], [4, 2]),
            values: values.to_vec(),
        }
    }

    #[test]
    fn one_bit_is_another_start() {
        let whole: Vec<f64> = (0..10).map(f64::from).collect();
        assert!(!has_other_bits(
            &shard([8.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
            &whole
        ));
        assert!(has_other_bits(
            &shard([8.0, 9.0f64.next_up(), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
            &whole
        ));
        assert!(has_other_bits(&shard([8.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), &whole));
    }

    #[test]
    fn padding_is_looked_at_on_every_side() {
        let mut tensor = shard([0.0; 8]);
        // Rows of two columns, of which the first is real: padding after every run.
        tensor.placement = Placement::new([4, 1], [0, 0], [4, 2]);
        assert!(is_padding_zero(&tensor));
        tensor.values[1] = 1.0;
        assert!(!is_padding_zero(&tensor));
        tensor.values = vec![1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0];
        assert!(is_padding_zero(&tensor));
    }

    #[test]
    fn what_is_not_a_number_is_the_worst() {
        assert_eq!([1.0, 3.0, 2.0].into_iter().fold(0.0, worse), 3.0);
        assert!([1.0, f64::NAN, 2.0].into_iter().fold(0.0, worse).is_nan());
    }
}
