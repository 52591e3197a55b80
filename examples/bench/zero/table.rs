//! Medians over rounds, and the table that they are printed in.

use std::fmt::{self, Write as _};

use examples::figures::median;

use super::Figures;
use super::variant::Variant;

/// What the columns are.
pub const LEGEND: &str = "\
peak MiB:  of the rank with the largest in the counted steps. Ours is what was allocated at once, with the text; a
           buffer that ranks share counts for the rank that owns it. PyTorch's is what was in memory, less pages of
           files and what was there before the model was made, of ranks whose allocator gives back what is freed
sent:      what all ranks together sent in a step
PyTorch:   DistributedDataParallel, ZeroRedundancyOptimizer around it, and FSDP2 (fully_shard) with
           reshard_after_forward=False and True, each layer a unit, over Gloo on loopback
ratio:     our step's time by that of PyTorch's in the same round; below 1 ours is faster";

/// A variant in one round.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub variant: Variant,
    pub ours: Figures,
    /// Its peer's.
    pub theirs: Option<Figures>,
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variant, ours, theirs } = self;
        let of = |figures: &Figures| format!("{:.1} ms, loss {:.3}", 1e3 * figures.step_seconds, figures.loss);
        write!(formatter, "{variant}: {}", of(ours))?;
        if let Some(theirs) = theirs {
            write!(formatter, "; {}: {}", variant.peer().title, of(theirs))?;
        }
        Ok(())
    }
}

/// Medians of a variant.
#[derive(Debug)]
pub struct Row {
    variant: Variant,
    milliseconds: f64,
    peak_mib: f64,
    sent_mib: f64,
    peer: Option<PeerColumns>,
}

#[derive(Debug)]
struct PeerColumns {
    milliseconds: f64,
    peak_mib: f64,
    ratio: f64,
}

impl Row {
    /// The rows of rounds that have the same variants in the same order.
    pub fn of_rounds(rounds: &[Vec<Measured>]) -> Vec<Row> {
        let variants = rounds.first().map_or(0, Vec::len);
        let column = |index: usize| rounds.iter().map(move |round| round[index]);
        (0..variants).map(|index| Self::of(column(index).collect())).collect()
    }

    fn of(rounds: Vec<Measured>) -> Row {
        const MIB: f64 = 1024.0 * 1024.0;
        let ours = |figure: fn(&Figures) -> f64| median(rounds.iter().map(|round| figure(&round.ours)).collect());
        let pairs: Vec<(Figures, Figures)> = rounds
            .iter()
            .filter_map(|round| Some((round.ours, round.theirs?)))
            .collect();
        let theirs = |figure: fn(&Figures) -> f64| median(pairs.iter().map(|(_, theirs)| figure(theirs)).collect());
        let ratios = pairs
            .iter()
            .map(|(ours, theirs)| ours.step_seconds / theirs.step_seconds);
        Row {
            variant: rounds[0].variant,
            milliseconds: 1e3 * ours(|figures| figures.step_seconds),
            peak_mib: ours(|figures| figures.peak_bytes as f64) / MIB,
            sent_mib: ours(|figures| figures.sent_bytes.map_or(f64::NAN, |bytes| bytes as f64)) / MIB,
            peer: (!pairs.is_empty()).then(|| PeerColumns {
                milliseconds: 1e3 * theirs(|figures| figures.step_seconds),
                peak_mib: theirs(|figures| figures.peak_bytes as f64) / MIB,
                ratio: median(ratios.collect()),
            }),
        }
    }
}

/// Returns the table; without peers it has no columns of theirs.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from("variant              ours ms  peak MiB  sent MiB");
    if rows.iter().any(|row| row.peer.is_some()) {
        text.push_str("  PyTorch                             ms  peak MiB  ratio");
    }
    for row in rows {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n{:<19}  {:>7.1}  {:>8.1}  {:>8.1}",
            row.variant, row.milliseconds, row.peak_mib, row.sent_mib
        );
        if let Some(peer) = &row.peer {
            let _ = write!(
                text,
                "  {:<29}  {:>7.1}  {:>8.1}  {:>5.3}",
                row.variant.peer().title,
                peer.milliseconds,
                peer.peak_mib,
                peer.ratio
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(step_seconds: f64, mib: u64) -> Figures {
        Figures {
            step_seconds,
            peak_bytes: mib << 20,
            sent_bytes: Some(mib << 20),
            loss: 1.0,
        }
    }

    fn measured(ours: f64, theirs: Option<f64>) -> Vec<Measured> {
        let variant = Variant {
            stage: 2,
            overlaps: false,
        };
        vec![Measured {
            variant,
            ours: figures(ours, 3),
            theirs: theirs.map(|seconds| figures(seconds, 5)),
        }]
    }

    #[test]
    fn ratios_are_within_rounds() {
        // The machine was slower by ten in the second round.
        let rounds = [
            measured(0.1, Some(0.2)),
            measured(1.0, Some(2.0)),
            measured(0.3, Some(0.4)),
        ];
        let text = table(&Row::of_rounds(&rounds));
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "variant              ours ms  peak MiB  sent MiB  \
                 PyTorch                             ms  peak MiB  ratio",
                "stage 2, no overlap    300.0       3.0       3.0  \
                 FSDP2, no resharding             400.0       5.0  0.500",
            ]
        );
    }

    #[test]
    fn without_a_peer_there_are_no_columns_of_one() {
        let text = table(&Row::of_rounds(&[measured(0.1, None)]));
        assert!(!text.contains("PyTorch") && text.ends_with("       3.0"), "{text}");
        assert_eq!(table(&Row::of_rounds(&[])).lines().count(), 1);
    }
}
