//! `InputFile`: which files there are, what they hold, how they are compressed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::preprocess::{InputFormat, PreprocessConfig, PreprocessError};

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::preprocess) enum Compression {
    None,
    /// `.gz`, of one or several members.
    Gzip,
    /// `.zst`, of one or several frames.
    Zstd,
}

/// A file to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::preprocess) struct InputFile {
    pub(in crate::preprocess) path: PathBuf,
    pub(in crate::preprocess) format: InputFormat,
    pub(in crate::preprocess) compression: Compression,
    /// Bytes on the disk.
    pub(in crate::preprocess) bytes: u64,
}

/// Finds all files of a configuration, in the order in which they are read.
pub(in crate::preprocess) fn expand(config: &PreprocessConfig) -> Result<Vec<InputFile>, PreprocessError> {
    let mut files = vec![];
    for input in &config.inputs {
        let path = Path::new(input);
        if path.is_dir() {
            expand_folder(path, config, &mut files)?;
        } else if path.exists() || !input.contains(['*', '?', '[']) {
            files.push(named(path, config)?);
        } else {
            expand_glob(input, config, &mut files)?;
        }
    }
    if files.is_empty() {
        return Err(refused(format!(
            "no input file in {:?}, expected one or more",
            config.inputs
        )));
    }
    if config.keys.len() > 1
        && let Some(text) = files.iter().find(|file| file.format == InputFormat::Text)
    {
        let keys = config.keys.join(", ");
        return Err(refused(format!(
            "{} is plain text, which has no keys {keys}: give one",
            text.path.display()
        )));
    }
    Ok(files)
}

/// Takes the files of a folder whose names say what they hold, or all if the format is given.
fn expand_folder(folder: &Path, config: &PreprocessConfig, files: &mut Vec<InputFile>) -> Result<(), PreprocessError> {
    let before = files.len();
    let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    let entries = WalkDir::new(folder)
        .follow_links(true)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| entry.depth() == 0 || !is_hidden(entry.file_name()));
    for entry in entries {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(folder).to_owned();
            PreprocessError::Read {
                path,
                source: error.into(),
            }
        })?;
        if entry.file_type().is_file() && (config.format.is_some() || by_name(entry.path()).0.is_some()) {
            files.push(named(entry.path(), config)?);
        }
    }
    if files.len() == before {
        let expected = "expected .txt, .jsonl, .ndjson, .json or .parquet, or one of these with .gz or .zst";
        return Err(refused(format!(
            "no input file in the folder {}, {expected}",
            folder.display()
        )));
    }
    Ok(())
}

fn expand_glob(pattern: &str, config: &PreprocessConfig, files: &mut Vec<InputFile>) -> Result<(), PreprocessError> {
    let before = files.len();
    // Sorted by name already.
    let paths = glob::glob(pattern).map_err(|error| refused(format!("{pattern:?} is no glob: {error}")))?;
    for path in paths {
        let path = path.map_err(|error| PreprocessError::Read {
            path: error.path().to_owned(),
            source: error.into(),
        })?;
        if path.is_dir() {
            expand_folder(&path, config, files)?;
        } else {
            files.push(named(&path, config)?);
        }
    }
    if files.len() == before {
        return Err(refused(format!("no file matches {pattern:?}")));
    }
    Ok(())
}

/// A file that is read whatever it is called.
fn named(path: &Path, config: &PreprocessConfig) -> Result<InputFile, PreprocessError> {
    let bytes = fs::metadata(path).map_err(PreprocessError::read(path))?.len();
    let (format, compression) = by_name(path);
    let format = config.format.or(format).ok_or_else(|| {
        refused(format!(
            "the name of {} does not tell what it holds: give the format, text, jsonl or parquet",
            path.display()
        ))
    })?;
    if format == InputFormat::Parquet {
        if cfg!(not(feature = "parquet")) {
            return Err(no_parquet(path));
        }
        if compression != Compression::None {
            return Err(refused(format!(
                "{}: a Parquet file is not compressed as a whole",
                path.display()
            )));
        }
    }
    Ok(InputFile {
        path: path.to_owned(),
        format,
        compression,
        bytes,
    })
}

/// What the extensions of a name say.
fn by_name(path: &Path) -> (Option<InputFormat>, Compression) {
    let extension = |path: &Path| path.extension().map(|extension| extension.to_ascii_lowercase());
    let compression = match extension(path).as_deref().and_then(OsStr::to_str) {
        Some("gz") => Compression::Gzip,
        Some("zst") => Compression::Zstd,
        _ => Compression::None,
    };
    let inner = if compression == Compression::None {
        path.to_owned()
    } else {
        path.with_extension("")
    };
    let format = match extension(&inner).as_deref().and_then(OsStr::to_str) {
        Some("txt") => Some(InputFormat::Text),
        Some("jsonl" | "ndjson" | "json") => Some(InputFormat::Jsonl),
        Some("parquet") => Some(InputFormat::Parquet),
        _ => None,
    };
    (format, compression)
}

pub(super) fn no_parquet(path: &Path) -> PreprocessError {
    refused(format!(
        "{} is a Parquet file: this build is without the feature parquet",
        path.display()
    ))
}

fn refused(reason: String) -> PreprocessError {
    PreprocessError::Config { reason }
}
