//! The flags that name a tokenizer, and the tokenizer that they name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use crate::tokenizer::{ByteTokenizer, Tokenizer, TokenizerConfig, TokenizerKind};

/// Flags that name a tokenizer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Tokenizer")]
pub struct TokenizerArguments {
    /// GPT2BPETokenizer, HuggingFaceTokenizer, SentencePieceTokenizer, BertWordPieceLowerCase, BertWordPieceCase,
    /// NullTokenizer, ByteTokenizer or MaskedByteTokenizer [default: by the files; without files ByteTokenizer]
    #[arg(long, value_name = "TYPE")]
    pub tokenizer_type: Option<TokenizerKind>,
    /// Vocabulary: vocab.json, vocab.txt
    #[arg(long, alias = "vocab", value_name = "FILE")]
    pub vocab_file: Option<PathBuf>,
    /// Merges of a BPE vocabulary [default: merges.txt next to the vocabulary]
    #[arg(long, value_name = "FILE")]
    pub merge_file: Option<PathBuf>,
    /// tokenizer.json, a folder with one, or tokenizer.model
    #[arg(long, value_name = "PATH")]
    pub tokenizer_model: Option<PathBuf>,
    /// Tokens of the NullTokenizer, without the end of a document
    #[arg(long, value_name = "N")]
    pub vocab_size: Option<usize>,
}

impl TokenizerArguments {
    /// Returns which tokenizer the flags name; `None` if they name none.
    ///
    /// # Errors
    /// If the files do not tell the kind, or the kind has no files.
    pub fn config(&self) -> anyhow::Result<Option<TokenizerConfig>> {
        let files = [&self.vocab_file, &self.merge_file, &self.tokenizer_model];
        let named = files.into_iter().flatten().next();
        let kind = match (self.tokenizer_type, named) {
            (None, None) if self.vocab_size.is_none() => return Ok(None),
            (Some(kind @ (TokenizerKind::ByteTokenizer | TokenizerKind::MaskedByteTokenizer)), Some(file)) => {
                anyhow::bail!(
                    "the {kind} has no vocabulary: leave out {}, or give another --tokenizer-type",
                    file.display()
                )
            }
            (Some(kind), _) => kind,
            (None, _) => self.kind_of_files()?,
        };
        Ok(Some(TokenizerConfig {
            kind,
            vocab_file: self.vocab_file.clone(),
            merge_file: self.merge_file.clone(),
            model: self.tokenizer_model.clone(),
            num_tokens: self.vocab_size,
        }))
    }

    fn kind_of_files(&self) -> anyhow::Result<TokenizerKind> {
        let ends_in = |path: &Option<PathBuf>, extension: &str| {
            let path = path.as_deref().and_then(Path::extension);
            path.is_some_and(|found| found == OsStr::new(extension))
        };
        if self.merge_file.is_some() || ends_in(&self.vocab_file, "json") {
            return Ok(TokenizerKind::GPT2BPETokenizer);
        }
        let is_folder_of_pieces = self
            .tokenizer_model
            .as_deref()
            .is_some_and(|folder| folder.join("tokenizer.model").is_file() && !folder.join("tokenizer.json").is_file());
        if is_folder_of_pieces || ends_in(&self.tokenizer_model, "model") {
            return Ok(TokenizerKind::SentencePieceTokenizer);
        }
        if self.tokenizer_model.is_some() {
            return Ok(TokenizerKind::HuggingFaceTokenizer);
        }
        anyhow::bail!(
            "give --tokenizer-type: the files do not tell it; valid are {}",
            TokenizerKind::names()
        )
    }
}

/// Loads the tokenizer that flags name, the byte tokenizer if they name none.
///
/// # Errors
/// If the kind is not known, or a file cannot be read.
pub fn load_tokenizer(arguments: &TokenizerArguments) -> anyhow::Result<Arc<dyn Tokenizer>> {
    match arguments.config()? {
        Some(config) => Ok(config.load()?),
        None => Ok(Arc::new(ByteTokenizer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_tell_the_kind() {
        let kind = |arguments: TokenizerArguments| arguments.config().map(|config| config.map(|config| config.kind));
        let path = |name: &str| Some(PathBuf::from(name));
        assert_eq!(kind(TokenizerArguments::default()).unwrap(), None);
        let vocab = TokenizerArguments {
            vocab_file: path("a/vocab.json"),
            ..TokenizerArguments::default()
        };
        assert_eq!(kind(vocab).unwrap(), Some(TokenizerKind::GPT2BPETokenizer));
        let model = |name| TokenizerArguments {
            tokenizer_model: path(name),
            ..TokenizerArguments::default()
        };
        assert_eq!(
            kind(model("tokenizer.model")).unwrap(),
            Some(TokenizerKind::SentencePieceTokenizer)
        );
        assert_eq!(
            kind(model("folder")).unwrap(),
            Some(TokenizerKind::HuggingFaceTokenizer)
        );
        let words = TokenizerArguments {
            vocab_file: path("vocab.txt"),
            ..TokenizerArguments::default()
        };
        let message = kind(words.clone()).unwrap_err().to_string();
        assert!(message.contains("give --tokenizer-type"), "{message}");
        let bytes = TokenizerArguments {
            tokenizer_type: Some(TokenizerKind::ByteTokenizer),
            ..words
        };
        let message = kind(bytes).unwrap_err().to_string();
        assert!(message.contains("has no vocabulary: leave out vocab.txt"), "{message}");
    }
}
