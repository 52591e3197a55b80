//! Text files as documents, in an order that does not depend on the machine.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use walkdir::WalkDir;

use burn::config::Config;
use burn_megatron_data::{in_memory::InMemoryDocuments, tokenizer::Tokenizer};

use super::error::DataError;

/// Extensions of the files that [`CorpusConfig::new`] takes from folders.
pub const TEXT_EXTENSIONS: [&str; 16] = [
    "c", "cpp", "cu", "go", "h", "hpp", "java", "js", "json", "md", "py", "rs", "toml", "ts", "txt", "yaml",
];

/// Limit of the default corpus: 16 MiB are read in well under a second.
pub const DEFAULT_LIMIT_BYTES: u64 = 16 << 20;

/// Which files become the corpus.
#[derive(Config, Debug, PartialEq, Eq)]
pub struct CorpusConfig {
    /// Files, which are always taken, and folders, which are walked.
    pub paths: Vec<PathBuf>,
    /// Extensions, without the dot and in any case, of the files that folders contribute.
    #[config(default = "TEXT_EXTENSIONS.map(String::from).to_vec()")]
    pub extensions: Vec<String>,
    /// Bytes of text after which reading stops; `None` reads everything.
    pub limit_bytes: Option<u64>,
}

impl CorpusConfig {
    /// Returns the configuration of the default corpus: 16 MiB of the Rust code and texts that
    /// cargo has downloaded to build this project.
    ///
    /// # Errors
    /// As [`registry_sources`].
    pub fn cargo_registry() -> Result<Self, DataError> {
        // CARGO_HOME set but empty counts as not set, as for cargo itself.
        let from_environment = env::var_os("CARGO_HOME").filter(|home| !home.is_empty());
        let cargo_home = from_environment
            .map(PathBuf::from)
            .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
            .ok_or(DataError::NoCargoHome)?;
        Ok(Self {
            paths: registry_sources(&cargo_home)?,
            extensions: vec!["rs".into(), "md".into()],
            limit_bytes: Some(DEFAULT_LIMIT_BYTES),
        })
    }
}

/// Returns the folders under `cargo_home` that hold unpacked crates: `registry/src/*/`.
///
/// # Errors
/// There is none, or they cannot be listed.
pub fn registry_sources(cargo_home: &Path) -> Result<Vec<PathBuf>, DataError> {
    let folder = cargo_home.join("registry").join("src");
    if !folder.is_dir() {
        return Err(DataError::NoRegistrySources { folder });
    }
    let unreadable = |source| DataError::Unreadable {
        path: folder.clone(),
        source,
    };
    let mut registries = vec![];
    for entry in fs::read_dir(&folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            registries.push(path);
        }
    }
    if registries.is_empty() {
        return Err(DataError::NoRegistrySources { folder });
    }
    registries.sort();
    Ok(registries)
}

/// One text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Path relative to the folder it was found in, with `/` on every system; for a file that was
    /// named itself, its name.
    pub path: String,
    /// Its text, never empty.
    pub text: String,
}

/// The documents of a run, in the order in which they are split and numbered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corpus {
    documents: Vec<Document>,
    num_not_utf8: usize,
}

impl Corpus {
    /// Reads the files of `config`.
    ///
    /// Documents are ordered by the SHA-256 of their relative path. A limit then keeps a spread of
    /// the corpus instead of the crates that begin with an `a`, and so does the validation split,
    /// which is the end of the order. The order depends on nothing but the relative paths: two
    /// machines with the same files below different folders get the same documents in the same
    /// order, and a further file moves no other.
    ///
    /// Files that are not UTF-8 are skipped and counted, empty ones are skipped, symbolic links
    /// inside folders are not followed. The last document is cut, at a character, where the limit
    /// is reached. A file reached from two of the paths is read twice.
    ///
    /// # Errors
    /// A path cannot be read, or no document is left.
    pub fn load(config: &CorpusConfig) -> Result<Self, DataError> {
        let files = list_files(config)?;
        let mut corpus = Self::from_documents(vec![]);
        let mut remaining = config.limit_bytes.unwrap_or(u64::MAX);
        for file in &files {
            if remaining == 0 {
                break;
            }
            let text = read_text(&file.path, remaining).map_err(|source| DataError::Unreadable {
                path: file.path.clone(),
                source,
            })?;
            match text {
                None => corpus.num_not_utf8 += 1,
                Some(ReadText { text, cut }) => {
                    remaining = if cut { 0 } else { remaining - text.len() as u64 };
                    if !text.is_empty() {
                        let path = file.relative.clone();
                        corpus.documents.push(Document { path, text });
                    }
                }
            }
        }
        if corpus.documents.is_empty() {
            return Err(DataError::EmptyCorpus {
                paths: config.paths.clone(),
                extensions: config.extensions.clone(),
                num_files: files.len(),
                num_not_utf8: corpus.num_not_utf8,
                limit_bytes: config.limit_bytes,
            });
        }
        Ok(corpus)
    }

    /// Returns the corpus of `documents`, in the order given.
    pub fn from_documents(documents: Vec<Document>) -> Self {
        Self {
            documents,
            num_not_utf8: 0,
        }
    }

