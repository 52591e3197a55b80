//! Perplexity of a text: [`ask`], and what its sequences' scores come to.

use std::f64::consts::LN_2;
use std::sync::{Arc, LazyLock};

use anyhow::ensure;
use regex::Regex;

use super::detokenizer::{WHITE_SPACE, detokenize};
use super::encoding::Encoder;
use super::figures::{Family, Figure, Program};
use super::sequence::{Asked, Score, Sequence};
use super::windows::{overlapping, rolling};

static SPACES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!("{WHITE_SPACE}+")).expect("the pattern is valid"));

/// Returns the windows of both programs over a text: Megatron-LM's over all of it, which advance by `advance` tokens,
/// then lm-evaluation-harness's over each of its pages.
///
/// # Errors
/// When the text has fewer than two words or tokens, or a part of it has no token; when the tokenizer has no token that
/// begins texts, nor one that ends documents.
pub(super) fn ask(text: &str, advance: usize, encoder: &Encoder) -> anyhow::Result<Asked> {
    let tokens: Arc<[u32]> = encoder.tokens(&detokenize(text))?.into();
    let sizes = TextSizes {
        original_tokens: original_tokens(text),
        tokenized_tokens: tokens.len(),
    };
    ensure!(
        sizes.original_tokens > 1 && sizes.tokenized_tokens > 1,
        "a text of two words and two tokens at least is needed, got {} and {}",
        sizes.original_tokens,
        sizes.tokenized_tokens
    );
    let mut sequences = overlapping(&tokens, encoder.seq_length, advance);
    let num_overlapping = sequences.len();
    let pages = pages(text);
    let page_sizes = PageSizes {
        pages: pages.len(),
        words: pages.iter().map(|page| words(page)).sum(),
        bytes: pages.iter().map(String::len).sum(),
    };
    for page in &pages {
        sequences.extend(page_windows(page, encoder)?);
    }
    let judge = move |scores: &[Score]| {
        let (of_text, of_pages) = scores.split_at(num_overlapping);
        vec![sizes.figures(sum(of_text)), page_sizes.figures(sum(of_pages))]
    };
    Ok(Asked {
        num_items: pages.len(),
        num_truncated: 0,
        sequences,
        judge: Box::new(judge),
    })
}

fn page_windows(page: &str, encoder: &Encoder) -> anyhow::Result<Vec<Sequence>> {
    Ok(rolling(&encoder.page(&detokenize(page))?.into(), encoder.seq_length))
}

fn sum(scores: &[Score]) -> f64 {
    scores.iter().map(|score| score.log_probability).sum()
}

/// What Megatron-LM divides by.
#[derive(Clone, Copy, Debug)]
struct TextSizes {
    original_tokens: usize,
    tokenized_tokens: usize,
}

impl TextSizes {
    /// `loss = −Σ log p / (tokenized − 1)`, `ppl = exp(loss)`, and per word of the text before it was detokenized
    /// `adjusted_ppl = exp(loss · (tokenized − 1) / (original − 1))`. Megatron-LM cuts exponents off at 20.
    fn figures(&self, log_probability: f64) -> Family {
        let loss = -log_probability / (self.tokenized_tokens - 1) as f64;
        let ratio = (self.tokenized_tokens - 1) as f64 / (self.original_tokens - 1) as f64;
        Family {
            program: Program::MegatronLm,
            figures: vec![
                Figure::real("avg_loss", loss),
                Figure::real("ppl", loss.exp()),
                Figure::real("adjusted_ppl", (loss * ratio).exp()),
                Figure::real("token_ratio", ratio),
                Figure::count("num_original_tokens", self.original_tokens),
                Figure::count("num_tokenized_tokens", self.tokenized_tokens),
            ],
        }
    }
}

/// What lm-evaluation-harness divides by: words and bytes before the text was detokenized.
#[derive(Clone, Copy, Debug)]
struct PageSizes {
    pages: usize,
    words: usize,
    bytes: usize,
}

