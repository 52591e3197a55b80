//! Which tokenizer, and where its files are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::settings::SETTINGS;
use super::{Tokenizer, TokenizerError, TokenizerFiles, TokenizerKind};

/// A tokenizer, and where its files are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenizerConfig {
    /// `--tokenizer-type`.
    pub kind: TokenizerKind,
    /// `--vocab-file`: `vocab.json` or `vocab.txt`.
    pub vocab_file: Option<PathBuf>,
    /// `--merge-file`. `None` if it is `merges.txt` next to the vocabulary.
    pub merge_file: Option<PathBuf>,
    /// `--tokenizer-model`: a `tokenizer.json`, a folder with one, or a `tokenizer.model`.
    pub model: Option<PathBuf>,
    /// `--vocab-size`, for [`TokenizerKind::NullTokenizer`]: the number of tokens without the end of a document.
    pub num_tokens: Option<usize>,
}

impl TokenizerConfig {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file is not named, cannot be read or is too large.
    pub fn files(&self) -> Result<TokenizerFiles, TokenizerError> {
        let mut files = TokenizerFiles::from_parts(self.kind, None, vec![]);
        match self.kind {
            TokenizerKind::ByteTokenizer | TokenizerKind::MaskedByteTokenizer => {}
            TokenizerKind::NullTokenizer => {
                let num_tokens = self.num_tokens.ok_or_else(|| self.missing("--vocab-size"))?;
                files = TokenizerFiles::from_parts(self.kind, Some(num_tokens), vec![]);
            }
            TokenizerKind::GPT2BPETokenizer => {
                let vocab_file = self.vocab_file()?;
                files.read("vocab.json", vocab_file)?;
                files.read("merges.txt", &self.merge_file(vocab_file)?)?;
            }
            TokenizerKind::BertWordPieceLowerCase | TokenizerKind::BertWordPieceCase => {
                files.read("vocab.txt", self.vocab_file()?)?;
            }
            TokenizerKind::HuggingFaceTokenizer => self.read_hugging_face(&mut files)?,
            TokenizerKind::SentencePieceTokenizer => {
                let model = self.model.as_ref().or(self.vocab_file.as_ref());
                let model =
                    model.ok_or_else(|| self.missing("--tokenizer-model (a tokenizer.model or a folder with one)"))?;
                let model = inside(model, "tokenizer.model");
                files.read("tokenizer.model", &model)?;
                read_next_to(&mut files, &model)?;
            }
        }
        Ok(files)
    }

    /// Reads the files and builds the tokenizer.
    ///
    /// # Errors
    /// Those of [`Self::files`] and [`TokenizerFiles::tokenizer`].
    pub fn load(&self) -> Result<Arc<dyn Tokenizer>, TokenizerError> {
        self.files()?.tokenizer()
    }

    fn missing(&self, what: impl Into<String>) -> TokenizerError {
        TokenizerError::Missing {
            kind: self.kind.name(),
            what: what.into(),
        }
    }

    fn vocab_file(&self) -> Result<&Path, TokenizerError> {
        self.vocab_file.as_deref().ok_or_else(|| self.missing("--vocab-file"))
    }

    fn merge_file(&self, vocab_file: &Path) -> Result<PathBuf, TokenizerError> {
        if let Some(merge_file) = &self.merge_file {
            return Ok(merge_file.clone());
        }
        let neighbour = vocab_file.with_file_name("merges.txt");
        if neighbour.is_file() {
            return Ok(neighbour);
        }
        Err(self.missing(format!(
            "--merge-file, or merges.txt next to the vocabulary ({})",
            neighbour.display()
        )))
    }

    fn read_hugging_face(&self, files: &mut TokenizerFiles) -> Result<(), TokenizerError> {
        let model = self.model.as_ref().or(self.vocab_file.as_ref());
        let model = model.ok_or_else(|| self.missing("--tokenizer-model (a tokenizer.json or a folder with one)"))?;
        let json = inside(model, "tokenizer.json");
        files.read("tokenizer.json", &json)?;
        read_next_to(files, &json)
    }
}

/// Reads what a folder says of the vocabulary in this file.
fn read_next_to(files: &mut TokenizerFiles, vocabulary: &Path) -> Result<(), TokenizerError> {
    for name in SETTINGS.into_iter().chain([TokenizerFiles::CHAT_TEMPLATE]) {
        let neighbour = vocabulary.with_file_name(name);
        if neighbour.is_file() {
            files.read(name, &neighbour)?;
        }
    }
    Ok(())
}

/// Returns the file itself, or the one of this name in the folder.
fn inside(path: &Path, name: &str) -> PathBuf {
    if path.is_dir() {
        path.join(name)
    } else {
        path.to_owned()
    }
}
