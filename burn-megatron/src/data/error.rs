//! The errors of the `data` module. Returned by everything in it, shown by the command line.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

/// What files, flags or the loader's thread can cause on the way from text to micro-batches.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum DataError {
    #[error("cannot read {path}: {source}", path = .path.display())]
    Unreadable { path: PathBuf, source: io::Error },

    /// The cargo home, whose registry holds the default corpus, is not known.
    #[error(
        "no --data-path given, and the default corpus cannot be found: neither CARGO_HOME nor a \
         home folder is set; name text files or folders with --data-path"
    )]
    NoCargoHome,

    #[error(
        "no --data-path given, and the default corpus, the crate sources in {folder}, does not \
         exist; build this project with cargo on this machine, or name text files or folders \
         with --data-path", folder = .folder.display()
    )]
    NoRegistrySources { folder: PathBuf },

    #[error(
        "no text found in {paths:?}: {num_files} files end in one of {extensions:?}, of which \
         {num_not_utf8} are not UTF-8 and the rest are empty, with a limit of {limit_bytes:?} bytes"
    )]
    EmptyCorpus {
        paths: Vec<PathBuf>,
        extensions: Vec<String>,
        num_files: usize,
        /// How many of those were read and skipped.
        num_not_utf8: usize,
        limit_bytes: Option<u64>,
    },

    /// Samples cannot be made or read.
    #[cfg(feature = "trainer")]
    #[error(transparent)]
    Samples(#[from] burn_megatron_data::samples::SampleError),

    /// A sampler was configured with a value outside its range.
    #[error("{name} must be {rule}, got {value}")]
    Configuration {
        name: &'static str,
        rule: String,
        value: u64,
    },

    #[error("cannot start the loader's thread: {source}")]
    LoaderStart { source: io::Error },

    #[error("the loader produced no micro-batch in {timeout:?}")]
    LoaderTimeout { timeout: Duration },

    #[error("the loader's thread panicked: {message}")]
    LoaderPanicked { message: String },
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
