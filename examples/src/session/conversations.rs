//! Samples of conversations, of which the assistant's answers are learnt: `--sft`.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use burn_megatron::data::ChatBatches;
use burn_megatron_data::chat_dataset::{
    ChatDataset, ChatDatasetConfig, ChatTemplate, ConversationTotals, Conversations, LongConversations,
};
use burn_megatron_data::tokenizer::TokenizerFiles;
use models::Objective;
use sha2::{Digest as _, Sha256};

use super::run_text::{RunText, TextRequest, mixed_hash};
use crate::arguments::TextSource;

/// Reads the conversations that `--data-path` names, a line each of `{"messages": [{"role": …, "content": …}, …]}`, in
/// the words of the tokenizer's template, or else of ChatML.
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
    let paths = match arguments.source()? {
        TextSource::Files(paths) => paths,
        TextSource::CargoRegistry => bail!("--sft reads conversations: give --data-path FILE.jsonl"),
        TextSource::DataSets(_) => {
            bail!("--sft reads files of conversations, and --data-path names data sets of tokens")
        }
    };
    arguments.check_no_marking("texts, and conversations are apart with --sft")?;
    let template = ChatTemplate::of_tokenizer(run_tokenizer.files())?.unwrap_or_else(ChatTemplate::chatml);
    let tokenizer = run_tokenizer.tokenizer().clone();
    let mut all = Conversations::new(
        tokenizer.vocabulary_size(),
        sizes.seq_length,
        LongConversations::default(),
    );
    let template_file = run_tokenizer.files().find(TokenizerFiles::CHAT_TEMPLATE);
    let mut parts = vec![
        run_tokenizer.sha256().into_bytes(),
        template_file.unwrap_or_default().to_vec(),
    ];
    for path in &paths {
        all.read(path, &template, &*tokenizer)?;
        parts.push(digest(path)?);
    }
    let ConversationTotals {
        taken,
        cut,
        without_answers,
    } = all.totals();
    ensure!(
        all.len() > 1,
        "--data-path has {taken} conversations with answers, and {without_answers} without: two at least are needed, \
         one to train on and one to validate with"
    );
    let note = (cut + without_answers > 0).then(|| {
        format!(
            "warning: of {} conversations {cut} are longer than --seq-length {} and are cut, and {without_answers} \
             without answers are left out",
            taken + without_answers,
            sizes.seq_length
        )
    });
    let (count, all) = (all.len(), Arc::new(all));
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let text = RunText::of_documents(
        (count, mixed_hash(&parts)),
        sizes,
        "the conversations of validation",
        |range| range.len() * sizes.seq_length,
        move |range, num_samples, sizes| {
            let config = ChatDatasetConfig {
                num_samples: Some(num_samples),
                seed: sizes.seed,
            };
            let dataset = ChatDataset::new(&config, all.clone(), range, &*tokenizer)?;
            Ok(Arc::new(ChatBatches::new(Arc::new(dataset))))
        },
    )?;
    let (_, num_validation) = text.num_documents;
    Ok(RunText {
        num_documents: (taken as usize, num_validation),
        note,
        ..text
    })
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
