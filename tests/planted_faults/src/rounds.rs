//! Which faults are planted together.

use anyhow::{Context, Result, ensure};
use planted_faults::Fault;

/// Faults that are planted in one build.
pub type Round<'f> = Vec<&'f Fault>;

/// Shares faults out: of those in a round, none reaches the trials that another is judged by. Rounds of one test are
/// next to each other.
pub fn rounds(faults: &[Fault]) -> Vec<Round<'_>> {
    let mut rounds: Vec<Round<'_>> = Vec::new();
    for fault in faults {
        match rounds
            .iter_mut()
            .find(|round| round.iter().all(|other| are_apart(fault, other)))
        {
            Some(round) => round.push(fault),
            None => rounds.push(vec![fault]),
        }
    }
    rounds.sort_by_key(|round| round[0].test);
    rounds
}

/// Returns the rounds of a shard, written `1/4`: the first of four.
pub fn shard<'f>(rounds: &[Round<'f>], shard: &str) -> Result<Vec<Round<'f>>> {
    let numbers = shard.split_once('/');
    let numbers = numbers.and_then(|(number, count)| Some((number.parse::<usize>().ok()?, count.parse().ok()?)));
    let (number, count) = numbers.with_context(|| format!("a shard is written 1/4, got {shard:?}"))?;
    ensure!((1..=count).contains(&number), "there is no shard {shard}");
    let start = |number: usize| rounds.len() * number / count;
    Ok(rounds[start(number - 1)..start(number)].to_vec())
}

/// What a patch does to the trials of another test is not known.
fn are_apart(one: &Fault, other: &Fault) -> bool {
    let reaches = |one: &Fault, other: &Fault| other.trials.iter().any(|trial| one.patch().reaches(trial));
    one.test == other.test && !reaches(one, other) && !reaches(other, one)
}

#[cfg(test)]
mod tests {
    use planted_faults::{Kind, Patch, Test};

    use super::*;

    fn fault(name: &str, test: Test, reach: &str) -> Fault {
        Fault {
            name: name.to_owned(),
            kind: Kind::Patch(Patch {
                file: "lib.rs".to_owned(),
                from: "1".to_owned(),
                to: "2".to_owned(),
                reach: vec![reach.to_owned()],
            }),
            test,
            trials: vec![format!("{name}_matches")],
            words: Vec::new(),
        }
    }

    fn faults() -> [Fault; 4] {
        [
            fault("softmax", Test::Operations, "softmax"),
            fault("bias", Test::Parity, "bias"),
            fault("norm", Test::Operations, "norm"),
            fault("add_norm", Test::Operations, "add_norm"),
        ]
    }

    fn names<'f>(rounds: &[Round<'f>]) -> Vec<Vec<&'f str>> {
        let names = rounds
            .iter()
            .map(|round| round.iter().map(|fault| &fault.name[..]).collect());
        names.collect()
    }

    #[test]
    fn faults_that_reach_each_others_trials_are_planted_apart() {
        let faults = faults();
        let expected = [vec!["softmax", "norm"], vec!["add_norm"], vec!["bias"]];
        assert_eq!(names(&rounds(&faults)), expected);
    }

    #[test]
    fn shards_have_every_round_once() {
        let faults = faults();
        let rounds = rounds(&faults);
        for count in 1..=4 {
            let shards = (1..=count).flat_map(|number| shard(&rounds, &format!("{number}/{count}")).expect("a shard"));
            assert_eq!(names(&shards.collect::<Vec<_>>()), names(&rounds), "{count} shards");
        }
        for wrong in ["0/4", "5/4", "1/0", "1", "one/4"] {
            assert!(shard(&rounds, wrong).is_err(), "{wrong}");
        }
    }
}
