//! [`ConfigError`]: why a configuration of DeepSpeed does not become flags.

use thiserror::Error;

/// What is wrong with a configuration; the file's name is not in it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The text is no JSON.
    #[error("not JSON: {0}")]
    NotJson(String),

    /// The value is not an object.
    #[error("the configuration must be an object of keys, got {got}")]
    NotAnObject {
        /// What it is.
        got: String,
    },

    /// A key is written twice, of which DeepSpeed refuses both.
    #[error("{path} occurs twice: leave one of them out")]
    Duplicate {
        /// The key.
        path: String,
    },

    /// DeepSpeed has no such key.
    #[error("{path} is no key of DeepSpeed's configuration; the nearest known one is {nearest}")]
    UnknownKey {
        /// The key.
        path: String,
        /// The known key of the same section that is spelled most like it.
        nearest: String,
    },

    /// A key is missing without which another says nothing.
    #[error("{path} is missing: {why}")]
    Missing {
        /// The key.
        path: String,
        /// What needs it, and what to give.
        why: String,
    },

    /// A value has another type than the key's, or is out of range.
    #[error("{path} must be {expected}, got {got}")]
    Value {
        /// The key.
        path: String,
        /// What is valid.
        expected: String,
        /// The value.
        got: String,
    },

    /// DeepSpeed can do what is asked for, and these programs cannot: without it the result would be another one.
    #[error("{path} {value} cannot be honoured: {why}")]
    Unsupported {
        /// The key.
        path: String,
        /// Its value.
        value: String,
        /// The reason, and what to do.
        why: String,
    },

    /// The batch sizes do not fit each other.
    #[error("{0}")]
    Batch(String),

    /// A flag of the command line says something else than the configuration.
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
