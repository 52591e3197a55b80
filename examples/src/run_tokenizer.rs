//! [`RunTokenizer`]: the tokenizer of a run, which its checkpoints carry.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use burn::tensor::{Bytes, DType};
use burn_megatron::checkpoint::{ArrayPart, Checkpoint};
use burn_megatron::parameters::Placement;
use burn_megatron_data::chat_dataset::ChatTemplate;
use burn_megatron_data::programs::TokenizerArguments;
use burn_megatron_data::tokenizer::{Tokenizer, TokenizerConfig, TokenizerFiles, TokenizerKind};
use models::Objective;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Begins the names of the arrays of bytes that hold a tokenizer's files.
pub(crate) const FILES: &str = "tokenizer.";
/// Files that Hugging Face's folders may have, the best first.
const FOREIGN: [(&str, TokenizerKind); 4] = [
    ("tokenizer.json", TokenizerKind::HuggingFaceTokenizer),
    ("tokenizer.model", TokenizerKind::SentencePieceTokenizer),
    ("vocab.json", TokenizerKind::GPT2BPETokenizer),
    ("vocab.txt", TokenizerKind::BertWordPieceLowerCase),
];

/// A tokenizer, and the files that it was made from.
#[derive(Clone)]
pub struct RunTokenizer {
    files: TokenizerFiles,
    tokenizer: Arc<dyn Tokenizer>,
}

/// What a checkpoint says of its tokenizer, whose files are arrays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerState {
    kind: TokenizerKind,
    num_tokens: Option<usize>,
    files: Vec<String>,
    sha256: String,
}

/// The part of a checkpoint's state that names the tokenizer.
#[derive(Deserialize)]
struct StateWithTokenizer {
    #[serde(default)]
    tokenizer: Option<TokenizerState>,
}

impl RunTokenizer {
    fn new(files: TokenizerFiles) -> anyhow::Result<Self> {
        let tokenizer = files.tokenizer()?;
        Ok(Self { files, tokenizer })
    }

    /// Bytes as tokens, and in addition what samples of an objective need.
    ///
    /// # Errors
    /// None: its tokenizer has no files.
    pub fn bytes(objective: Objective) -> anyhow::Result<Self> {
        let kind = match objective {
            Objective::NextToken => TokenizerKind::ByteTokenizer,
            Objective::MaskedTokens { .. } | Objective::Spans { .. } => TokenizerKind::MaskedByteTokenizer,
        };
        let config = TokenizerConfig {
            kind,
            ..TokenizerConfig::default()
        };
        Self::new(config.files()?)
    }

    /// Returns the tokenizer that flags name, or the one of the checkpoint, or bytes.
    ///
    /// # Errors
    /// When a file cannot be read, or the flags name another tokenizer than the checkpoint has; when neither names one
    /// for a checkpoint whose vocabulary is not that of bytes.
    pub fn choose(
        flags: &TokenizerArguments,
        checkpoint: Option<&Checkpoint>,
        objective: Objective,
    ) -> anyhow::Result<Self> {
        Self::choose_of(flags, checkpoint.map(|found| (found, found.path())), objective)
    }

    /// Returns the tokenizer as [`choose`](Self::choose) does, of a checkpoint whose parameters are from a path.
    fn choose_of(
        flags: &TokenizerArguments,
        checkpoint: Option<(&Checkpoint, &Path)>,
        objective: Objective,
    ) -> anyhow::Result<Self> {
        let stored = match checkpoint {
            Some((checkpoint, _)) => stored_files(checkpoint)?.map(|files| (checkpoint, files)),
            None => None,
        };
        match (flags.config()?, stored) {
            (None, None) => {
                let bytes = Self::bytes(objective)?;
                if let Some((checkpoint, source)) = checkpoint {
                    let tokens = checkpoint.state().pointer("/model/vocab_size").and_then(Value::as_u64);
                    ensure!(
                        tokens.is_none_or(|tokens| tokens == bytes.vocabulary_size() as u64),
                        "the model's vocabulary has {} tokens, and {} names no tokenizer: give --tokenizer-type and \
                         its files",
                        tokens.unwrap_or_default(),
                        source.display()
                    );
                }
                Ok(bytes)
            }
            (None, Some((_, stored))) => Self::new(stored),
            (Some(config), stored) => {
                let mut given = config.files()?;
                if let Some((checkpoint, stored)) = stored {
                    let name = format!("the tokenizer of {}", checkpoint.path().display());
                    given.check_same("that of the flags", &stored, &name)?;
                    given.fill_from(&stored);
                }
                Self::new(given)
            }
        }
    }

