//! Samples of conversations, of which the assistant's answers are learnt: `--sft`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use burn_megatron::data::{BatchSource, ChatBatches};
use burn_megatron_data::chat_dataset::{
    ChatDataset, ChatDatasetConfig, ChatTemplate, ConversationTotals, Conversations, LongConversations,
};
use burn_megatron_data::tokenizer::TokenizerFiles;
use models::Objective;
use sha2::{Digest as _, Sha256};

use super::run_text::{RunText, TextRequest, Validation, mixed_hash};

/// Reads the conversations that `--data-path`, or `--train-data-path` and `--valid-data-path`, name, a line each of
/// `{"messages": [{"role": …, "content": …}, …]}`, in the words of the tokenizer's template, or else of ChatML.
///
/// # Errors
/// When the model predicts something else than the next token, flags are given that are for other samples, a file
/// cannot be read, or there are too few conversations.
pub(super) fn of_files(request: TextRequest<'_>) -> anyhow::Result<RunText> {
    let TextRequest {
        arguments,
        objective,
        sizes,
        tokenizer: run_tokenizer,
    } = request;
    ensure!(
        objective == Objective::NextToken,
        "--sft is for models that predict the next token, and this one does not: leave it out"
    );
    let files = arguments.conversations()?;
    arguments.check_no_marking("texts, and conversations are apart with --sft")?;
    let template = ChatTemplate::of_tokenizer(run_tokenizer.files())?.unwrap_or_else(ChatTemplate::chatml);
    let tokenizer = run_tokenizer.tokenizer().clone();
    let template_file = run_tokenizer.files().find(TokenizerFiles::CHAT_TEMPLATE);
    let mut parts = vec![
        run_tokenizer.sha256().into_bytes(),
        template_file.unwrap_or_default().to_vec(),
    ];
    let mut read = |paths: &[PathBuf]| -> anyhow::Result<Arc<Conversations>> {
        let mut all = Conversations::new(
            tokenizer.vocabulary_size(),
            sizes.seq_length,
            LongConversations::default(),
        );
        for path in paths {
            all.read(path, &template, &*tokenizer)?;
            parts.push(digest(path)?);
        }
        Ok(Arc::new(all))
    };
    let train = read(&files.train)?;
    let validation = files.validation.map(|paths| read(&paths)).transpose()?;
    if validation.is_some() {
        // The same files in other parts are another text.
        parts.push(files.train.len().to_le_bytes().to_vec());
    }
    let all: Vec<&Conversations> = [Some(&train), validation.as_ref()]
        .into_iter()
        .flatten()
        .map(|set| &**set)
        .collect();
    let notes = [cut(&all, sizes.seq_length), ignored(&all)];
    let note = notes.into_iter().flatten().collect::<Vec<_>>();
    let note = (!note.is_empty()).then(|| note.join("\n"));
    let num_conversations = all.iter().map(|set| set.totals().conversations as usize).sum();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let hash = mixed_hash(&parts);
    let batches = move |all: &Arc<Conversations>, range: Range<usize>, num_samples, seed| {
        let config = ChatDatasetConfig {
            num_samples: Some(num_samples),
            seed,
        };
        let dataset = ChatDataset::new(&config, all.clone(), range, &*tokenizer)?;
        Ok::<_, anyhow::Error>(Arc::new(ChatBatches::new(Arc::new(dataset))) as Arc<dyn BatchSource>)
    };
    if arguments.train_data_path.is_empty() {
        let ConversationTotals {
            texts, without_answers, ..
        } = train.totals();
        ensure!(
            texts > 1,
            "--data-path has {texts} conversations with answers, and {without_answers} without: two at least are \
             needed, one to train on and one to validate with; --train-data-path names files to train on, whole"
        );
        let text = RunText::of_documents(
            (train.len(), hash),
            sizes,
            "the conversations of validation",
            |range| range.len() * sizes.seq_length,
            move |range, num_samples, sizes| batches(&train, range, num_samples, sizes.seed),
        )?;
        let (_, num_validation) = text.num_documents;
        return Ok(RunText {
            num_documents: (num_conversations, num_validation),
            note,
            ..text
        });
    }
    let samples = batches(&train, 0..train.len(), sizes.num_train, sizes.seed).context("--train-data-path")?;
    Ok(RunText {
        train: samples,
        hash,
        num_train_tokens: train.len() * sizes.seq_length,
        num_documents: (num_conversations, validation.as_ref().map_or(0, |set| set.len())),
        note,
        validation: match validation {
            None => Validation::None,
            Some(set) => Validation::Documents(Box::new(move |sizes| {
                batches(&set, 0..set.len(), sizes.num_validation, sizes.seed).context("--valid-data-path")
            })),
        },
    })
}

/// Says which conversations are not learnt as they are.
fn cut(all: &[&Conversations], seq_length: usize) -> Option<String> {
    let sum = |count: fn(ConversationTotals) -> u64| all.iter().map(|set| count(set.totals())).sum::<u64>();
    let (cut, without_answers) = (sum(|totals| totals.cut), sum(|totals| totals.without_answers));
    (cut + without_answers > 0).then(|| {
        format!(
            "warning: of {} conversations {cut} are longer than --seq-length {seq_length} and are cut, and \
             {without_answers} without answers are left out",
            sum(|totals| totals.conversations)
        )
    })
}

/// Names the keys that are not read.
fn ignored(all: &[&Conversations]) -> Option<String> {
    let keys: BTreeSet<&str> = all.iter().flat_map(|set| set.ignored_keys()).collect();
    let keys: Vec<&str> = keys.into_iter().collect();
    (!keys.is_empty()).then(|| format!("conversations: without effect are the keys {}", keys.join(", ")))
}

/// What tells a file's content from others'.
fn digest(path: &Path) -> anyhow::Result<Vec<u8>> {
    let named = || path.display().to_string();
    let mut file = BufReader::new(File::open(path).with_context(named)?);
    let mut hash = Sha256::new();
    loop {
        let bytes = file.fill_buf().with_context(named)?;
        if bytes.is_empty() {
            return Ok(hash.finalize().to_vec());
        }
        hash.update(bytes);
        let count = bytes.len();
        file.consume(count);
    }
}
