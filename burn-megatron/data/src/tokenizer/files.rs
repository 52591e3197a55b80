//! The files of a tokenizer as a checkpoint carries them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    BertWordPieceTokenizer, ByteTokenizer, GPT2BPETokenizer, HuggingFaceTokenizer, MaskedByteTokenizer, NullTokenizer,
    SentencePieceTokenizer, Tokenizer, TokenizerDifference, TokenizerError, TokenizerKind,
};
use crate::hexadecimal;

/// A kind of tokenizer and the contents of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenizerFiles {
    kind: TokenizerKind,
    num_tokens: Option<usize>,
    /// Contents by name.
    files: BTreeMap<String, Vec<u8>>,
}

/// What is in the folder of a saved tokenizer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    kind: TokenizerKind,
    num_tokens: Option<usize>,
    files: Vec<ManifestFile>,
    sha256: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFile {
    name: String,
    sha256: String,
}

/// Names that a saved tokenizer may have.
const NAMES: [&str; 8] = [
    "vocab.json",
    "merges.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    TokenizerFiles::CHAT_TEMPLATE,
    "tokenizer.model",
    "vocab.txt",
];

impl TokenizerFiles {
    /// Largest file that is read, in bytes: vocabularies of a million tokens are a tenth of it.
    pub const MAX_FILE_BYTES: u64 = 512 << 20;

    /// The file of a saved tokenizer that lists the others and their hashes. It is written last.
    pub const MANIFEST: &'static str = "tokenizer_files.json";

    /// The file that writes conversations as texts.
    pub const CHAT_TEMPLATE: &'static str = "chat_template.jinja";

    /// Returns a kind with the contents of its files, by their names.
    pub fn from_parts(kind: TokenizerKind, num_tokens: Option<usize>, files: Vec<(String, Vec<u8>)>) -> Self {
        Self {
            kind,
            num_tokens,
            files: files.into_iter().collect(),
        }
    }

    /// Adds the content of a file under the name that it has in a saved tokenizer.
    pub(super) fn read(&mut self, name: &str, path: &Path) -> Result<(), TokenizerError> {
        self.files.insert(name.to_owned(), read_bounded(path)?);
        Ok(())
    }

    /// Returns the kind of tokenizer.
    pub fn kind(&self) -> TokenizerKind {
        self.kind
    }

    /// Returns the number of tokens of the [`TokenizerKind::NullTokenizer`].
    pub fn num_tokens(&self) -> Option<usize> {
        self.num_tokens
    }

