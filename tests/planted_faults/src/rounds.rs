//! Which faults are planted together.

use planted_faults::{Fault, Kind, Patch, Switch};

type Patched<'f> = (&'f Fault, &'f Patch);
type Switched<'f> = (&'f Fault, &'f Switch);

/// Parts the faults that are patches from those that are switches.
pub fn by_kind(faults: &[Fault]) -> (Vec<Patched<'_>>, Vec<Switched<'_>>) {
    let (mut patches, mut switches) = (Vec::new(), Vec::new());
    for fault in faults {
        match &fault.kind {
            Kind::Patch(patch) => patches.push((fault, patch)),
            Kind::Switch(switch) => switches.push((fault, switch)),
        }
    }
    (patches, switches)
}

/// Shares the patches out: of those in a round, none reaches the trials that another is judged by.
pub fn rounds(patches: Vec<Patched<'_>>) -> Vec<Vec<Patched<'_>>> {
    let mut rounds: Vec<Vec<Patched<'_>>> = Vec::new();
    for patch in patches {
        match rounds
            .iter_mut()
            .find(|round| round.iter().all(|other| are_apart(patch, *other)))
        {
            Some(round) => round.push(patch),
            None => rounds.push(vec![patch]),
        }
    }
    rounds
}

/// What a patch does to the trials of another test is not known.
fn are_apart(one: Patched<'_>, other: Patched<'_>) -> bool {
    let reaches =
        |(_, patch): Patched<'_>, (fault, _): Patched<'_>| fault.trials.iter().any(|trial| patch.reaches(trial));
    one.0.test == other.0.test && !reaches(one, other) && !reaches(other, one)
}

#[cfg(test)]
mod tests {
    use planted_faults::Test;

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

    #[test]
    fn faults_that_reach_each_others_trials_are_planted_apart() {
        let faults = [
            fault("softmax", Test::Operations, "softmax"),
            fault("norm", Test::Operations, "norm"),
            fault("add_norm", Test::Operations, "add_norm"),
            fault("bias", Test::Parity, "bias"),
        ];
        let rounds = rounds(by_kind(&faults).0);
        let names = |round: &Vec<(&Fault, &Patch)>| round.iter().map(|(fault, _)| fault.name.clone()).collect();
        let names: Vec<Vec<String>> = rounds.iter().map(names).collect();
        assert_eq!(names, [vec!["softmax", "norm"], vec!["add_norm"], vec!["bias"]]);
    }
}
