//! Numbers as text.

use super::{Token, Tokenizer, TokenizerError};

/// Reads tokens that are written as decimal numbers between white space: for tests and for data that has been tokenized
/// already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullTokenizer {
    special: [Token; 1],
}

impl NullTokenizer {
    /// Returns the tokenizer of the numbers below `num_tokens`. The token after them, `num_tokens`, ends documents.
    ///
    /// # Errors
    /// If the end of a document does not fit into a token.
    pub fn new(num_tokens: usize) -> Result<Self, TokenizerError> {
        let end = Token::try_from(num_tokens).ok().filter(|&end| end < Token::MAX);
        let end = end.ok_or_else(|| TokenizerError::Missing {
            kind: "NullTokenizer",
            what: format!("a vocabulary of at most {} tokens, not {num_tokens}", Token::MAX - 1),
        })?;
        Ok(Self { special: [end] })
    }

    fn token(&self, word: &str) -> Option<Token> {
        word.parse().ok().filter(|&token| token <= self.special[0])
    }
}

impl Tokenizer for NullTokenizer {
    fn vocabulary_size(&self) -> usize {
        self.special[0] as usize + 1
    }

    fn end_of_document(&self) -> Option<Token> {
        Some(self.special[0])
    }

    fn special_tokens(&self) -> &[Token] {
        &self.special
    }

    fn encode(&self, text: &str, tokens: &mut Vec<Token>) {
        tokens.extend(text.split_whitespace().filter_map(|word| self.token(word)));
    }

    fn try_encode(&self, text: &str, tokens: &mut Vec<Token>) -> Result<(), TokenizerError> {
        let before = tokens.len();
        for word in text.split_whitespace() {
            let Some(token) = self.token(word) else {
                tokens.truncate(before);
                return Err(TokenizerError::NoToken {
                    part: word.chars().take(40).collect(),
                    reason: format!("NullTokenizer takes numbers from 0 to {}", self.special[0]),
                });
            };
            tokens.push(token);
        }
        Ok(())
    }

    fn decode(&self, tokens: &[Token]) -> String {
        let words: Vec<String> = tokens
            .iter()
            .filter(|&&token| token != self.special[0])
            .map(Token::to_string)
            .collect();
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_tokens() {
        let tokenizer = NullTokenizer::new(10).unwrap();
        let mut tokens = vec![];
        tokenizer.try_encode(" 3\n9  0 ", &mut tokens).unwrap();
        assert_eq!(tokens, [3, 9, 0]);
        assert_eq!(tokenizer.decode(&[3, 10, 9]), "3 9");
        assert_eq!(
            (tokenizer.vocabulary_size(), tokenizer.end_of_document()),
            (11, Some(10))
        );
    }

    #[test]
    fn words_are_refused_and_leave_the_tokens_as_they_were() {
        let tokenizer = NullTokenizer::new(10).unwrap();
        let mut tokens = vec![7];
        for text in ["1 two", "1 11", "-1", "1.5", "4294967296"] {
            let error = tokenizer.try_encode(text, &mut tokens).unwrap_err().to_string();
            assert!(error.contains("numbers from 0 to 10"), "{error}");
            assert_eq!(tokens, [7]);
        }
        assert!(NullTokenizer::new(usize::MAX).is_err());
    }
}