    /// Returns the tokenizer that flags name, or the one of a checkpoint, or of the folder of its parameters, for a
    /// model that predicts the next token.
    ///
    /// # Errors
    /// As [`choose`](Self::choose); when there is none for a vocabulary of this size.
    pub fn of_model(
        flags: &TokenizerArguments,
        checkpoint: &Checkpoint,
        source: &Path,
        vocab_size: usize,
    ) -> anyhow::Result<Self> {
        let of_folder = match flags.config()? {
            None if stored_files(checkpoint)?.is_none() => Self::of_folder(source)?,
            _ => None,
        };
        let found = match of_folder {
            Some(tokenizer) => tokenizer,
            None => {
                let Self { mut files, tokenizer } =
                    Self::choose_of(flags, Some((checkpoint, source)), Objective::NextToken)?;
                match flags.config()? {
                    None => Self { files, tokenizer },
                    // Where texts end is the model's to say.
                    Some(_) => {
                        files.fill_ends_from(TokenizerFiles::contents(source)?);
                        Self::new(files)?
                    }
                }
            }
        };
        found.tokenizer.check_vocabulary(vocab_size)?;
        Ok(found)
    }

    /// Returns the tokenizer of a folder of Hugging Face's files; `None` if it has none.
    ///
    /// # Errors
    /// When a file cannot be read or is not what its name promises.
    pub fn of_folder(folder: &Path) -> anyhow::Result<Option<Self>> {
        Self::of_contents(TokenizerFiles::contents(folder)?)
    }

    /// Returns the tokenizer of files by their names; `None` if they have none.
    ///
    /// # Errors
    /// When one is not what its name promises.
    pub(crate) fn of_contents(contents: Vec<(String, Vec<u8>)>) -> anyhow::Result<Option<Self>> {
        let is_there = |name: &str| contents.iter().any(|(found, _)| found == name);
        let Some((_, kind)) = FOREIGN.into_iter().find(|(name, _)| is_there(name)) else {
            return Ok(None);
        };
        let files = TokenizerFiles::from_parts(kind, None, contents);
        Self::new(files.with_case_of_config()?).map(Some)
    }

    /// Returns this tokenizer with ChatML as its template if it has none, so that what conversations are written in is
    /// carried along.
    ///
    /// # Errors
    /// When its template cannot be read.
    pub fn with_template(mut self) -> anyhow::Result<Self> {
        if ChatTemplate::of_tokenizer(&self.files)?.is_none() {
            let template = (TokenizerFiles::CHAT_TEMPLATE.to_owned(), ChatTemplate::CHATML.into());
            let chatml = TokenizerFiles::from_parts(self.files.kind(), None, vec![template]);
            self.files.fill_from(&chatml);
        }
        Ok(self)
    }

    /// Returns the tokenizer that a checkpoint carries; `None` if it says nothing of one.
    ///
    /// # Errors
    /// When a file is missing, or is not what was saved.
    pub fn of_checkpoint(checkpoint: &Checkpoint) -> anyhow::Result<Option<Self>> {
        stored_files(checkpoint)?.map(Self::new).transpose()
    }

    /// The files that it was made from.
    pub fn files(&self) -> &TokenizerFiles {
        &self.files
    }

