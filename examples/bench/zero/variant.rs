//! [`Variant`]: a stage of ZeRO with or without overlap, and its peer in PyTorch.

use std::fmt;

/// Variants of sharding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// From 0 to 3.
    pub stage: u8,
    /// Gradients are reduced, and parameters gathered, during the passes.
    pub overlaps: bool,
}

/// Peers by stage: the values of `--mode` of PyTorch's program, and their titles.
pub const PEERS: [(&str, &str); 4] = [
    ("ddp", "DDP"),
    ("zero1", "DDP + ZeroRedundancyOptimizer"),
    ("fsdp-no-reshard", "FSDP2, no resharding"),
    ("fsdp", "FSDP2"),
];

impl Variant {
    /// Returns the variants of stages in this order: stages 2 and 3 with overlap and then without.
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
            let overlaps = if stage >= 2 { &[true, false][..] } else { &[true] };
            variants.extend(overlaps.iter().map(|&overlaps| Variant { stage, overlaps }));
        }
        Ok(variants)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.overlaps { "" } else { ", no overlap" };
        formatter.pad(&format!("stage {}{suffix}", self.stage))
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
}
