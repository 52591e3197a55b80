//! [`ConfigError`]: why a configuration of DeepSpeed does not become flags.

use thiserror::Error;

/// What is wrong with a configuration; the file's name is not in it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    #[error("not JSON: {0}")]
    NotJson(String),

    #[error("the configuration must be an object of keys, got {got}")]
    NotAnObject { got: String },

    /// A key is written twice, of which DeepSpeed refuses both.
    #[error("{path} occurs twice: leave one of them out")]
    Duplicate { path: String },

    /// The nearest known key is named.
    #[error("{0}")]
    UnknownKey(String),

    /// A key is missing without which another says nothing.
    #[error("{path} is missing: {why}")]
    Missing { path: String, why: String },

    #[error("{path} must be {expected}, got {got}")]
    Value {
        path: String,
        expected: String,
        got: String,
    },

    /// DeepSpeed can do what is asked for, and these programs cannot: without it the result would be another one.
    #[error("{path} {value} cannot be honoured: {why}")]
    Unsupported { path: String, value: String, why: String },

    /// The batch sizes do not fit each other.
    #[error("{0}")]
    Batch(String),

    #[error("{given} contradicts {key}, which becomes {becomes}: leave out one of them")]
    Contradiction {
        /// The flag of the command line, with its value.
        given: String,
        /// The key and its value.
        key: String,
        /// The flag that it stands for, with its value.
        becomes: String,
    },

    /// A flag that says how many ranks there are is no number, or the numbers do not fit each other.
    #[error("{0}")]
    Ranks(String),
}
