//! [`TokenText`]: tokens as OpenAI's APIs write them: whole characters as text, parts of them as bytes, special tokens
//! by their names.

use burn_megatron_data::tokenizer::Tokenizer;

use super::asking::OutputToken;

/// A token's text, or its bytes.
pub(super) struct TokenText {
    bytes: Vec<u8>,
    is_special: bool,
}

impl TokenText {
    pub(super) fn of(token: u32, tokenizer: &dyn Tokenizer) -> Self {
        Self {
            bytes: tokenizer.token_bytes(token),
            is_special: tokenizer.special_tokens().contains(&token),
        }
    }

    /// The token in a completion's lists: `bytes:\xe4` for a part of a character.
    pub(super) fn in_text(&self) -> String {
        self.with_prefix("bytes:")
    }

    /// The token in a chat's lists, which have the bytes too: `\xe4` for a part of a character.
    pub(super) fn in_chat(&self) -> String {
        self.with_prefix("")
    }

    /// Returns the bytes that the token adds to the text; nothing for a special token.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        (!self.is_special).then_some(&self.bytes)
    }

    fn with_prefix(&self, prefix: &str) -> String {
        let Ok(text) = std::str::from_utf8(&self.bytes) else {
            let byte = |byte: &u8| match byte {
                b' '..=b'~' => char::from(*byte).to_string(),
                byte => format!("\\x{byte:02x}"),
            };
            return prefix.to_owned() + &self.bytes.iter().map(byte).collect::<String>();
        };
        text.to_owned()
    }
}

/// Returns a token's name in a completion's lists, and the names and log-probabilities of the most probable ones. Of
/// several tokens with one text, the most probable one has it, and others have `token_id:` and their numbers.
pub(super) fn named_top(token: &OutputToken, tokenizer: &dyn Tokenizer) -> (String, Vec<(String, f64)>) {
    let mut top: Vec<(String, f64)> = Vec::with_capacity(token.top.len());
    let mut own = None;
    for &(other, log_probability) in &token.top {
        let mut name = TokenText::of(other, tokenizer).in_text();
        if top.iter().any(|(taken, _)| *taken == name) {
            name = format!("token_id:{other}");
        }
        if other == token.token {
            own = Some(name.clone());
        }
        top.push((name, log_probability));
    }
    let own = own.unwrap_or_else(|| TokenText::of(token.token, tokenizer).in_text());
    (own, top)
}

#[cfg(test)]
mod tests {
    use burn_megatron_data::tokenizer::ByteTokenizer;

    use super::*;

    /// Tokens with these bytes; the last one is special.
    struct Bytes(Vec<&'static [u8]>, [u32; 1]);

    impl Tokenizer for Bytes {
        fn vocabulary_size(&self) -> usize {
            self.0.len()
        }

        fn end_of_document(&self) -> Option<u32> {
            None
        }

        fn special_tokens(&self) -> &[u32] {
            &self.1
        }

        fn encode(&self, _: &str, _: &mut Vec<u32>) {}

        fn decode(&self, _: &[u32]) -> String {
            String::new()
        }

        fn token_bytes(&self, token: u32) -> Vec<u8> {
            self.0[token as usize].to_vec()
        }
    }

    #[test]
    fn parts_of_characters_are_bytes_and_special_tokens_have_names() {
        let tokenizer = Bytes(
            vec![" é".as_bytes(), b"\xe4", b" \xf0\x9f", b"\x98\\n", b"\n", b"<|end|>"],
            [5],
        );
        for (token, in_text, in_chat) in [
            (0, " é", " é"),
            (1, "bytes:\\xe4", "\\xe4"),
            (2, "bytes: \\xf0\\x9f", " \\xf0\\x9f"),
            (3, "bytes:\\x98\\n", "\\x98\\n"),
            (4, "\n", "\n"),
            (5, "<|end|>", "<|end|>"),
        ] {
            let text = TokenText::of(token, &tokenizer);
            assert_eq!((text.in_text().as_str(), text.in_chat().as_str()), (in_text, in_chat));
            assert_eq!(text.bytes().is_none(), token == 5);
        }
        let end = TokenText::of(ByteTokenizer::END_OF_DOCUMENT, &ByteTokenizer);
        assert_eq!(end.in_text(), "<|endoftext|>");
    }

    #[test]
    fn the_most_probable_tokens_have_names_of_their_own() {
        let tokenizer = Bytes(vec![b"a", b"a", b"\xe4", b"\xe5"], [9]);
        let token = OutputToken {
            token: 1,
            log_probability: Some(-2.0),
            top: vec![(0, -1.0), (1, -2.0), (2, -3.0), (3, -4.0)],
            offset: 0,
        };
        let (own, top) = named_top(&token, &tokenizer);
        let expected = [
            ("a", -1.0),
            ("token_id:1", -2.0),
            ("bytes:\\xe4", -3.0),
            ("bytes:\\xe5", -4.0),
        ];
        assert_eq!(own, "token_id:1");
        assert_eq!(top, expected.map(|(name, log)| (name.to_owned(), log)));
    }
}
