//! `TokenRange`: the tokens of a table of embeddings.

/// The tokens whose rows a table begins with, one row for each. The rows of other tokens are in other tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    /// The first token.
    pub first: usize,
    /// The number of tokens.
    pub count: usize,
}

impl TokenRange {
    /// Returns the row of a token, if the table has it.
    pub fn row(&self, token: i64) -> Option<usize> {
        let row = usize::try_from(token).ok()?.checked_sub(self.first)?;
        (row < self.count).then_some(row)
    }
}