impl PageSizes {
    fn figures(&self, log_probability: f64) -> Family {
        let of_bytes = -log_probability / self.bytes as f64;
        Family {
            program: Program::LmEval,
            figures: vec![
                Figure::real("word_perplexity", (-log_probability / self.words as f64).exp()),
                Figure::real("byte_perplexity", of_bytes.exp()),
                Figure::real("bits_per_byte", of_bytes / LN_2),
                Figure::count("num_pages", self.pages),
                Figure::count("num_words", self.words),
                Figure::count("num_bytes", self.bytes),
            ],
        }
    }
}

/// What Megatron-LM counts: what stands between single spaces, line breaks not among them.
fn original_tokens(text: &str) -> usize {
    let is_space = |c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c);
    text.trim_matches(is_space).split(' ').count()
}

/// What lm-evaluation-harness counts: what stands between runs of white space, also the empty text before the first and
/// after the last one.
fn words(page: &str) -> usize {
    SPACES.find_iter(page).count() + 1
}

/// The pages of a text: each begins at a line ` = Title = `, not at ` = = Section = = `.
fn pages(text: &str) -> Vec<String> {
    let mut pages = vec![Vec::new()];
    for line in text.split('\n') {
        let page = pages.last_mut().expect("there is one");
        if is_title(line) {
            if page.iter().all(|line: &&str| line.trim().is_empty()) {
                page.clear();
            } else {
                pages.push(Vec::new());
            }
        }
        pages.last_mut().expect("there is one").push(line);
    }
    pages.into_iter().map(|lines| lines.join("\n")).collect()
}

fn is_title(line: &str) -> bool {
    let line = line.replace("= = =", "===").replace("= =", "==");
    let line = line.trim();
    line.starts_with("= ") && line.ends_with(" =")
}

#[cfg(test)]
mod tests {
    use super::super::figures::FigureValue;
    use super::*;

    #[test]
    fn pages_begin_at_titles_and_not_at_sections() {
        let text = " \n = First = \n \n a b \n = = Section = = \n c \n = Second = \n d \n = = = Third = = = \n";
        assert_eq!(
            pages(text),
            [
                " = First = \n \n a b \n = = Section = = \n c ",
                " = Second = \n d \n = = = Third = = = \n",
            ]
        );
        assert_eq!(pages("no title\n"), ["no title\n"]);
    }

    /// `len(text.strip().split(" "))` and `len(re.split(r"\s+", page))` in Python.
    #[test]
    fn words_are_counted_as_the_programs_count_them() {
        assert_eq!(original_tokens(" = First = \n \n a b  c\n"), 9);
        assert_eq!(words(" = First = \n \n a b  c\n"), 8);
        assert_eq!(words("a\u{1f}b c"), 3);
        assert_eq!([original_tokens("a\nb"), words("a\nb")], [1, 2]);
    }

    #[test]
    fn figures_are_those_of_the_published_definitions() {
        let value = |family: &Family, name: &str| {
            let found = family.figures.iter().find(|figure| figure.name == name);
            match found.expect("the figure").value {
                FigureValue::Real(value) => value,
                FigureValue::Count(count) => count as f64,
            }
        };
        let sizes = TextSizes {
            original_tokens: 5,
            tokenized_tokens: 11,
        };
        let family = sizes.figures(-20.0);
        assert_eq!(value(&family, "avg_loss"), 2.0);
        assert_eq!(value(&family, "ppl"), 2_f64.exp());
        assert_eq!(value(&family, "token_ratio"), 2.5);
        assert_eq!(value(&family, "adjusted_ppl"), 5_f64.exp());
        let sizes = PageSizes {
            pages: 1,
            words: 5,
            bytes: 40,
        };
        let family = sizes.figures(-20.0);
        assert_eq!(value(&family, "word_perplexity"), 4_f64.exp());
        assert_eq!(value(&family, "byte_perplexity"), 0.5_f64.exp());
        assert_eq!(value(&family, "bits_per_byte"), 0.5 / LN_2);
    }
}