    pub fn tokenizer(&self) -> &Arc<dyn Tokenizer> {
        &self.tokenizer
    }

    pub fn vocabulary_size(&self) -> usize {
        self.tokenizer.vocabulary_size()
    }

    /// Whether its tokens are the bytes of the text.
    pub fn is_bytes(&self) -> bool {
        self.files.kind() == TokenizerKind::ByteTokenizer
    }

    /// Its kind, for people.
    pub fn name(&self) -> &'static str {
        self.files.kind().name()
    }

    /// The SHA-256 of its files: two that have the same one give the same tokens.
    pub fn sha256(&self) -> String {
        self.files.sha256()
    }

    /// What a checkpoint says of it.
    pub fn state(&self) -> TokenizerState {
        TokenizerState {
            kind: self.files.kind(),
            num_tokens: self.files.num_tokens(),
            files: self.files.files().map(|(name, _)| name.to_owned()).collect(),
            sha256: self.sha256(),
        }
    }

    /// Its files as arrays of a checkpoint, which one rank stores.
    pub fn parts(&self) -> Vec<ArrayPart> {
        let part = |(name, content): (&str, &[u8])| {
            let placement = Placement::whole([content.len()]);
            let bytes = Bytes::from_elems(content.to_vec());
            ArrayPart::whole(format!("{FILES}{name}"), placement, DType::U8, bytes)
        };
        self.files.files().map(part).collect()
    }
}

/// Returns a file that a checkpoint carries; `None` if it has none of this name.
pub(crate) fn stored_file(checkpoint: &Checkpoint, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let array = format!("{FILES}{name}");
    let Some(stored) = checkpoint.array(&array) else {
        return Ok(None);
    };
    let length = stored.num_elements();
    let content = checkpoint.read(&array, &Placement::whole([length]), 0..length)?;
    let path = checkpoint.path().display();
    ensure!(content.dtype == DType::U8, "{path}: {array} has no bytes");
    Ok(Some(content.bytes.to_vec()))
}

/// Returns the files of a checkpoint's tokenizer; `None` if it says nothing of one.
fn stored_files(checkpoint: &Checkpoint) -> anyhow::Result<Option<TokenizerFiles>> {
    let path = checkpoint.path().display();
    let state: StateWithTokenizer = serde_json::from_value(checkpoint.state().clone())
        .with_context(|| format!("{path}: what it says of its tokenizer"))?;
    let Some(state) = state.tokenizer else {
        return Ok(None);
    };
    let read = |name: &String| {
        let content = stored_file(checkpoint, name)?;
        let content = content.with_context(|| format!("{path} has no array {FILES}{name}"))?;
        Ok((name.clone(), content))
    };
    let parts = state.files.iter().map(read).collect::<anyhow::Result<_>>()?;
    let files = TokenizerFiles::from_parts(state.kind, state.num_tokens, parts);
    ensure!(
        files.sha256() == state.sha256,
        "{path}: its tokenizer has SHA-256 {}, and {} was saved",
        files.sha256(),
        state.sha256
    );
    Ok(Some(files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokenizer_without_a_template_carries_chatml() -> anyhow::Result<()> {
        let bytes = RunTokenizer::bytes(Objective::NextToken)?;
        let with_template = bytes.clone().with_template()?;
        let template = with_template.files().find(TokenizerFiles::CHAT_TEMPLATE);
        assert_eq!(template, Some(ChatTemplate::CHATML.as_bytes()));
        assert_eq!(with_template.sha256(), bytes.sha256());
        // One that has a template keeps it.
        let own = (TokenizerFiles::CHAT_TEMPLATE.to_owned(), b"{{ messages }}".to_vec());
        let files = TokenizerFiles::from_parts(TokenizerKind::ByteTokenizer, None, vec![own]);
        let kept = RunTokenizer::new(files.clone())?.with_template()?;
        assert_eq!(kept.files(), &files);
        Ok(())
    }
}
