//! A file of limits: what a layout's step may call at most, and what it should; and the memory that it may take.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Deserialize;

use crate::counts::{Class, Parts};
use crate::measure::Measured;
use crate::play::MemoryReport;

/// The exit code when a count exceeds its limit.
const EXCEEDED: u8 = 3;
/// Means of a few steps are rounded in files.
const ROUNDING: f64 = 0.01;

/// The limits of one setting.
#[derive(Deserialize)]
struct Budget {
    limits: Vec<Limit>,
    memory: Option<MemoryLimits>,
}

/// The most memory of the whole stage, in bytes.
#[derive(Deserialize)]
struct MemoryLimits {
    /// In use in CubeCL's pools.
    peak_used: u64,
    /// Given by the driver.
    peak_reserved: u64,
}

impl MemoryLimits {
    /// Returns which limits are exceeded, in words.
    fn exceeded(&self, memory: &MemoryReport) -> Vec<String> {
        let compared = [
            ("bytes in use at most", memory.peak_used, self.peak_used),
            ("bytes reserved at most", memory.peak_reserved, self.peak_reserved),
        ];
        let exceeded = compared.into_iter().filter(|(_, found, limit)| found > limit);
        let described = exceeded.map(|(what, found, limit)| format!("{what}: {found}, expected at most {limit}"));
        described.collect()
    }
}

/// The most calls of a class, per part of a step.
#[derive(Deserialize)]
struct Limit {
    per: String,
    class: String,
    /// What fails when it is exceeded.
    budget: f64,
    /// What is wanted, where that is less.
    target: Option<f64>,
}

/// Compares the counts with the limits of a file, and says which are exceeded.
///
/// # Errors
/// When the file cannot be read, names what is not counted, or limits what has not been measured.
pub fn check(path: &Path, measured: &Measured) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(path).with_context(|| format!("no budget at {}", path.display()))?;
    let budget: Budget = serde_json::from_str(&text).with_context(|| format!("{} is no budget", path.display()))?;
    let mut exceeded = Vec::new();
    if !budget.limits.is_empty() {
        let calls = measured.calls.as_ref();
        let calls =
            calls.with_context(|| format!("{} limits calls, which --only-memory leaves out", path.display()))?;
        exceeded = budget.exceeded(&calls.parts)?;
    }
    if let Some(limits) = &budget.memory {
        let whole = measured.whole.as_ref();
        let whole = whole.with_context(|| format!("{} limits memory, which --no-memory leaves out", path.display()))?;
        exceeded.extend(limits.exceeded(&whole.1));
    }
    exceeded.iter().for_each(|what| eprintln!("over budget: {what}"));
    eprintln!("{} limits are exceeded", exceeded.len());
    Ok(ExitCode::from(if exceeded.is_empty() { 0 } else { EXCEEDED }))
}

impl Budget {
    /// Returns which limits are exceeded, in words.
    fn exceeded(&self, parts: &Parts) -> anyhow::Result<Vec<String>> {
        let mut exceeded = Vec::new();
        for limit in &self.limits {
            let found = limit.found(parts)?;
            if found > limit.budget + ROUNDING {
                exceeded.push(limit.describe(found));
            }
        }
        Ok(exceeded)
    }
}

impl Limit {
    fn describe(&self, found: f64) -> String {
        let Self {
            per,
            class,
            budget,
            target,
        } = self;
        let target = target.map_or(String::new(), |target| format!(" (target {target})"));
        format!("{class} per {per}: {found:.2}, expected at most {budget}{target}")
    }

