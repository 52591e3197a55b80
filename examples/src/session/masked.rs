//! Samples of BERT and of T5, from files of text or from a data set of sentences.

use std::ops::Range;
use std::sync::Arc;

use burn_megatron::data::{BatchSource, BertBatches, Corpus, DataSource, RunData, T5Batches};
use burn_megatron_data::bert_dataset::{BertDataset, BertDatasetConfig, BertSample};
use burn_megatron_data::in_memory::InMemorySentences;
use burn_megatron_data::indexed_dataset::SentenceDocuments;
use burn_megatron_data::preprocess::{SentenceEnds, split_sentences};
use burn_megatron_data::samples::SampleSet;
use burn_megatron_data::t5_dataset::{T5Dataset, T5DatasetConfig, T5Sample};
use burn_megatron_data::tokenizer::Tokenizer;
use models::Objective;

use super::data_sets::{DataSets, build_config};
use super::run_text::{RunText, SampleSizes, TextRequest, num_tokens};

/// Endings of files whose lines are no sentences.
const PROSE: [&str; 2] = [".md", ".txt"];

/// What flags of documents' ends are for.
const NO_MARKING: &str = "models that predict the next token";

/// Sentences that samples are made of.
#[derive(Clone)]
struct Sentences {
    documents: Arc<dyn SentenceDocuments>,
    tokenizer: Arc<dyn Tokenizer>,
    objective: Objective,
}

/// Makes the samples of a run from files: of prose by sentences, of others by lines.
///
/// # Errors
/// When flags are given that are for other samples, the tokenizer misses tokens of these, or there is too little text.
pub(super) fn of_corpus(corpus: &Corpus, hash: u64, request: TextRequest<'_>) -> anyhow::Result<RunText> {
    request.arguments.check_no_marking(NO_MARKING)?;
    let tokenizer = request.tokenizer.tokenizer().clone();
    let sentences = corpus.documents().iter().map(|document| {
        // Pieces of a file have a number after its name.
        let name = document.path.rsplit_once('#').map_or(&*document.path, |(name, _)| name);
        if PROSE.iter().any(|ending| name.ends_with(ending)) {
            let mut ranges = Vec::new();
            split_sentences(&document.text, SentenceEnds::Trimmed, &mut ranges);
            ranges.into_iter().map(|range| &document.text[range]).collect()
        } else {
            document.text.lines().collect::<Vec<_>>()
        }
    });
    let documents = InMemorySentences::tokenize_divided(sentences, &*tokenizer);
    let sentences = Sentences {
        documents: Arc::new(documents),
        tokenizer,
        objective: request.objective,
    };
    let documents = sentences.documents.clone();
    RunText::of_documents(
        (documents.num_whole_documents(), hash),
        request.sizes,
        "the validation text",
        |range| num_tokens_of(&*documents, range),
        move |range, num_samples, sizes| sentences.batches(sizes, num_samples, range),
    )
}

/// Makes the samples of a run from data sets of sentences, as `preprocess_data --split-sentences` writes them.
///
/// # Errors
/// As [`of_corpus`]; when a data set cannot be opened, or is of another tokenizer.
pub(super) fn of_data_sets(source: DataSource, request: TextRequest<'_>) -> anyhow::Result<RunText> {
    request.arguments.check_no_marking(NO_MARKING)?;
    let (objective, sizes, tokenizer) = (request.objective, request.sizes, request.tokenizer.tokenizer());
    let mut sets = DataSets::new(&source, format!("{source:?} {objective:?}"), request.tokenizer);
    let open = |prefix: &str| -> anyhow::Result<Arc<dyn SentenceDocuments>> {
        let documents = sets.open(prefix)?;
        let count = documents.num_whole_documents();
        sets.count(prefix, count, |range| num_tokens_of(&documents, range));
        Ok(Arc::new(documents))
    };
    let data = match objective {
        Objective::NextToken => unreachable!("samples of whole texts need no sentences"),
        Objective::MaskedTokens { tells_pairs } => {
            let config = build_config(&source, bert_config(tells_pairs, sizes), request);
            let data = RunData::<dyn SampleSet<Sample = BertSample>>::build_bert(&config, tokenizer, open)?;
            data.map(|dataset| -> Arc<dyn BatchSource> { Arc::new(BertBatches::new(dataset, tells_pairs)) })
        }
        Objective::Spans { decoder_seq_length } => {
            let config = build_config(&source, t5_config(decoder_seq_length, sizes), request);
            let data = RunData::<dyn SampleSet<Sample = T5Sample>>::build_t5(&config, tokenizer, open)?;
            data.map(|dataset| -> Arc<dyn BatchSource> { Arc::new(T5Batches::new(dataset, decoder_seq_length)) })
        }
    };
    sets.text(data)
}

fn bert_config(tells_pairs: bool, sizes: SampleSizes) -> BertDatasetConfig {
    let mut config = BertDatasetConfig::new(sizes.seq_length, None);
    config.samples.seed = sizes.seed;
    config.two_segments = tells_pairs;
    config
}

fn t5_config(decoder_seq_length: usize, sizes: SampleSizes) -> T5DatasetConfig {
    let mut config = T5DatasetConfig::new(sizes.seq_length, decoder_seq_length, None);
    config.samples.seed = sizes.seed;
    config
}

fn num_tokens_of(documents: &dyn SentenceDocuments, range: Range<usize>) -> usize {
    let sentences = range.map(|document| documents.document_sentences(document));
    sentences.map(|range| num_tokens(documents.sentences(), range)).sum()
}

impl Sentences {
    /// This number of samples of some of the documents.
    fn batches(
        &self,
        sizes: SampleSizes,
        num_samples: u64,
        range: Range<usize>,
    ) -> anyhow::Result<Arc<dyn BatchSource>> {
        let (documents, tokenizer) = (self.documents.clone(), self.tokenizer.clone());
        match self.objective {
            Objective::NextToken => unreachable!("samples of whole texts need no sentences"),
            Objective::MaskedTokens { tells_pairs } => {
                let mut config = bert_config(tells_pairs, sizes);
                config.samples.num_samples = Some(num_samples);
                let dataset = BertDataset::new(&config, documents, range, tokenizer, None)?;
                Ok(Arc::new(BertBatches::new(Arc::new(dataset), tells_pairs)))
            }
            Objective::Spans { decoder_seq_length } => {
                let mut config = t5_config(decoder_seq_length, sizes);
                config.samples.num_samples = Some(num_samples);
                let dataset = T5Dataset::new(&config, documents, range, tokenizer, None)?;
                Ok(Arc::new(T5Batches::new(Arc::new(dataset), decoder_seq_length)))
            }
        }
    }
}
