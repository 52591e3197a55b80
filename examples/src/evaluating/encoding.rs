//! [`Encoder`]: texts to sequences that the model has positions for.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use burn_megatron_data::tokenizer::Tokenizer;

use super::sequence::Sequence;

/// Turns texts into sequences of at most `seq_length` tokens and one more, which is predicted only.
pub(super) struct Encoder<'a> {
    tokenizer: &'a dyn Tokenizer,
    /// The most tokens that the model sees.
    pub(super) seq_length: usize,
    /// Before texts in lm-evaluation-harness: what the tokenizer itself adds.
    begin: Vec<u32>,
}

/// A sequence, and whether its beginning was left out.
pub(super) struct Encoded {
    pub(super) sequence: Sequence,
    pub(super) is_truncated: bool,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(tokenizer: &'a dyn Tokenizer, seq_length: usize) -> Self {
        let (mut text, mut prompt) = (Vec::new(), Vec::new());
        tokenizer.encode("a", &mut text);
        tokenizer.encode_prompt("a", &mut prompt);
        let begin = (0..prompt.len()).find(|&place| !text.is_empty() && prompt[place..].starts_with(&text));
        prompt.truncate(begin.unwrap_or(0));
        Self {
            tokenizer,
            seq_length,
            begin: prompt,
        }
    }

    /// The tokens of a text, without any that begins or ends it.
    ///
    /// # Errors
    /// When a part of it has no token.
    pub(super) fn tokens(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        let mut tokens = Vec::new();
        self.tokenizer.try_encode(text, &mut tokens)?;
        Ok(tokens)
    }

    /// The tokens of a text as lm-evaluation-harness has them: after those that the tokenizer itself adds, if the text
    /// does not begin with them.
    ///
    /// # Errors
    /// When a part of it has no token.
    fn begun_tokens(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        let tokens = self.tokens(text)?;
        if tokens.starts_with(&self.begin) {
            return Ok(tokens);
        }
        Ok([&*self.begin, &*tokens].concat())
    }

    /// The tokens of a page, which are all predicted, after one that is not: lm-evaluation-harness's prefix token.
    ///
    /// # Errors
    /// When a part of it has no token, or there is no such token.
    pub(super) fn page(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        Ok([vec![self.prefix()?], self.begun_tokens(text)?].concat())
    }

    /// A text and what follows it, as lm-evaluation-harness cuts them: white space at the end of the context belongs to
    /// the continuation; of the whole text's tokens the continuation has those after the first `n`, where `n` is what
    /// the context has by itself. Before a continuation without a context is the prefix token, if it does not begin
    /// with it.
    pub(super) fn pair(&self, context: &str, continuation: &str) -> anyhow::Result<Encoded> {
        let before = context.trim_end();
        let text = [context, continuation].concat();
        if before.is_empty() {
            let (prefix, mut tokens) = (self.prefix()?, self.tokens(&text)?);
            if tokens.first() == Some(&prefix) {
                tokens.remove(0);
            }
            return self.continuation(vec![prefix], tokens);
        }
        let mut tokens = self.begun_tokens(&text)?;
        let context = self.begun_tokens(before)?;
        ensure!(
            context.len() < tokens.len(),
            "\"{continuation}\" adds no token to the {} before it",
            context.len()
        );
        let continuation = tokens.split_off(context.len());
        self.continuation(context, continuation)
    }

    /// lm-evaluation-harness's prefix token: the one that begins texts, if the vocabulary has it, else the one that
    /// ends documents.
    fn prefix(&self) -> anyhow::Result<u32> {
        let is_special = |token: &u32| self.tokenizer.special_tokens().binary_search(token).is_ok();
        let begin = self.tokenizer.token_roles().bos.filter(is_special);
        begin.map_or_else(|| self.end_of_document(), Ok)
    }

    /// Tokens and those that follow them. What the model has no positions for is left out at the beginning; no context
    /// at all is the token that ends documents.
    ///
    /// # Errors
    /// When nothing follows, or more than the model sees, or there is no such token.
    pub(super) fn continuation(&self, context: Vec<u32>, continuation: Vec<u32>) -> anyhow::Result<Encoded> {
        let num_scored = continuation.len();
        ensure!(
            (1..=self.seq_length).contains(&num_scored),
            "what is predicted must have between 1 and {} tokens, got {num_scored}",
            self.seq_length
        );
        let mut tokens = if context.is_empty() {
            vec![self.end_of_document()?]
        } else {
            context
        };
        tokens.extend(continuation);
        // The last token is predicted only.
        let left_out = tokens.len().saturating_sub(self.seq_length + 1);
        let tokens: Arc<[u32]> = tokens[left_out..].into();
        Ok(Encoded {
            sequence: Sequence::new(&tokens, 0..tokens.len(), num_scored),
            is_truncated: left_out > 0,
        })
    }