    fn found(&self, parts: &Parts) -> anyhow::Result<f64> {
        let named = parts.named();
        let part = named.iter().find(|(name, _)| *name == self.per);
        let class = Class::ALL.iter().find(|class| class.name == self.class);
        let unknown = || {
            let (parts, classes) = (named.map(|(name, _)| name), Class::ALL.map(|class| class.name));
            format!(
                "there is no limit of {:?} per {:?}: expected one of {classes:?} per one of {parts:?}",
                self.class, self.per
            )
        };
        let ((_, counts), class) = part.zip(class).with_context(unknown)?;
        Ok(counts.total(class).calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::{Count, Counts, Key};

    fn launches(calls: f64) -> Counts {
        let key = Key {
            kind: "launch".to_owned(),
            name: "add".to_owned(),
            thread: "main".to_owned(),
        };
        Counts::from(vec![(key, Count { calls, bytes: 0.0 })])
    }

    fn exceeded(budget: &str) -> anyhow::Result<Vec<String>> {
        let parts = Parts {
            per_layer_and_micro_batch: launches(30.0),
            per_micro_batch: launches(35.0),
            per_layer: launches(72.0),
            per_step: Counts::default(),
        };
        serde_json::from_str::<Budget>(budget)?.exceeded(&parts)
    }

    #[test]
    fn a_count_over_its_limit_is_named_and_one_at_it_is_not() {
        let exceeded = exceeded(
            r#"{"limits": [
                {"per": "layer and micro-batch", "class": "kernels", "budget": 30, "target": 18},
                {"per": "micro-batch", "class": "kernels", "budget": 34, "target": 20},
                {"per": "step", "class": "kernels", "budget": 0}
            ]}"#,
        );
        let expected = "kernels per micro-batch: 35.00, expected at most 34 (target 20)";
        assert_eq!(exceeded.expect("all are counted"), [expected]);
    }

    /// The files that are checked.
    const FILES: [&str; 2] = [
        include_str!("../../tests/devices/call_budget.json"),
        include_str!("../../tests/devices/call_budget_chunks.json"),
    ];

    #[test]
    fn each_limit_of_the_files_is_named_when_one_call_exceeds_it() {
        for file in FILES {
            let budget: Budget = serde_json::from_str(file).expect("a budget");
            assert!(!budget.limits.is_empty());
            let counts = |part: &str, more: usize| {
                let limits = budget.limits.iter().enumerate().filter(|(_, limit)| limit.per == part);
                let counts = limits.map(|(number, limit)| {
                    let class = Class::ALL.iter().find(|class| class.name == limit.class);
                    let calls = limit.budget + if number == more { 1.0 } else { 0.0 };
                    (class.expect("a class").example(), Count { calls, bytes: 0.0 })
                });
                Counts::from(counts.collect::<Vec<_>>())
            };
            let called = |more: usize| {
                let parts = Parts {
                    per_layer_and_micro_batch: counts("layer and micro-batch", more),
                    per_micro_batch: counts("micro-batch", more),
                    per_layer: counts("layer", more),
                    per_step: counts("step", more),
                };
                budget.exceeded(&parts).expect("all are counted")
            };
            assert_eq!(called(usize::MAX), [""; 0]);
            for (number, limit) in budget.limits.iter().enumerate() {
                let found = called(number);
                let expected = format!("{} per {}: ", limit.class, limit.per);
                assert!(
                    found.len() == 1 && found[0].starts_with(&expected),
                    "{expected}{found:?}"
                );
            }
        }
    }

    #[test]
    fn memory_over_its_limit_is_named() {
        let limits = MemoryLimits {
            peak_used: 5,
            peak_reserved: 6,
        };
        let memory = |peak_used, peak_reserved| MemoryReport {
            peak_used,
            peak_reserved,
            used_between_steps: 0,
            activations: 0,
            peak_pinned: 0,
        };
        assert!(limits.exceeded(&memory(5, 6)).is_empty());
        assert_eq!(
            limits.exceeded(&memory(5, 7)),
            ["bytes reserved at most: 7, expected at most 6"]
        );
        assert_eq!(limits.exceeded(&memory(6, 7)).len(), 2);
    }

    #[test]
    fn a_limit_of_what_is_not_counted_is_refused() {
        let error = exceeded(r#"{"limits": [{"per": "layer", "class": "kernel", "budget": 1}]}"#);
        let error = error.expect_err("there is no such class").to_string();
        assert!(error.contains("\"kernel\"") && error.contains("\"kernels\""), "{error}");
    }
}
