//! What can go wrong with Hugging Face's files: [`HuggingFaceError`].

use std::io;
use std::path::{Path, PathBuf};

use burn_megatron::checkpoint::CheckpointError;

use super::{INDEX_NAME, MODEL_NAME};

/// Why a model could not be exported or imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HuggingFaceError {
    /// The operating system refused something.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    File {
        /// What was tried: `open`, `write`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A folder without tensors.
    #[error(
        "{folder} has no tensors: expected {MODEL_NAME}, or {INDEX_NAME} and the files that it names",
        folder = .folder.display()
    )]
    NoTensors {
        /// The folder.
        folder: PathBuf,
    },
    /// A file that is not what it should be.
    #[error("{path}: {what}", path = .path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// A setting of `config.json` that the family does not have.
    #[error("{path}: {field} is {value}: expected {expected}", path = .path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The setting.
        field: String,
        /// Its value, as JSON.
        value: String,
        /// What it may be.
        expected: String,
    },
    /// A tensor that the model needs.
    #[error("{path} has no tensor {name:?}: expected one of shape {expected:?}", path = .path.display())]
    Missing {
        /// The file, its index, or the checkpoint.
        path: PathBuf,
        /// The tensor, without a prefix.
        name: String,
        /// The shape that it should have.
        expected: Vec<usize>,
    },
    /// A tensor that the model does not have.
    #[error("{path} has a tensor {name:?}, which is none of this model's: {hint}", path = .path.display())]
    Unknown {
        /// The file, or the checkpoint.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What the model has.
        hint: String,
    },
    /// A tensor of another shape.
    #[error("tensor {name:?} of {path} has shape {found:?}: expected {expected:?}", path = .path.display())]
    Shape {
        /// The file, or the checkpoint.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that it should have.
        expected: Vec<usize>,
    },
    /// Numbers that a narrower type cannot hold.
    #[error("parameter {name:?} has {value:e}, which is infinite as {dtype}: export it as f32")]
    TooLarge {
        /// The parameter.
        name: String,
        /// The first such number.
        value: f64,
        /// The type.
        dtype: &'static str,
    },
    /// Something is where the export should go.
    #[error("{path} is there already: expected nothing, or an empty folder", path = .path.display())]
    OutputExists {
        /// What is there.
        path: PathBuf,
    },
    /// A folder of checkpoints that a run has written to.
    #[error(
        "{directory} has the checkpoint {found} already: import into a folder of its own",
        directory = .directory.display(), found = .found.display()
    )]
    HasCheckpoints {
        /// The folder.
        directory: PathBuf,
        /// Its latest checkpoint.
        found: PathBuf,
    },
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

    /// Returns the error of a file that is not what it should be.
    pub(super) fn broken(path: &Path, what: impl Into<String>) -> Self {
        Self::Broken {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}
