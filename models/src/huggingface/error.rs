//! What can go wrong with Hugging Face's files: [`HuggingFaceError`].

use std::io;
use std::path::{Path, PathBuf};

use burn_megatron::checkpoint::CheckpointError;
use serde_json::Value;

use super::{INDEX_NAME, MODEL_NAME};

/// The most characters of a value that are shown.
const SHOWN_CHARACTERS: usize = 80;

/// Why a model could not be exported or imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HuggingFaceError {
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    File {
        /// What was tried: `open`, `write`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "{folder} has no tensors: expected {MODEL_NAME}, or {INDEX_NAME} and the files that it names{advice}",
        folder = .folder.display()
    )]
    NoTensors {
        folder: PathBuf,
        /// Advice on other files that are there; may be empty.
        advice: String,
    },
    /// A file that is not what it should be.
    #[error("{path}: {what}", path = .path.display())]
    Broken { path: PathBuf, what: String },
    /// A setting of `config.json` that the family does not have.
    #[error("{path}: {field} is {value}: expected {expected}", path = .path.display())]
    Field {
        path: PathBuf,
        field: String,
        /// Its value, as JSON.
        value: String,
        expected: String,
    },
    #[error("{path} has no tensor {name:?}: expected one of shape {expected:?}", path = .path.display())]
    Missing {
        /// The file, its index, or the checkpoint.
        path: PathBuf,
        /// The tensor, without a prefix.
        name: String,
        expected: Vec<usize>,
    },
    #[error("{path} has a tensor {name:?}, which is none of this model's: {hint}", path = .path.display())]
    Unknown {
        /// The file, or the checkpoint.
        path: PathBuf,
        name: String,
        hint: String,
    },
    #[error("tensor {name:?} of {path} has shape {found:?}: expected {expected:?}", path = .path.display())]
    Shape {
        /// The file, or the checkpoint.
        path: PathBuf,
        name: String,
        found: Vec<usize>,
        expected: Vec<usize>,
    },
    /// Numbers that a narrower type cannot hold.
    #[error("parameter {name:?} has {value:e}, which is infinite as {dtype}: export it as f32")]
    TooLarge {
        name: String,
        /// The first such number.
        value: f64,
        dtype: &'static str,
    },
    #[error("{path} is there already: expected nothing, or an empty folder", path = .path.display())]
    OutputExists { path: PathBuf },
    #[error(
        "{directory} has the checkpoint {found} already: import into a folder of its own",
        directory = .directory.display(), found = .found.display()
    )]
    HasCheckpoints { directory: PathBuf, found: PathBuf },
    /// The checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl HuggingFaceError {
    /// Returns a function that says what was tried with which path.
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    /// Returns the error of a setting, with its value cut if it is long.
    pub(super) fn field(path: &Path, field: impl Into<String>, value: &Value, expected: &str) -> Self {
        let text = value.to_string();
        let mut shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self::Field {
            path: path.to_owned(),
            field: field.into(),
            value: shown,
            expected: expected.to_owned(),
        }
    }

    /// Returns the error of a file that is not what it should be.
    pub(super) fn broken(path: &Path, what: impl Into<String>) -> Self {
        Self::Broken {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}
