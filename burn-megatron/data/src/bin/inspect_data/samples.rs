//! The samples that BERT, T5 and fine-tuning on conversations have of a data set.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use burn_megatron_data::bert_dataset::{BertDataset, BertDatasetConfig, BertSample};
use burn_megatron_data::chat_dataset::{
    ChatDataset, ChatDatasetConfig, ChatSample, ChatTemplate, Conversations, LongConversations,
};
use burn_megatron_data::indexed_dataset::{IndexedDataset, SentenceDocuments};
use burn_megatron_data::programs::TokenizerArguments;
use burn_megatron_data::samples::SampleSet;
use burn_megatron_data::t5_dataset::{T5Dataset, T5DatasetConfig, T5Sample};
use burn_megatron_data::tokenizer::{ByteTokenizer, MaskedByteTokenizer, Token, Tokenizer};
use clap::{Args, ValueEnum};

/// Whose samples are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Two segments of masked sentences
    Bert,
    /// Text with spans left out, and the spans
    T5,
    /// Conversations of a file of JSON lines, whose path is given instead of a data set's
    Chat,
}

/// Which samples are printed instead of documents.
#[derive(Debug, Args)]
#[command(next_help_heading = "Samples")]
pub(crate) struct SampleArguments {
    /// Print samples instead of documents, --documents of them and --from there: bert, t5 or chat
    #[arg(long, value_name = "KIND")]
    pub(crate) samples: Option<Kind>,
    /// Tokens of a sample
    #[arg(long, default_value_t = 128)]
    seq_length: usize,
    /// Tokens of a sample in T5's decoder
    #[arg(long, default_value_t = 64)]
    decoder_seq_length: usize,
}

/// Prints samples of this kind.
pub(crate) fn print(
    out: &mut impl Write,
    kind: Kind,
    prefix: &Path,
    arguments: &SampleArguments,
    tokenizer: &TokenizerArguments,
    range: std::ops::Range<u64>,
) -> anyhow::Result<()> {
    let SampleArguments {
        seq_length,
        decoder_seq_length,
        ..
    } = *arguments;
    let files = tokenizer.config()?.map(|config| config.files()).transpose()?;
    let bytes: Arc<dyn Tokenizer> = match kind {
        Kind::Bert | Kind::T5 => Arc::new(MaskedByteTokenizer),
        Kind::Chat => Arc::new(ByteTokenizer),
    };
    let tokenizer = files.as_ref().map_or(Ok(bytes), |files| files.tokenizer())?;
    let texts = Texts(&*tokenizer);
    let documents = || -> anyhow::Result<Arc<IndexedDataset>> { Ok(Arc::new(IndexedDataset::open(prefix)?)) };
    match kind {
        Kind::Bert => {
            let (config, documents) = (BertDatasetConfig::new(seq_length, None), documents()?);
            let all = 0..documents.num_whole_documents();
            let dataset = BertDataset::new(&config, documents, all, tokenizer.clone(), None)?;
            each(out, &dataset, range, |out, sample| texts.bert(out, sample))
        }
        Kind::T5 => {
            let config = T5DatasetConfig::new(seq_length, decoder_seq_length, None);
            let documents = documents()?;
            let all = 0..documents.num_whole_documents();
            let dataset = T5Dataset::new(&config, documents, all, tokenizer.clone(), None)?;
            each(out, &dataset, range, |out, sample| texts.t5(out, sample))
        }
        Kind::Chat => {
            let template = files.as_ref().map(ChatTemplate::of_tokenizer).transpose()?.flatten();
            let template = template.unwrap_or_else(ChatTemplate::chatml);
            let long = LongConversations::Cut;
            let mut conversations = Conversations::new(tokenizer.vocabulary_size(), seq_length, long);
            conversations.read(prefix, &template, &*tokenizer)?;
            let totals = conversations.totals();
            writeln!(
                out,
                "{} conversations as {} texts, of them {} cut; {} without answers left out",
                totals.conversations, totals.texts, totals.cut, totals.without_answers
            )?;
            let ignored: Vec<&str> = conversations.ignored_keys().collect();
            if !ignored.is_empty() {
                writeln!(out, "without effect are the keys {}", ignored.join(", "))?;
            }
            let all = 0..conversations.len();
            let config = ChatDatasetConfig::new(None);
            let dataset = ChatDataset::new(&config, Arc::new(conversations), all, &*tokenizer)?;
            each(out, &dataset, range, |out, sample| texts.chat(out, sample))
        }
    }
}

