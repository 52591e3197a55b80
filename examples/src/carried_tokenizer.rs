//! A tokenizer's files between Hugging Face's folders and checkpoints, whichever of them a program reads.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, ensure};
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron_data::tokenizer::TokenizerFiles;
use models::huggingface::NamedBytes;

use crate::run_tokenizer::{FILES, RunTokenizer, TokenizerState, stored_file};

/// The files that are carried, where they are there: a program may read others of them than this one does.
const CARRIED: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "vocab.txt",
];

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
        let tokenizer = RunTokenizer::of_folder(folder).and_then(|tokenizer| {
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
        let mut arrays = Vec::new();
        for name in CARRIED.into_iter().filter(|name| folder.join(name).is_file()) {
            let content = read_bounded(&folder.join(name))?;
            arrays.push(NamedBytes {
                name: format!("{FILES}{name}"),
                content,
            });
        }
        Ok(Self {
            state: tokenizer.map(|tokenizer| tokenizer.state()),
            arrays,
        })
    }
}

fn read_bounded(path: &Path) -> anyhow::Result<Vec<u8>> {
    let (limit, mut content) = (TokenizerFiles::MAX_FILE_BYTES, Vec::new());
    let read = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut content));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        content.len() as u64 <= limit,
        "{} has more than {limit} bytes: a tokenizer's files have no more",
        path.display()
    );
    Ok(content)
}

/// Returns the tokenizer's files that a checkpoint carries, by their names in a folder.
pub fn carried_files(checkpoint: &Checkpoint) -> anyhow::Result<Vec<NamedBytes>> {
    let mut files = Vec::new();
    for name in CARRIED {
        files.extend(stored_file(checkpoint, name)?.map(|content| NamedBytes {
            name: name.to_owned(),
            content,
        }));
    }
    Ok(files)
}
