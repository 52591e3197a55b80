//! The tokens that are chosen, and the files in which they are written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::unigram::{Unigram, UnigramTrainer};

use super::corpus::{WordCounts, unigram_normalizer, unigram_pre_tokenizer};
use super::{TrainConfig, VocabularyKind};
use crate::tokenizer::byte_level::character_of_byte;
use crate::tokenizer::files::{io_error, write_whole};
use crate::tokenizer::hugging_face::special_token;
use crate::tokenizer::{GPT2BPETokenizer, Token, TokenizerError, gpt2, wordpiece};

/// Characters of a vocabulary of word pieces: the most frequent ones.
const MAX_CHARACTERS: usize = 1000;

/// Part of all characters of a corpus that a unigram vocabulary covers.
const COVERAGE: f64 = 0.9995;

/// Pairs that occur only once are not merged.
const MIN_FREQUENCY: u64 = 2;

/// Tokens of a unigram vocabulary that are not for text, in T5's order.
const UNIGRAM_SPECIAL: [&str; 3] = ["<pad>", "</s>", "<unk>"];

/// A vocabulary and the files that hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainedVocabulary {
    kind: VocabularyKind,
    num_tokens: usize,
    files: Vec<(&'static str, Vec<u8>)>,
}

impl TrainedVocabulary {
    /// Returns what it is made of.
    pub fn kind(&self) -> VocabularyKind {
        self.kind
    }

    /// Returns the number of tokens, special ones included.
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Returns the names and contents of its files.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.files.iter().map(|(name, content)| (*name, content.as_slice()))
    }

    /// Writes the files into a folder, which is made if it does not exist, and returns their paths.
    ///
    /// # Errors
    /// If a file cannot be written. None is then half written.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>, TokenizerError> {
        fs::create_dir_all(folder).map_err(|source| io_error("make the folder", folder, source))?;
        let write = |(name, content): &(&str, Vec<u8>)| {
            let path = folder.join(name);
            write_whole(&path, content).map(|()| path)
        };
        self.files.iter().map(write).collect()
    }

    fn new(kind: VocabularyKind, num_tokens: usize, tokenizer: &Value, end: &str) -> Result<Self, TokenizerError> {
        let config = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end });
        let mut files = vec![];
        for (name, value) in [("tokenizer.json", tokenizer), ("tokenizer_config.json", &config)] {
            files.push((name, serde_json::to_vec_pretty(value).map_err(failed)?));
        }
        Ok(Self {
            kind,
            num_tokens,
            files,
        })
    }
}

fn failed(error: impl std::fmt::Display) -> TokenizerError {
    TokenizerError::Training(error.to_string())
}

fn check_size(config: &TrainConfig, least: usize, of: &str) -> Result<(), TokenizerError> {
    if config.vocab_size >= least {
        return Ok(());
    }
    let TrainConfig { kind, vocab_size, .. } = config;
    Err(TokenizerError::Training(format!(
        "a {kind} vocabulary of {vocab_size} tokens is too small for this corpus; it needs at least {least}: {of}"
    )))
}

/// Returns the tokens in the order of their numbers.
fn in_order(vocabulary: &HashMap<String, Token>) -> Vec<&str> {
    let sorted: BTreeMap<Token, &str> = vocabulary.iter().map(|(text, &token)| (token, text.as_str())).collect();
    sorted.into_values().collect()
}

/// Runs the trainer of pairs, which counts pairs in 32 bits.
fn merge_pairs(
    trainer: &BpeTrainer,
    words: WordCounts,
) -> Result<(HashMap<String, Token>, Vec<Value>), TokenizerError> {
    let mut pairs: HashMap<(char, char), u64> = HashMap::new();
    for (word, count) in &words {
        for pair in word.chars().zip(word.chars().skip(1)) {
            *pairs.entry(pair).or_default() += count;
        }
    }
    let most = pairs.into_values().max().unwrap_or_default();
    let divisor = most.div_ceil(i32::MAX as u64).max(1);
    let words = words
        .into_iter()
        .map(|(word, count)| (word.into(), count.div_ceil(divisor)))
        .collect();
    let mut model = BPE::default();
    trainer.do_train(&words, &mut model).map_err(failed)?;
    let mut model = serde_json::to_value(&model).map_err(failed)?;
    let vocabulary = serde_json::from_value(model["vocab"].take()).map_err(failed)?;
    let merges = serde_json::from_value(model["merges"].take()).map_err(failed)?;
    Ok((vocabulary, merges))
}

