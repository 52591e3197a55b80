//! The most probable of several endings: [`ask`], and what its sequences' scores come to.

use anyhow::Context as _;

use super::data::{Line, Question};
use super::encoding::Encoder;
use super::figures::{Family, Figure, Program};
use super::sequence::{Asked, Score};

/// A question's choices as they are judged.
struct Choices {
    gold: Vec<usize>,
    /// Their lengths in bytes, and in characters.
    lengths: Vec<[usize; 2]>,
}

/// Returns a sequence for each choice of each question: the context, the delimiter and the choice, of which delimiter
/// and choice are predicted.
///
/// # Errors
/// When a part of a text has no token, or a choice more than the model sees, naming the line.
pub(super) fn ask(questions: &[Line<Question>], delimiter: &str, encoder: &Encoder) -> anyhow::Result<Asked> {
    let (mut sequences, mut all, mut num_truncated) = (Vec::new(), Vec::new(), 0);
    for Line { number, item } in questions {
        let mut is_truncated = false;
        for (choice, text) in item.choices.iter().enumerate() {
            let encoded = encoder.pair(&item.context, &continuation(&item.context, delimiter, text));
            let encoded = encoded.with_context(|| format!("line {number}: choice {choice}"))?;
            is_truncated |= encoded.is_truncated;
            sequences.push(encoded.sequence);
        }
        num_truncated += usize::from(is_truncated);
        all.push(Choices {
            gold: item.gold.clone(),
            lengths: (item.choices.iter().map(|text| [text.len(), text.chars().count()])).collect(),
        });
    }
    Ok(Asked {
        num_items: questions.len(),
        num_truncated,
        sequences,
        judge: Box::new(move |scores| vec![judge(&all, scores)]),
    })
}

/// A choice after the delimiter; without it where it is white space and some is there already.
fn continuation(context: &str, delimiter: &str, choice: &str) -> String {
    let is_there = choice.starts_with(char::is_whitespace) || context.ends_with(char::is_whitespace);
    let delimiter = if is_there && delimiter.trim().is_empty() {
        ""
    } else {
        delimiter
    };
    [delimiter, choice].concat()
}

/// The parts of questions whose right choice is the most probable one; with log-probabilities divided by the lengths of
/// the choices, in bytes, and in characters as lm-evaluation-harness's code counts them.
fn judge(all: &[Choices], scores: &[Score]) -> Family {
    let mut right = [0; 3];
    let mut rest = scores;
    for choices in all {
        let (own, others) = rest.split_at(choices.lengths.len());
        rest = others;
        let divided = |divisor: fn(&[usize; 2]) -> usize| {
            let pairs = own.iter().zip(&choices.lengths);
            pairs.map(move |(score, lengths)| score.log_probability / divisor(lengths) as f64)
        };
        let chosen = [
            first_of_highest(divided(|_| 1)),
            first_of_highest(divided(|[bytes, _]| *bytes)),
            first_of_highest(divided(|[_, characters]| *characters)),
        ];
        for (count, chosen) in right.iter_mut().zip(chosen) {
            *count += usize::from(choices.gold.contains(&chosen));
        }
    }
    let names = ["acc", "acc_norm", "acc_norm_characters"];
    let accuracies = names.into_iter().zip(right);
    Family {
        program: Program::LmEval,
        figures: accuracies
            .map(|(name, right)| Figure::accuracy(name, right, all.len()))
            .collect(),
    }
}

fn first_of_highest(values: impl Iterator<Item = f64>) -> usize {
    let highest = values
        .enumerate()
        .reduce(|highest, value| if value.1 > highest.1 { value } else { highest });
    highest.map_or(0, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(log_probabilities: &[f64]) -> Vec<Score> {
        let score = |log_probability: &f64| Score {
            log_probability: *log_probability,
            is_greedy: false,
        };
        log_probabilities.iter().map(score).collect()
    }

    #[test]
    fn white_space_before_a_choice_is_not_doubled() {
        let found = [("a", "b"), ("a", " b"), ("a ", "b"), ("a\n", "b"), ("", "b")]
            .map(|(context, choice)| continuation(context, " ", choice));
        assert_eq!(found, [" b", " b", "b", "b", " b"]);
        assert_eq!(
            [continuation("a", "", "b"), continuation("a ", ":", " b")],
            ["b", ": b"]
        );
    }

    #[test]
    fn choices_are_judged_by_probability_and_by_that_of_a_byte() {
        let questions = [
            // By itself the first is the most probable, by bytes the second, by characters the third.
            Choices {
                gold: vec![1],
                lengths: vec![[1, 1], [8, 4], [6, 6]],
            },
            // Of equals the first is taken.
            Choices {
                gold: vec![0],
                lengths: vec![[2, 2], [2, 2]],
            },
        ];
        let family = judge(&questions, &scores(&[-3.0, -4.0, -3.6, -1.0, -1.0]));
        assert_eq!(
            family.figures,
            [
                Figure::accuracy("acc", 1, 2),
                Figure::accuracy("acc_norm", 2, 2),
                Figure::accuracy("acc_norm_characters", 1, 2),
            ]
        );
    }
}
