//! Ranks, as people read thousands of them: [`RankSet`] and [`listed_ranks`].

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::limits::MAX_WORLD_SIZE;

/// Runs that are written; what follows is counted.
const SHOWN_RUNS: usize = 16;
/// Ranks of a group that are written before they are only counted.
const LISTED_RANKS: usize = 16;

/// Some of the ranks of a job. Read from a list such as `0,8-15`; written as `0, 8-15`, cut short when the list is
/// long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSet(BTreeSet<usize>);

impl RankSet {
    /// Returns whether a rank is among them.
    pub fn contains(&self, rank: usize) -> bool {
        self.0.contains(&rank)
    }

    /// Returns the ranks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Returns the highest of them.
    pub fn last(&self) -> Option<usize> {
        self.0.last().copied()
    }

    /// Returns `rank 3`, or `ranks 0-3, 7`.
    pub(crate) fn named(&self) -> String {
        let noun = if self.0.len() == 1 { "rank" } else { "ranks" };
        format!("{noun} {self}")
    }
}

impl FromIterator<usize> for RankSet {
    fn from_iter<I: IntoIterator<Item = usize>>(ranks: I) -> Self {
        Self(ranks.into_iter().collect())
    }
}

impl<'a> FromIterator<&'a usize> for RankSet {
    fn from_iter<I: IntoIterator<Item = &'a usize>>(ranks: I) -> Self {
        ranks.into_iter().copied().collect()
    }
}

impl FromStr for RankSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let last = MAX_WORLD_SIZE - 1;
        let numbers = numbers_of(text, last);
        numbers
            .filter(|ranks| !ranks.is_empty())
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no list of ranks, such as 0 or 0,8-15, with numbers up to {last}"))
    }
}

impl fmt::Display for RankSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = runs_of(self.0.iter().copied());
        for (place, &(first, last)) in runs.iter().take(SHOWN_RUNS).enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            match last - first {
                0 => write!(formatter, "{comma}{first}")?,
                1 => write!(formatter, "{comma}{first}, {last}")?,
                _ => write!(formatter, "{comma}{first}-{last}")?,
            }
        }
        if runs.len() > SHOWN_RUNS {
            write!(formatter, ", ... ({} ranks)", self.0.len())?;
        }
        Ok(())
    }
}

/// Returns the texts, in the order in which they first come, each with the ranks that it is said of.
pub(crate) fn ranks_by_text(said: impl Iterator<Item = (usize, String)>) -> Vec<(String, RankSet)> {
    let mut texts: Vec<(String, RankSet)> = Vec::new();
    for (rank, text) in said {
        match texts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => drop(ranks.0.insert(rank)),
            None => texts.push((text, [rank].iter().collect())),
        }
    }
    texts
}

/// Returns the ranks of a group as messages show them: `[0, 1]`, and of many `[0, 1, …, 63] (64 ranks)`.
pub fn listed_ranks(ranks: &[usize]) -> String {
    match ranks {
        [first, second, .., last] if ranks.len() > LISTED_RANKS => {
            format!("[{first}, {second}, …, {last}] ({} ranks)", ranks.len())
        }
        _ => format!("{ranks:?}"),
    }
}

/// The numbers of a list such as `0-7,64`, if it is one and none is above `max`.
pub(crate) fn numbers_of(text: &str, max: usize) -> Option<BTreeSet<usize>> {
    let number = |text: &str| text.trim().parse().ok().filter(|&number: &usize| number <= max);
    let mut numbers = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// First and last of each run of ascending numbers that follow each other.
pub(crate) fn runs_of(numbers: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_in_runs() {
        let cases: [(&[usize], &str); 4] = [
            (&[3], "rank 3"),
            (&[1, 0], "ranks 0, 1"),
            (&[2, 0, 1, 7], "ranks 0-2, 7"),
            (&[0, 2, 3, 5, 6, 7], "ranks 0, 2, 3, 5-7"),
        ];
        for (ranks, named) in cases {
            assert_eq!(ranks.iter().collect::<RankSet>().named(), named);
        }
        let every_second: RankSet = (0..100).step_by(2).collect();
        assert!(
            every_second.to_string().ends_with("28, 30, ... (50 ranks)"),
            "{every_second}"
        );
    }

    #[test]
    fn lists_are_read() {
        let read = |text: &str| text.parse::<RankSet>().map(|ranks| ranks.to_string());
        assert_eq!(read("0,8-15"), Ok("0, 8-15".to_owned()));
        assert_eq!(read("5, 1-3,2"), Ok("1-3, 5".to_owned()));
        let too_many = format!("0-{MAX_WORLD_SIZE}");
        for text in ["", "a", "3-", "5-3", "-1", &too_many] {
            let error = read(text).expect_err("no list");
            let rule = format!("{text:?} is no list of ranks, such as 0 or 0,8-15, with numbers up to ");
            assert_eq!(error, format!("{rule}{}", MAX_WORLD_SIZE - 1));
        }
        let ranks: RankSet = "0,8-15".parse().expect("a list");
        assert!(ranks.contains(9) && !ranks.contains(7));
        assert_eq!(ranks.last(), Some(15));
    }
}
