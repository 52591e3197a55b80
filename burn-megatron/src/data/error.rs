//! The errors of the `data` module. Returned by everything in it, shown by the command line.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

/// What files, flags or the loader's thread can cause on the way from text to micro-batches.
#[derive(Debug, Error)]
pub enum DataError {
    /// A path could not be walked or read.
    #[error("cannot read {path}: {source}", path = .path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },

    /// The cargo home, whose registry holds the default corpus, is not known.
    #[error(
        "no --data-path given, and the default corpus cannot be found: neither CARGO_HOME nor a \
         home folder is set; name text files or folders with --data-path"
    )]
    NoCargoHome,

    /// The cargo home holds no registry sources.
    #[error(
        "no --data-path given, and the default corpus, the crate sources in {folder}, does not \
         exist; build this project with cargo on this machine, or name text files or folders \
         with --data-path", folder = .folder.display()
    )]
    NoRegistrySources {
        /// Where the sources were looked for.
        folder: PathBuf,
    },

    /// The paths hold no document.
    #[error(
        "no text found in {paths:?}: {num_files} files end in one of {extensions:?}, of which \
         {num_not_utf8} are not UTF-8 and the rest are empty, with a limit of {limit_bytes:?} bytes"
    )]
    EmptyCorpus {
        /// The files and folders that were searched.
        paths: Vec<PathBuf>,
        /// The extensions that were looked for.
        extensions: Vec<String>,
        /// How many files matched.
        num_files: usize,
        /// How many of those were read and skipped.
        num_not_utf8: usize,
        /// The limit on the corpus.
        limit_bytes: Option<u64>,
    },

    /// Samples cannot be made or read.
    #[cfg(feature = "trainer")]
    #[error(transparent)]
    Samples(#[from] burn_megatron_data::samples::SampleError),

    /// A sampler was configured with a value outside its range.
    #[error("{name} must be {rule}, got {value}")]
    Configuration {
        /// The setting.
        name: &'static str,
        /// What it must be.
        rule: String,
        /// What it is.
        value: u64,
    },

    /// The loader's thread could not be started.
    #[error("cannot start the loader's thread: {source}")]
    LoaderStart {
        /// Why.
        source: io::Error,
    },

    /// The loader's thread produced no micro-batch in time.
    #[error("the loader produced no micro-batch in {timeout:?}")]
    LoaderTimeout {
        /// How long the wait lasted.
        timeout: Duration,
    },

    /// The loader's thread panicked.
    #[error("the loader's thread panicked: {message}")]
    LoaderPanicked {
        /// The panic's message.
        message: String,
    },
}

impl DataError {
    pub(super) fn configuration(name: &'static str, rule: impl Into<String>, value: impl TryInto<u64>) -> Self {
        Self::Configuration {
            name,
            rule: rule.into(),
            value: value.try_into().unwrap_or(u64::MAX),
        }
    }
}