    fn end_of_document(&self) -> anyhow::Result<u32> {
        let token = self.tokenizer.end_of_document();
        token.context(
            "nothing is before what is predicted, and the tokenizer has no token that begins texts or ends documents",
        )
    }
}

#[cfg(test)]
mod tests {
    use burn_megatron_data::tokenizer::{HuggingFaceTokenizer, NullTokenizer};
    use serde_json::json;

    use super::*;

    fn encoded(context: &str, continuation: &str) -> anyhow::Result<(Vec<u32>, usize, bool)> {
        let tokenizer = NullTokenizer::new(9)?;
        let encoder = Encoder::new(&tokenizer, 4);
        let Encoded { sequence, is_truncated } = encoder.pair(context, continuation)?;
        let all = [&sequence.inputs()[..1], sequence.targets()].concat();
        Ok((all, sequence.num_scored(), is_truncated))
    }

    #[test]
    fn what_is_too_long_loses_its_beginning() -> anyhow::Result<()> {
        assert_eq!(encoded("1 2", " 3 4 5")?, (vec![1, 2, 3, 4, 5], 3, false));
        assert_eq!(encoded("1 2 3 ", "4 5 6")?, (vec![2, 3, 4, 5, 6], 3, true));
        // The whole context: the model sees the four tokens before the last.
        assert_eq!(encoded("1 2", " 3 4 5 6")?, (vec![2, 3, 4, 5, 6], 4, true));
        assert_eq!(encoded("", "3")?, (vec![9, 3], 1, false));
        Ok(())
    }

    #[test]
    fn what_cannot_be_predicted_is_refused() {
        for (context, continuation, expected) in [
            ("1", " ", "\" \" adds no token to the 1 before it"),
            ("", " ", "what is predicted must have between 1 and 4 tokens, got 0"),
            (
                "1",
                " 1 2 3 4 5",
                "what is predicted must have between 1 and 4 tokens, got 5",
            ),
            ("1", " a", "NullTokenizer takes numbers from 0 to 9"),
        ] {
            let error = encoded(context, continuation).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }

    /// A vocabulary of letters, with `<s>` (4) and `</s>` (5); its post-processor may add `<s>`.
    fn tokenizer(config: &str, adds_begin: bool) -> HuggingFaceTokenizer {
        let special = |id: u32, text: &str| {
            json!({
                "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true
            })
        };
        let post_processor = json!({
            "type": "TemplateProcessing",
            "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
            "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [4], "tokens": ["<s>"] } }
        });
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [special(4, "<s>"), special(5, "</s>")], "normalizer": null,
            "pre_tokenizer": { "type": "WhitespaceSplit" }, "decoder": null,
            "post_processor": if adds_begin { post_processor } else { serde_json::Value::Null },
            "model": { "type": "WordLevel", "unk_token": "?", "vocab": { "?": 0, "a": 1, "b": 2, "c": 3 } }
        });
        let configs: [(&str, &[u8]); 1] = [("tokenizer_config.json", config.as_bytes())];
        HuggingFaceTokenizer::from_json(file.to_string().as_bytes(), &configs).expect("a tokenizer")
    }

    /// `HFLM.prefix_token_id`, `tok_encode`, `loglikelihood` and `loglikelihood_rolling` of lm-evaluation-harness
    /// 0.4.13.
    #[test]
    fn texts_begin_as_in_lm_evaluation_harness() -> anyhow::Result<()> {
        let config = r#"{"bos_token": "<s>", "eos_token": "</s>"}"#;
        for (adds_begin, page, pair) in [
            (false, vec![4, 1, 2], vec![1, 2, 3]),
            // The tokenizer's own begin is predicted too.
            (true, vec![4, 4, 1, 2], vec![4, 1, 2, 3]),
        ] {
            let tokenizer = tokenizer(config, adds_begin);
            let encoder = Encoder::new(&tokenizer, 10);
            let all = |context: &str, continuation: &str| -> anyhow::Result<(Vec<u32>, usize)> {
                let sequence = encoder.pair(context, continuation)?.sequence;
                Ok((
                    [&sequence.inputs()[..1], sequence.targets()].concat(),
                    sequence.num_scored(),
                ))
            };
            assert_eq!(encoder.page("a b")?, page);
            assert_eq!(all("a b", " c")?, (pair, 1));
            assert_eq!(all("", "a b")?, (vec![4, 1, 2], 2));
            assert_eq!(all("", "<s> a b")?, (vec![4, 1, 2], 2));
            assert_eq!(all("<s> a", " b")?, (vec![4, 1, 2], 1));
        }
        Ok(())
    }
}
