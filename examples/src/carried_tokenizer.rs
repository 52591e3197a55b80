//! A tokenizer's files between Hugging Face's folders and checkpoints, whichever of them a program reads.

use std::path::Path;

use anyhow::Context as _;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron_data::tokenizer::TokenizerFiles;
use models::huggingface::NamedBytes;
use serde_json::{Value, json};

use crate::run_tokenizer::{FILES, RunTokenizer, TokenizerState, stored_file};

/// The tokenizer of a folder of Hugging Face's files, as a checkpoint carries it.
pub struct CarriedTokenizer {
    /// What the checkpoint's state says of it; nothing without a file that makes a tokenizer.
    pub state: Option<TokenizerState>,
    /// All its files, as arrays.
    pub arrays: Vec<NamedBytes>,
}

impl CarriedTokenizer {
    /// Reads that of a folder, for a model with a vocabulary of this size.
    ///
    /// # Errors
    /// When a file cannot be read or is not what its name promises, or the tokenizer has more tokens than the model.
    pub fn of_folder(folder: &Path, vocab_size: usize) -> anyhow::Result<Self> {
        let contents = TokenizerFiles::contents(folder)?;
        let tokenizer = RunTokenizer::of_contents(contents.clone()).and_then(|tokenizer| {
            let found = tokenizer.as_ref().map(RunTokenizer::tokenizer);
            found.map_or(Ok(()), |found| found.check_vocabulary(vocab_size))?;
            Ok(tokenizer)
        });
        let tokenizer = tokenizer.with_context(|| {
            format!(
                "the tokenizer in {}; without its files the parameters are imported alone",
                folder.display()
            )
        })?;
        let arrays = contents.into_iter().map(|(name, content)| NamedBytes {
            name: format!("{FILES}{name}"),
            content,
        });
        Ok(Self {
            state: tokenizer.map(|tokenizer| tokenizer.state()),
            arrays: arrays.collect(),
        })
    }
}

/// Returns the files next to a model's parameters that a checkpoint carries, by their names in a folder. Of a
/// `config.json` it has the numbers of tokens: those of the model that was imported, else the tokenizer's.
///
/// # Errors
/// When a file cannot be read, or the tokenizer is not what was saved.
pub fn carried_files(checkpoint: &Checkpoint) -> anyhow::Result<Vec<NamedBytes>> {
    let mut files = Vec::new();
    for array in checkpoint.arrays() {
        if let Some(name) = array.name.strip_prefix(FILES) {
            files.extend(stored_file(checkpoint, name)?.map(|content| NamedBytes {
                name: name.to_owned(),
                content,
            }));
        }
    }
    if let Some(tokenizer) = RunTokenizer::of_checkpoint(checkpoint)? {
        let of_tokenizer = numbers(&tokenizer);
        let of_model = files.iter().position(|file| file.name == TokenizerFiles::MODEL);
        let numbers = match of_model.map(|place| files.swap_remove(place).content) {
            None => of_tokenizer,
            Some(content) => {
                let mut numbers: Value = serde_json::from_slice(&content).context(TokenizerFiles::MODEL)?;
                // Where a text ends is said, whatever says it here.
                if numbers["eos_token_id"].is_null() {
                    numbers["eos_token_id"] = of_tokenizer["eos_token_id"].clone();
                }
                numbers
            }
        };
        files.push(NamedBytes {
            name: TokenizerFiles::MODEL.to_owned(),
            content: numbers.to_string().into_bytes(),
        });
    }
    Ok(files)
}

/// Returns the numbers of a tokenizer's tokens as a `config.json` has them: null where it has none.
fn numbers(tokenizer: &RunTokenizer) -> Value {
    let tokenizer = tokenizer.tokenizer();
    let roles = tokenizer.token_roles();
    let ends = match tokenizer.ends_of_text()[..] {
        [] => Value::Null,
        [end] => end.into(),
        ref ends => ends.into(),
    };
    json!({"bos_token_id": roles.bos, "eos_token_id": ends, "pad_token_id": roles.pad})
}