    /// Returns the same text in about `min_documents` documents or more, cutting long ones at the ends of lines.
    ///
    /// A corpus of enough documents stays as it is. Lines are never cut, so a text of few lines gives few pieces.
    pub fn with_documents(self, min_documents: usize) -> Self {
        if self.documents.len() >= min_documents {
            return self;
        }
        let piece_bytes = (self.num_bytes() / min_documents).max(1);
        let documents = self
            .documents
            .iter()
            .flat_map(|document| {
                cut_at_lines(&document.text, piece_bytes)
                    .into_iter()
                    .enumerate()
                    .map(|(number, piece)| Document {
                        path: format!("{}#{number}", document.path),
                        text: piece.to_owned(),
                    })
            })
            .collect();
        Self { documents, ..self }
    }

    /// Returns the tokens of the documents, in their order, each ending in the end-of-document token if there is one.
    pub fn tokenize(&self, tokenizer: &dyn Tokenizer) -> InMemoryDocuments {
        let texts = self.documents.iter().map(|document| document.text.as_str());
        InMemoryDocuments::tokenize(texts, tokenizer)
    }

    /// Returns the documents.
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// Returns the bytes of text of all documents.
    pub fn num_bytes(&self) -> usize {
        self.documents.iter().map(|document| document.text.len()).sum()
    }

    /// Returns how many files were read and skipped because they are not UTF-8.
    pub fn num_not_utf8(&self) -> usize {
        self.num_not_utf8
    }

    /// Returns a hash of the documents' texts, boundaries and order, but not their paths.
    ///
    /// Ranks compare it before training, and a checkpoint keeps it to notice other data.
    pub fn hash(&self) -> u64 {
        let mut hasher = Sha256::new();
        for document in &self.documents {
            hasher.update((document.text.len() as u64).to_le_bytes());
            hasher.update(&document.text);
        }
        let digest = hasher.finalize();
        let head = digest.first_chunk().expect("a digest has 32 bytes");
        u64::from_le_bytes(*head)
    }
}

/// A file that matched, and what it is ordered by.
#[derive(Debug)]
struct SourceFile {
    /// SHA-256 of `relative`.
    key: [u8; 32],
    relative: String,
    path: PathBuf,
}

impl SourceFile {
    fn new(relative: String, path: PathBuf) -> Self {
        let key = Sha256::digest(&relative).into();
        Self { key, relative, path }
    }
}

/// Lists the files of `config` in corpus order.
fn list_files(config: &CorpusConfig) -> Result<Vec<SourceFile>, DataError> {
    let mut files = vec![];
    for root in &config.paths {
        let metadata = fs::metadata(root).map_err(|source| DataError::Unreadable {
            path: root.clone(),
            source,
        })?;
        if metadata.is_dir() {
            walk(root, &config.extensions, &mut files)?;
        } else {
            let name = root.file_name().unwrap_or(root.as_os_str());
            files.push(SourceFile::new(with_slashes(Path::new(name)), root.clone()));
        }
    }
    // Equal relative paths below two folders: the folder named first goes first.
    files.sort_by(|a, b| (&a.key, &a.relative).cmp(&(&b.key, &b.relative)));
    Ok(files)
}

/// Appends the files below `root` that have one of `extensions`.
fn walk(root: &Path, extensions: &[String], files: &mut Vec<SourceFile>) -> Result<(), DataError> {
    // Sorted, so that the first unreadable path is the same in every run.
    for entry in WalkDir::new(root).follow_links(false).sort_by_file_name() {
        let entry = entry.map_err(|error| DataError::Unreadable {
            path: error.path().unwrap_or(root).to_path_buf(),
            source: io::Error::from(error),
        })?;
        let path = entry.path();
        if entry.file_type().is_file() && has_extension(path, extensions) {
            let relative = path.strip_prefix(root).expect("a walk stays below its root");
            files.push(SourceFile::new(with_slashes(relative), path.to_path_buf()));
        }
    }
    Ok(())
}

fn has_extension(path: &Path, extensions: &[String]) -> bool {
    path.extension()
        .and_then(OsStr::to_str)
        .is_some_and(|extension| extensions.iter().any(|wanted| wanted.eq_ignore_ascii_case(extension)))
}

/// Writes a relative path with `/` on every system, so that its hash is the same everywhere.
fn with_slashes(relative: &Path) -> String {
    let parts: Vec<_> = relative.iter().map(OsStr::to_string_lossy).collect();
    parts.join("/")
}

/// The start of a file.
struct ReadText {
    text: String,
    /// Whether the file continues.
    cut: bool,
}

/// Reads up to `limit_bytes` bytes of whole characters; `None` if they are not UTF-8.
fn read_text(path: &Path, limit_bytes: u64) -> io::Result<Option<ReadText>> {
    let file = File::open(path)?;
    let mut bytes = Vec::with_capacity(file.metadata()?.len().min(limit_bytes) as usize + 1);
    // One byte more than is wanted tells whether the file continues.
    file.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    let cut = bytes.len() as u64 > limit_bytes;
    if cut {
        bytes.truncate(limit_bytes as usize);
        if let Err(error) = str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            // The limit fell inside a character.
            bytes.truncate(error.valid_up_to());
        }
    }
    Ok(String::from_utf8(bytes).ok().map(|text| ReadText { text, cut }))
}

/// Cuts a text after the lines that fill `piece_bytes`.
fn cut_at_lines(text: &str, piece_bytes: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        if end - start >= piece_bytes {
            pieces.push(&text[start..end]);
            start = end;
        }
    }
    if start < text.len() {
        pieces.push(&text[start..]);
    }
    pieces
}

#[cfg(test)]
mod tests;
