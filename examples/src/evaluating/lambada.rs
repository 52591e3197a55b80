//! The last word of passages: [`ask`], and what its sequences' scores come to.

use anyhow::Context as _;

use super::data::{Line, Passage};
use super::encoding::{Encoded, Encoder};
use super::figures::{Family, Figure, Program};
use super::sequence::{Asked, Score};

/// Returns two sequences for each passage: its last word as lm-evaluation-harness cuts it off, and what Megatron-LM
/// predicts.
///
/// # Errors
/// When a part of a passage has no token, or its last word more than the model sees, naming its line.
pub(super) fn ask(passages: &[Line<Passage>], is_strict: bool, encoder: &Encoder) -> anyhow::Result<Asked> {
    let (mut sequences, mut num_truncated) = (Vec::new(), 0);
    for Line { number, item } in passages {
        let at_line = || format!("line {number}");
        let whole = last_word(item, encoder).with_context(at_line)?;
        let of_megatron = if is_strict {
            strict(item, encoder)
        } else {
            last_token(item, encoder)
        };
        let of_megatron = of_megatron.with_context(at_line)?;
        num_truncated += usize::from(whole.is_truncated || of_megatron.is_truncated);
        sequences.extend([whole.sequence, of_megatron.sequence]);
    }
    Ok(Asked {
        num_items: passages.len(),
        num_truncated,
        sequences,
        judge: Box::new(judge),
    })
}

/// lm-evaluation-harness: all tokens of the last word and the space before it.
fn last_word(passage: &Passage, encoder: &Encoder) -> anyhow::Result<Encoded> {
    let (context, word) = passage.split().context("a passage has two words")?;
    encoder.pair(context, &format!(" {word}"))
}

/// Megatron-LM with `--strict-lambada`: the last word and a space before it, tokenized by themselves.
fn strict(passage: &Passage, encoder: &Encoder) -> anyhow::Result<Encoded> {
    let word = passage
        .text
        .split_whitespace()
        .next_back()
        .context("a passage has a word")?;
    let start = passage.text.rfind(word).context("a word of the passage")?;
    let context = encoder.tokens(passage.text[..start].trim())?;
    encoder.continuation(context, encoder.tokens(&format!(" {word}"))?)
}

/// Megatron-LM: the last token.
fn last_token(passage: &Passage, encoder: &Encoder) -> anyhow::Result<Encoded> {
    let mut tokens = encoder.tokens(&passage.text)?;
    let last = tokens.pop().into_iter().collect();
    encoder.continuation(tokens, last)
}

/// Accuracy is the part of passages all of whose tokens are the most probable ones; perplexity `exp(−Σ log p / n)` over
/// the `n` passages.
fn judge(scores: &[Score]) -> Vec<Family> {
    let pairs = scores.chunks_exact(2);
    let all = pairs.len();
    let right = |which: usize| pairs.clone().filter(|pair| pair[which].is_greedy).count();
    let log_probability: f64 = pairs.clone().map(|pair| pair[0].log_probability).sum();
    let of_megatron = Figure::accuracy("avg_accuracy", right(1), all);
    vec![
        Family {
            program: Program::MegatronLm,
            figures: vec![
                of_megatron,
                Figure::count("number_correct", right(1)),
                Figure::count("total_examples", all),
            ],
        },
        Family {
            program: Program::LmEval,
            figures: vec![
                Figure::accuracy("acc", right(0), all),
                Figure::real("perplexity", (-log_probability / all as f64).exp()),
            ],
        },
    ]
}

#[cfg(test)]
mod tests {
    use burn_megatron_data::tokenizer::ByteTokenizer;

    use super::super::sequence::Sequence;
    use super::*;

    fn encoder() -> Encoder<'static> {
        Encoder::new(&ByteTokenizer, 100)
    }

    /// The texts before and of what is predicted.
    fn texts(sequence: &Sequence) -> [String; 2] {
        let all = [&sequence.inputs()[..1], sequence.targets()].concat();
        let bytes: Vec<u8> = all.iter().map(|token| *token as u8).collect();
        let text = String::from_utf8(bytes).expect("text");
        let (before, after) = text.split_at(text.len() - sequence.num_scored());
        [before.to_owned(), after.to_owned()]
    }

    #[test]
    fn a_passage_is_cut_as_each_program_cuts_it() -> anyhow::Result<()> {
        let passages = [Line {
            number: 1,
            item: Passage {
                text: "he saw  the sea".to_owned(),
            },
        }];
        for (is_strict, of_megatron) in [(false, ["he saw  the se", "a"]), (true, ["he saw  the", " sea"])] {
            let asked = ask(&passages, is_strict, &encoder())?;
            assert_eq!(texts(&asked.sequences[0]), ["he saw  the", " sea"]);
            assert_eq!(texts(&asked.sequences[1]), of_megatron);
        }
        Ok(())
    }

    #[test]
    fn perplexity_is_over_passages_and_not_over_tokens() {
        let score = |log_probability, is_greedy| Score {
            log_probability,
            is_greedy,
        };
        let scores = [
            score(-1.0, true),
            score(0.0, false),
            score(-3.0, false),
            score(0.0, false),
        ];
        let [of_megatron, of_harness] = &judge(&scores)[..] else {
            panic!("two programs");
        };
        assert_eq!(of_megatron.figures[0], Figure::accuracy("avg_accuracy", 0, 2));
        assert_eq!(of_harness.figures[0], Figure::accuracy("acc", 1, 2));
        assert_eq!(of_harness.figures[1], Figure::real("perplexity", 2_f64.exp()));
    }
}