/// Trains a byte-level vocabulary: the bytes, the merges, and last the end of a document, as in GPT-2's.
pub(super) fn bpe(config: &TrainConfig, words: WordCounts) -> Result<TrainedVocabulary, TokenizerError> {
    check_size(config, 257, "256 bytes and the end of a document")?;
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .min_frequency(MIN_FREQUENCY)
        .vocab_size(config.vocab_size - 1)
        .initial_alphabet((0..=u8::MAX).map(character_of_byte).collect())
        .build();
    let (mut vocabulary, merges) = merge_pairs(&trainer, words)?;
    vocabulary.insert(GPT2BPETokenizer::END_OF_DOCUMENT.to_owned(), vocabulary.len() as Token);
    let vocab_json = {
        let entry = |(number, text): (usize, &&str)| Ok(format!("{}:{number}", serde_json::to_string(text)?));
        let entries: Result<Vec<String>, serde_json::Error> =
            in_order(&vocabulary).iter().enumerate().map(entry).collect();
        format!("{{{}}}", entries.map_err(failed)?.join(","))
    };
    let mut merges_txt = "#version: 0.2\n".to_owned();
    for merge in &merges {
        let pair: (String, String) = serde_json::from_value(merge.clone()).map_err(failed)?;
        merges_txt.push_str(&format!("{} {}\n", pair.0, pair.1));
    }
    let num_tokens = vocabulary.len();
    let description = gpt2::description(vocabulary, merges, GPT2BPETokenizer::END_OF_DOCUMENT);
    let mut trained = TrainedVocabulary::new(config.kind, num_tokens, &description, GPT2BPETokenizer::END_OF_DOCUMENT)?;
    trained.files.push(("vocab.json", vocab_json.into_bytes()));
    trained.files.push(("merges.txt", merges_txt.into_bytes()));
    Ok(trained)
}

/// Leaves out words with rare characters: all but the `most` most frequent ones, or those after which `coverage` is
/// reached. Returns the characters that are left.
fn keep_frequent(words: &mut WordCounts, most: usize, coverage: f64) -> HashSet<char> {
    let mut counts: HashMap<char, u64> = HashMap::new();
    for (word, count) in words.iter() {
        for character in word.chars() {
            *counts.entry(character).or_default() += count;
        }
    }
    let total: u64 = counts.values().sum();
    let mut counts: Vec<(char, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|&(character, count)| (std::cmp::Reverse(count), character));
    let mut covered = 0;
    let kept: HashSet<char> = counts
        .into_iter()
        .take(most)
        .take_while(|&(_, count)| {
            let needed = (covered as f64) < coverage * total as f64;
            covered += count;
            needed
        })
        .map(|(character, _)| character)
        .collect();
    words.retain(|word, _| word.chars().all(|character| kept.contains(&character)));
    kept
}

/// Trains word pieces: the special tokens, the characters, and merges.
pub(super) fn word_piece(config: &TrainConfig, mut words: WordCounts) -> Result<TrainedVocabulary, TokenizerError> {
    let characters = keep_frequent(&mut words, MAX_CHARACTERS, 1.0);
    let inner: HashSet<char> = words.keys().flat_map(|word| word.chars().skip(1)).collect();
    let special = wordpiece::SPECIAL.len();
    let parts = format!(
        "{special} special tokens, {} characters, and {} after others",
        characters.len(),
        inner.len()
    );
    check_size(config, special + characters.len() + inner.len(), &parts)?;
    // Characters after others are numbered here: the trainer would number them as it meets them in a hash table, and of
    // pairs that are equally frequent it merges the one with the lowest numbers.
    let mut first: Vec<String> = inner.iter().map(|character| format!("##{character}")).collect();
    first.sort_unstable();
    let first = wordpiece::SPECIAL.iter().map(|&text| text.to_owned()).chain(first);
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .min_frequency(MIN_FREQUENCY)
        .vocab_size(config.vocab_size)
        .continuing_subword_prefix("##".to_owned())
        .special_tokens(first.map(|text| AddedToken::from(text, true)).collect())
        .build();
    let (vocabulary, _) = merge_pairs(&trainer, words)?;
    let lines: String = in_order(&vocabulary).iter().map(|text| format!("{text}\n")).collect();
    let num_tokens = vocabulary.len();
    let description = wordpiece::description(vocabulary, config.lower_case);
    let mut trained = TrainedVocabulary::new(config.kind, num_tokens, &description, "[SEP]")?;
    trained.files.push(("vocab.txt", lines.into_bytes()));
    Ok(trained)
}

