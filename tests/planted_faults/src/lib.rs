//! The list of faults that the tests must notice, `faults.json`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A fault, and the trials that must see it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub name: String,
    pub kind: Kind,
    /// The test that sees it.
    pub test: Test,
    /// The names of that test's trials that must turn red, each of them.
    pub trials: Vec<String>,
    /// What each trial must say of it, each in a comparison: which of the figures that a trial compares is worse.
    #[serde(default)]
    pub words: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// In the sources.
    Patch(Patch),
}

/// A fault in a source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// The file, from the workspace's root on.
    pub file: String,
    /// A text that occurs in it exactly once.
    pub from: String,
    /// What is put in its place.
    pub to: String,
    /// Parts of the names of all trials of the fault's test that it may turn red.
    pub reach: Vec<String>,
}

/// A test of the workspace that judges faults.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// Every operation of the kernels against its definition on the host.
    Operations,
    /// Every layout against one rank.
    Parity,
    /// Unchanged models, their tensors placed on ranks, against one rank.
    ShardedModels,
    /// Training on devices, an emulated GPU among them.
    Devices,
    /// Collectives over NCCL, on emulated GPUs.
    Nccl,
    /// The server of generated text, with real clients.
    Serving,
    /// The figures of evaluations.
    Evaluation,
    /// The kernels compiled for GPUs, and what they cost.
    CudaCompile,
}

impl Test {
    pub fn program(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::CudaCompile => "cuda_compile",
            _ => "tests",
        }
    }

    /// Returns what stands before the names of its trials: the room in a program that has several.
    pub fn room(self) -> &'static str {
        match self {
            Self::Operations | Self::CudaCompile => "",
            Self::Parity => "[parity] ",
            Self::ShardedModels => "[sharded_models] ",
            Self::Devices => "[devices] ",
            Self::Nccl => "[nccl] ",
            Self::Serving => "[serving] ",
            Self::Evaluation => "[evaluation] ",
        }
    }

    /// Returns the message of a comparison that failed, if it is a comparison that has turned a trial red, and if
    /// comparisons have said all of these words.
    pub fn comparison<'o>(self, output: &'o str, words: &[String]) -> Option<&'o str> {
        let is_comparison = |line: &&str| match self {
            Self::Operations => line.contains(", expected ") || line.contains("other elements fall"),
            Self::Parity | Self::ShardedModels => ["parity is broken", " differs by ", " differ by "]
                .iter()
                .any(|words| line.contains(words)),
            Self::Devices => line.contains("the second step has no error") || line.contains("over budget: "),
            Self::Nccl => [
                " bytes are held after ",
                " are held in the two evaluations",
                "its buffers are not aligned to ",
                " for what runs on the device, and ",
                "parity is broken",
            ]
            .iter()
            .any(|words| line.contains(words)),
            Self::Serving => [
                " is streamed and ends by ",
                "429 ",
                "the third is served",
                " stays Ok(",
                ", of the biased token: ",
                "not refused: ",
            ]
            .iter()
            .any(|words| line.contains(words)),
            // Each program's figures, by name.
            Self::Evaluation => {
                line.contains(" instead of ") && (line.contains(": lm_eval, ") || line.contains(": megatron_lm, "))
            }
            Self::CudaCompile => line.contains(", and must be at ") || line.contains(" in the table: "),
        };
        let messages = || output.lines().map(str::trim).filter(is_comparison);
        let is_said = |words: &String| messages().any(|message| message.contains(words));
        let message = messages().next().filter(|_| words.iter().all(is_said))?;
        // A rank that has lost the one that compared panics.
        let may_panic = self != Self::Operations;
        (may_panic || !output.contains("panicked")).then_some(message)
    }
}

/// Reads the list of the workspace at `root`.
pub fn read(root: &Path) -> Result<Vec<Fault>> {
    let path = root.join("tests/planted_faults/faults.json");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

impl Fault {
    /// The patch that plants it.
    pub fn patch(&self) -> &Patch {
        let Kind::Patch(patch) = &self.kind;
        patch
    }
}

impl Patch {
    /// Returns the file's text with the fault in it.
    ///
    /// # Errors
    /// When the text to replace does not occur exactly once.
    pub fn planted(&self, text: &str) -> Result<String> {
        let Self { file, from, to, .. } = self;
        let count = text.matches(from).count();
        ensure!(count == 1, "{from:?} occurs {count} times in {file}, expected once");
        ensure!(from != to, "nothing is changed in {file}");
        Ok(text.replace(from, to))
    }

    /// Whether the trial may turn red.
    pub fn reaches(&self, trial: &str) -> bool {
        self.reach.iter().any(|reach| trial.contains(reach))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn each_patch_has_one_place_and_reaches_its_trials() {
        let faults = read(root()).expect("the list");
        assert!(!faults.is_empty());
        for fault in &faults {
            let (patch, Fault { name, trials, .. }) = (fault.patch(), fault);
            let text = std::fs::read_to_string(root().join(&patch.file))
                .unwrap_or_else(|error| panic!("{name}: {}: {error}", patch.file));
            patch.planted(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            for trial in trials {
                assert!(patch.reaches(trial), "{name} does not reach {trial}");
            }
        }
    }

    #[test]
    fn each_fault_has_a_name_of_its_own_and_trials() {
        let faults = read(root()).expect("the list");
        for (number, fault) in faults.iter().enumerate() {
            assert!(!fault.trials.is_empty(), "no trial judges {}", fault.name);
            let others = &faults[number + 1..];
            assert!(
                others.iter().all(|other| other.name != fault.name),
                "{} is there twice",
                fault.name
            );
        }
    }
}
