//! Subjects in turn, the ratios of their rounds; flags that say how often and how long.

use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use examples::figures::median;

use crate::table::Row;

/// Measures each subject once in each round, and returns the rounds of each. No subject always comes after the same
/// one: every round begins with another.
///
/// `measure` takes the round, from 1, and the subject, from 0.
///
/// # Errors
/// The first of `measure`.
pub fn in_turn(
    rounds: usize,
    subjects: usize,
    mut measure: impl FnMut(usize, usize) -> anyhow::Result<Row>,
) -> anyhow::Result<Vec<Vec<Row>>> {
    let mut all = vec![Vec::new(); subjects];
    for round in 0..rounds {
        for turn in 0..subjects {
            let subject = (round + turn) % subjects;
            all[subject].push(measure(round + 1, subject)?);
        }
    }
    Ok(all)
}

/// Returns the median over rounds of a figure's ratio to that of `reference` in the same round: machines drift. NaN if
/// no round has both.
pub fn ratio(own: &[Row], reference: &[Row], figure: &str) -> f64 {
    let pairs = own.iter().zip(reference);
    let ratios = pairs.map(|(own, reference)| own.value(figure) / reference.value(figure));
    median(ratios.filter(|ratio| !ratio.is_nan()).collect())
}

/// Parser of a flag's number, which is at least 1.
pub fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// Reads a flag's time in seconds, which is at most a day.
///
/// # Errors
/// When it is none.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let value = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    let fits = value > 0.0 && value <= 86400.0;
    fits.then(|| Duration::from_secs_f64(value))
        .ok_or("must be above 0 and at most 86400".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_within_rounds() {
        // The machine was slower by ten in the second round.
        let rows = |seconds: [f64; 3]| seconds.map(|seconds| Row::default().seconds("step", seconds));
        let (ours, theirs) = (rows([0.1, 1.0, 0.3]), rows([0.2, 2.0, 0.4]));
        assert_eq!(ratio(&ours, &theirs, "step"), 0.5);
        assert!(ratio(&ours, &[], "step").is_nan());
    }

    #[test]
    fn every_round_begins_with_another_subject() {
        let mut order = Vec::new();
        let rounds = in_turn(2, 2, |round, subject| {
            order.push(subject);
            Ok(Row::default().number("round", round as f64))
        });
        assert_eq!(order, [0, 1, 1, 0]);
        assert_eq!(rounds.expect("measured")[1][1].value("round"), 2.0);
    }
}