fn each<W: Write, S>(
    out: &mut W,
    dataset: &dyn SampleSet<Sample = S>,
    range: std::ops::Range<u64>,
    print: impl Fn(&mut W, &S) -> io::Result<()>,
) -> anyhow::Result<()> {
    writeln!(out, "samples of an epoch: {}", dataset.num_samples())?;
    for index in range.start..range.end.min(dataset.num_samples()) {
        writeln!(out, "\nsample {index}")?;
        let sample = dataset.read(index).with_context(|| format!("sample {index}"))?;
        print(out, &sample)?;
    }
    Ok(())
}

/// Tokens as text, with names for those that have a role.
struct Texts<'a>(&'a dyn Tokenizer);

impl Texts<'_> {
    fn bert(&self, out: &mut impl Write, sample: &BertSample) -> io::Result<()> {
        let order = if sample.is_next_random { "swapped" } else { "in order" };
        writeln!(out, "{} tokens, segments {order}", sample.length)?;
        writeln!(out, "{}", self.text(&sample.tokens[..sample.length]))?;
        let targets: Vec<Token> = counted(&sample.targets, &sample.loss_mask);
        writeln!(out, "targets: {}", self.text(&targets))
    }

    fn t5(&self, out: &mut impl Write, sample: &T5Sample) -> io::Result<()> {
        let (encoder, decoder) = (sample.encoder_length, sample.decoder_length);
        writeln!(out, "{encoder} tokens for the encoder, {decoder} for the decoder")?;
        writeln!(out, "encoder: {}", self.text(&sample.encoder_tokens[..encoder]))?;
        writeln!(out, "decoder: {}", self.text(&sample.decoder_tokens[..decoder]))?;
        writeln!(out, "targets: {}", self.text(&sample.targets[..decoder]))
    }

    fn chat(&self, out: &mut impl Write, sample: &ChatSample) -> io::Result<()> {
        let targets = counted(&sample.targets, &sample.loss_mask);
        writeln!(out, "{} tokens, {} of the targets count", sample.length, targets.len())?;
        writeln!(out, "{}", self.text(&sample.tokens[..sample.length]))?;
        writeln!(out, "targets that count: {}", self.text(&targets))
    }

    fn text(&self, tokens: &[Token]) -> String {
        let roles = self.0.token_roles();
        let name = |token: &Token| {
            let named = [
                (roles.cls, "[CLS]"),
                (roles.sep, "[SEP]"),
                (roles.mask, "[MASK]"),
                (roles.pad, "[PAD]"),
            ];
            let named = named
                .iter()
                .find(|(role, _)| *role == Some(*token))
                .map(|(_, name)| (*name).to_owned());
            let sentinel = || roles.sentinels.iter().position(|sentinel| sentinel == token);
            let is_special = self.0.special_tokens().binary_search(token).is_ok();
            let special = || {
                is_special
                    .then(|| self.0.decode_with_special(&[*token]))
                    .filter(|text| !text.is_empty())
            };
            let named = named.or_else(|| sentinel().map(|number| format!("<{number}>")));
            named.or_else(special)
        };
        let mut text = String::new();
        for run in tokens.chunk_by(|left, right| name(left).is_none() && name(right).is_none()) {
            text.push_str(&name(&run[0]).unwrap_or_else(|| self.0.decode(run)));
        }
        text
    }
}

fn counted(targets: &[Token], loss_mask: &[f32]) -> Vec<Token> {
    let counts = targets.iter().zip(loss_mask).filter(|(_, mask)| **mask > 0.0);
    counts.map(|(target, _)| *target).collect()
}