/// Trains the most probable pieces, on one thread: sums in another order would be other sums.
pub(super) fn unigram(config: &TrainConfig, mut words: WordCounts) -> Result<TrainedVocabulary, TokenizerError> {
    let characters = keep_frequent(&mut words, usize::MAX, COVERAGE);
    let sentinels = config.num_sentinels;
    let parts = format!(
        "{} special tokens, {sentinels} sentinels, {} characters",
        UNIGRAM_SPECIAL.len(),
        characters.len()
    );
    check_size(config, UNIGRAM_SPECIAL.len() + sentinels + characters.len(), &parts)?;
    let pieces = u32::try_from(config.vocab_size - sentinels).map_err(failed)?;
    let trainer = UnigramTrainer::builder()
        .show_progress(false)
        .vocab_size(pieces)
        .unk_token(Some("<unk>".to_owned()))
        .special_tokens(UNIGRAM_SPECIAL.map(|text| AddedToken::from(text, true)).to_vec())
        .build()
        .map_err(failed)?;
    let mut words: Vec<(String, u32)> = words
        .into_iter()
        .map(|(word, count)| (word, u32::try_from(count).unwrap_or(u32::MAX)))
        .collect();
    words.sort_unstable();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(failed)?;
    let model = pool.install(|| {
        let mut model = Unigram::default();
        trainer.do_train(words, &mut model).map(|_| model)
    });
    let mut model = serde_json::to_value(model.map_err(failed)?).map_err(failed)?;
    let trained: Vec<(String, f64)> = serde_json::from_value(model["vocab"].take()).map_err(failed)?;
    let mut pieces: Vec<Value> = canonical(trained, config.vocab_size - sentinels)
        .iter()
        .map(|piece| json!(piece))
        .collect();
    let first_sentinel = pieces.len();
    // The last sentinel has the lowest number, as in T5's vocabulary.
    pieces.extend(
        (0..sentinels)
            .rev()
            .map(|number| json!([format!("<extra_id_{number}>"), 0.0])),
    );
    let num_tokens = pieces.len();
    model["vocab"] = pieces.into();
    let sentinel = |number: usize| (first_sentinel + sentinels - 1 - number, format!("<extra_id_{number}>"));
    let special = UNIGRAM_SPECIAL.iter().map(|&text| text.to_owned()).enumerate();
    let added: Vec<Value> = special
        .chain((0..sentinels).rev().map(sentinel))
        .map(|(number, text)| special_token(number, &text))
        .collect();
    let decoder = unigram_pre_tokenizer();
    let description = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": unigram_normalizer(), "pre_tokenizer": unigram_pre_tokenizer(), "decoder": decoder,
        "model": model,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "SpecialToken": { "id": "</s>", "type_id": 0 } }],
            "pair": [
                { "Sequence": { "id": "A", "type_id": 0 } }, { "SpecialToken": { "id": "</s>", "type_id": 0 } },
                { "Sequence": { "id": "B", "type_id": 0 } }, { "SpecialToken": { "id": "</s>", "type_id": 0 } },
            ],
            "special_tokens": { "</s>": { "id": "</s>", "ids": [1], "tokens": ["</s>"] } },
        },
    });
    TrainedVocabulary::new(config.kind, num_tokens, &description, "</s>")
}

/// Returns a trained unigram vocabulary, at most `most` pieces of it, in the order of scores and texts.
///
/// The trainer gives the characters that no piece needs scores from the lowest one upwards, in the order of a hash
/// table, which is another in every process: here they get them in the characters' order. Where characters alone fill
/// the vocabulary, it adds all the pieces that it has: here they are left out.
fn canonical(mut pieces: Vec<(String, f64)>, most: usize) -> Vec<(String, f64)> {
    /// Between two of those characters, summed up as the trainer does.
    const STEP: f64 = 0.0001;
    let mut learned = pieces.split_off(UNIGRAM_SPECIAL.len());
    let is_character = |piece: &(String, f64)| piece.0.chars().nth(1).is_none();
    if pieces.len() + learned.len() > most {
        learned.retain(is_character);
    }
    let lowest = learned.iter().map(|piece| piece.1).fold(f64::INFINITY, f64::min);
    let (mut texts, mut scores) = (vec![], vec![]);
    let mut penalty = 0.0;
    loop {
        let has_score = |piece: &(String, f64)| is_character(piece) && piece.1 == lowest + penalty;
        let found: Vec<(String, f64)> = learned.extract_if(.., |piece| has_score(piece)).collect();
        if found.is_empty() {
            break;
        }
        for (text, score) in found {
            texts.push(text);
            scores.push(score);
        }
        penalty += STEP;
    }
    texts.sort_unstable();
    learned.extend(texts.into_iter().zip(scores));
    learned.sort_by(|left, right| right.1.total_cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    pieces.extend(learned);
    pieces
}
