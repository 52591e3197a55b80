//! A file of limits: what a layout's step may call at most, and what it should.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Deserialize;

use crate::counts::{Class, Parts};

/// The exit code when a count exceeds its limit.
const EXCEEDED: u8 = 3;
/// Means of a few steps are rounded in files.
const ROUNDING: f64 = 0.01;

/// The limits of one setting.
#[derive(Deserialize)]
struct Budget {
    limits: Vec<Limit>,
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
/// When the file cannot be read, or names what is not counted.
pub fn check(path: &Path, parts: &Parts) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(path).with_context(|| format!("no budget at {}", path.display()))?;
    let budget: Budget = serde_json::from_str(&text).with_context(|| format!("{} is no budget", path.display()))?;
    let exceeded = budget.exceeded(parts)?;
    exceeded.iter().for_each(|what| eprintln!("over budget: {what}"));
    eprintln!("{} of {} limits are exceeded", exceeded.len(), budget.limits.len());
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

    #[test]
    fn a_limit_of_what_is_not_counted_is_refused() {
        let error = exceeded(r#"{"limits": [{"per": "layer", "class": "kernel", "budget": 1}]}"#);
        let error = error.expect_err("there is no such class").to_string();
        assert!(error.contains("\"kernel\"") && error.contains("\"kernels\""), "{error}");
    }
}
