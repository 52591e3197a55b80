//! Which faults are planted together.

use planted_faults::Fault;

/// Faults that are planted in one build.
pub type Round<'f> = Vec<&'f Fault>;

/// Shares faults out: of those in a round, none reaches the trials that another is judged by.
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
    rounds
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
}
