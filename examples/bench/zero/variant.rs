//! `Variant`: a stage of ZeRO with or without overlap; `Mode`: its peer in PyTorch.

use std::fmt;
use std::str::FromStr;

/// How a variant without overlap ends on the command line of a rank.
const NO_OVERLAP: &str = "-no-overlap";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// From 0 to 3.
    pub stage: u8,
    /// Whether gradients are reduced, and parameters gathered, during the passes.
    pub overlaps: bool,
}

/// What PyTorch's program calls a mode, and what its table row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The value of `--mode`.
    pub name: &'static str,
    /// In words.
    pub title: &'static str,
}

/// The peers, by stage.
const PEERS: [Mode; 4] = [
    Mode {
        name: "ddp",
        title: "DDP",
    },
    Mode {
        name: "zero1",
        title: "DDP + ZeroRedundancyOptimizer",
    },
    Mode {
        name: "fsdp-no-reshard",
        title: "FSDP2, no resharding",
    },
    Mode {
        name: "fsdp",
        title: "FSDP2",
    },
];

impl Variant {
    /// The variants of stages in this order: stages 2 and 3 with overlap and then without.
    ///
    /// # Errors
    /// When a stage is named twice, or none is.
    pub fn of_stages(stages: &[u8]) -> anyhow::Result<Vec<Variant>> {
        anyhow::ensure!(
            !stages.is_empty(),
            "--stages names no stage: give some of 0, 1, 2 and 3"
        );
        let mut variants = Vec::new();
        for (index, &stage) in stages.iter().enumerate() {
            anyhow::ensure!(
                !stages[..index].contains(&stage),
                "--stages names stage {stage} twice: name each once"
            );
            variants.push(Variant { stage, overlaps: true });
            if stage >= 2 {
                variants.push(Variant { stage, overlaps: false });
            }
        }
        Ok(variants)
    }

    /// What it is compared with.
    ///
    /// # Panics
    /// When there is no such stage.
    pub fn peer(self) -> Mode {
        PEERS[usize::from(self.stage)]
    }

    /// Its value on the command line of a rank.
    pub fn flag(self) -> String {
        format!("{}{}", self.stage, if self.overlaps { "" } else { NO_OVERLAP })
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.overlaps { "" } else { ", no overlap" };
        formatter.pad(&format!("stage {}{suffix}", self.stage))
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let stage = text.strip_suffix(NO_OVERLAP);
        let overlaps = stage.is_none();
        match stage.unwrap_or(text).parse() {
            Ok(stage @ 0..=3) => Ok(Variant { stage, overlaps }),
            _ => Err(format!("expected a stage from 0 to 3, with {NO_OVERLAP} or without")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_2_and_3_are_measured_without_overlap_too() {
        let titles = |stages: &[u8]| -> Vec<String> {
            let variants = Variant::of_stages(stages).expect("stages");
            variants.iter().map(Variant::to_string).collect()
        };
        assert_eq!(titles(&[0, 1]), ["stage 0", "stage 1"]);
        assert_eq!(
            titles(&[3, 2, 0]),
            [
                "stage 3",
                "stage 3, no overlap",
                "stage 2",
                "stage 2, no overlap",
                "stage 0"
            ]
        );
    }

    #[test]
    fn a_stage_is_named_once() {
        let error = |stages: &[u8]| Variant::of_stages(stages).expect_err("refused").to_string();
        assert_eq!(error(&[2, 0, 2]), "--stages names stage 2 twice: name each once");
        assert!(error(&[]).contains("names no stage"));
    }

    #[test]
    fn variants_are_read_as_they_are_written() {
        for variant in Variant::of_stages(&[0, 1, 2, 3]).expect("stages") {
            assert_eq!(variant.flag().parse(), Ok(variant));
        }
        for text in ["", "4", "-no-overlap", "2-overlap", "stage 2"] {
            assert!(text.parse::<Variant>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_stage_has_a_peer_of_its_own() {
        let names = [0, 1, 2, 3].map(|stage| Variant { stage, overlaps: false }.peer().name);
        assert_eq!(names, ["ddp", "zero1", "fsdp-no-reshard", "fsdp"]);
    }
}