    /// Returns the names and contents of the files, in the order of their names.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, content)| (&**name, &**content))
    }

    /// Returns the SHA-256 of the kind, the names and the contents, in hexadecimal digits. Tokenizers that have the
    /// same one give the same tokens: a chat template does not count.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(self.kind.name().as_bytes());
        let num_tokens = self.num_tokens.map(|tokens| tokens.to_string());
        part(num_tokens.unwrap_or_default().as_bytes());
        for (name, content) in self.files().filter(|(name, _)| *name != Self::CHAT_TEMPLATE) {
            part(name.as_bytes());
            part(content);
        }
        hexadecimal(&hash.finalize())
    }

    /// Builds the tokenizer.
    ///
    /// # Errors
    /// If a file is missing or does not have the form that its name promises.
    pub fn tokenizer(&self) -> Result<Arc<dyn Tokenizer>, TokenizerError> {
        Ok(match self.kind {
            TokenizerKind::ByteTokenizer => Arc::new(ByteTokenizer),
            TokenizerKind::MaskedByteTokenizer => Arc::new(MaskedByteTokenizer),
            TokenizerKind::NullTokenizer => {
                let num_tokens = self.num_tokens.ok_or_else(|| self.missing("the number of tokens"))?;
                Arc::new(NullTokenizer::new(num_tokens)?)
            }
            TokenizerKind::GPT2BPETokenizer => Arc::new(GPT2BPETokenizer::new(
                self.content("vocab.json")?,
                self.content("merges.txt")?,
            )?),
            TokenizerKind::BertWordPieceLowerCase => {
                Arc::new(BertWordPieceTokenizer::lower_case(self.content("vocab.txt")?)?)
            }
            TokenizerKind::BertWordPieceCase => Arc::new(BertWordPieceTokenizer::cased(self.content("vocab.txt")?)?),
            TokenizerKind::HuggingFaceTokenizer => {
                let configs = ["tokenizer_config.json", "special_tokens_map.json"];
                let configs: Vec<(&str, &[u8])> = configs
                    .iter()
                    .filter_map(|name| Some((*name, self.find(name)?)))
                    .collect();
                Arc::new(HuggingFaceTokenizer::from_json(
                    self.content("tokenizer.json")?,
                    &configs,
                )?)
            }
            TokenizerKind::SentencePieceTokenizer => {
                Arc::new(SentencePieceTokenizer::new(self.content("tokenizer.model")?)?)
            }
        })
    }

    /// Checks that two tokenizers give the same tokens. `name` and `other_name` say where they are from.
    ///
    /// # Errors
    /// If their hashes differ; the error names both.
    pub fn check_same(&self, name: &str, other: &Self, other_name: &str) -> Result<(), TokenizerError> {
        let (left_hash, right_hash) = (self.sha256(), other.sha256());
        if left_hash == right_hash {
            return Ok(());
        }
        Err(TokenizerError::Different(Box::new(TokenizerDifference {
            left_name: name.to_owned(),
            left: self.summary(),
            left_hash: left_hash[..12].to_owned(),
            right_name: other_name.to_owned(),
            right: other.summary(),
            right_hash: right_hash[..12].to_owned(),
        })))
    }

    /// Writes the files and their list into a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), TokenizerError> {
        fs::create_dir_all(folder).map_err(|source| io_error("make the folder", folder, source))?;
        for (name, content) in &self.files {
            write_whole(&folder.join(name), content)?;
        }
        let files = self.files.iter().map(|(name, content)| ManifestFile {
            name: name.clone(),
            sha256: hexadecimal(&Sha256::digest(content)),
        });
        let manifest = Manifest {
            kind: self.kind,
            num_tokens: self.num_tokens,
            files: files.collect(),
            sha256: self.sha256(),
        };
        let json =
            serde_json::to_vec_pretty(&manifest).map_err(|error| TokenizerError::invalid(Self::MANIFEST, error))?;
        write_whole(&folder.join(Self::MANIFEST), &json)
    }

    /// Reads what [`Self::save`] wrote.
    ///
    /// # Errors
    /// If a file is missing or is not what was written.
    pub fn load(folder: &Path) -> Result<Self, TokenizerError> {
        let json = read_bounded(&folder.join(Self::MANIFEST))?;
        let manifest: Manifest =
            serde_json::from_slice(&json).map_err(|error| TokenizerError::invalid(Self::MANIFEST, error))?;
        let mut files = Self::from_parts(manifest.kind, manifest.num_tokens, vec![]);
        for ManifestFile { name, sha256 } in manifest.files {
            if !NAMES.contains(&name.as_str()) {
                let reason = format!("{name:?} is no file of a tokenizer; valid are {}", NAMES.join(", "));
                return Err(TokenizerError::invalid(Self::MANIFEST, reason));
            }
            files.read(&name, &folder.join(&name))?;
            let found = hexadecimal(&Sha256::digest(files.content(&name)?));
            check_hash(name, sha256, found)?;
        }
        check_hash("the tokenizer".to_owned(), manifest.sha256, files.sha256())?;
        Ok(files)
    }

    /// Returns the content of a file, if it is there.
    pub fn find(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(Vec::as_slice)
    }

    fn content(&self, name: &str) -> Result<&[u8], TokenizerError> {
        self.find(name).ok_or_else(|| self.missing(name))
    }

    fn missing(&self, what: &str) -> TokenizerError {
        TokenizerError::Missing {
            kind: self.kind.name(),
            what: what.to_owned(),
        }
    }

    /// Returns the kind, and what its vocabulary is made of.
    fn summary(&self) -> String {
        let files = self.files();
        let files = files.map(|(name, content)| format!("{name} of {} bytes", content.len()));
        let mut parts: Vec<String> = files.collect();
        parts.extend(self.num_tokens.map(|tokens| format!("{tokens} tokens")));
        if parts.is_empty() {
            self.kind.to_string()
        } else {
            format!("{} with {}", self.kind, parts.join(", "))
        }
    }
}

fn check_hash(file: String, expected: String, found: String) -> Result<(), TokenizerError> {
    if expected == found {
        return Ok(());
    }
    Err(TokenizerError::Damaged {
        file,
        manifest: TokenizerFiles::MANIFEST,
        expected,
        found,
    })
}

pub(super) fn io_error(action: &'static str, path: &Path, source: io::Error) -> TokenizerError {
    TokenizerError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Returns the content of a file that is not larger than any vocabulary.
fn read_bounded(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let limit = TokenizerFiles::MAX_FILE_BYTES;
    let failed = |source| io_error("read", path, source);
    let file = File::open(path).map_err(failed)?;
    let mut content = vec![];
    // A device or a pipe has no length: what is read counts.
    let bytes = file.take(limit + 1).read_to_end(&mut content).map_err(failed)? as u64;
    if bytes > limit {
        return Err(TokenizerError::TooLarge {
            path: path.to_owned(),
            bytes,
            limit,
        });
    }
    Ok(content)
}

/// Writes a file under a temporary name and renames it, so that no half of it has its name.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), TokenizerError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = Path::new(&temporary);
    let write = || {
        let mut file = File::create(temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(temporary, path)
    };
    write().map_err(|source| {
        // What is left is of no use; that it cannot be removed says less than the first reason.
        let _ = fs::remove_file(temporary);
        io_error("write", path, source)
    })
}
