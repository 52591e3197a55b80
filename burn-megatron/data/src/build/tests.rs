//! Tests of `build`: what is made of which prefixes.

use super::*;
use crate::in_memory::{InMemoryDocuments, InMemorySentences};
use crate::tokenizer::{ByteTokenizer, MaskedByteTokenizer};
use tempfile::TempDir;

/// Documents of 40 equal tokens: ten times the number of the document, and the place of the prefix's last letter.
fn open(prefix: &str) -> Result<Arc<dyn TokenDocuments>, SampleError> {
    let mut documents = InMemoryDocuments::new(1 << 16);
    for document in 0..20 {
        documents.push(&[token(prefix, document); 40]);
    }
    Ok(Arc::new(documents))
}

fn token(prefix: &str, document: u32) -> u32 {
    u32::from(prefix.bytes().last().unwrap() - b'a') + 10 * document
}

/// Which prefixes, by the places of their letters, and which documents tokens are of.
fn prefixes_and_documents(tokens: impl Iterator<Item = u32>) -> (Vec<u32>, Range<u32>) {
    let tokens: Vec<u32> = tokens.collect();
    let mut prefixes: Vec<u32> = tokens.iter().map(|token| token % 10).collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    let documents = || tokens.iter().map(|token| token / 10);
    (prefixes, documents().min().unwrap()..documents().max().unwrap() + 1)
}

fn path(text: &str) -> DataPath {
    DataPath::parse(&text.split(' ').collect::<Vec<_>>()).unwrap()
}

fn config(folder: &TempDir, source: DataSource, num_samples: [Option<u64>; 3]) -> BuildConfig {
    BuildConfig {
        source,
        num_samples,
        dataset: GptDatasetConfig::one_epoch(8),
        drop_last_partial_validation: true,
        validation_by_prefix: false,
        cache_path: Some(folder.path().to_path_buf()),
    }
}

fn divided(path_text: &str, split: &str) -> DataSource {
    DataSource::Divided {
        path: path(path_text),
        split: SplitRatios::parse(split).unwrap(),
    }
}

/// Which prefixes and documents a part's samples have tokens of.
fn sources(samples: &dyn Samples) -> (Vec<u32>, Range<u32>) {
    let mut tokens = vec![];
    for index in 0..samples.num_samples() {
        samples.read_sample(index, &mut tokens).unwrap();
    }
    prefixes_and_documents(tokens.into_iter())
}

#[test]
fn a_prefix_is_divided_and_a_part_without_documents_or_samples_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder, divided("a", "80,20"), [Some(200), Some(10), Some(5)]);
    let data = RunData::build(&config, open).unwrap();
    let [train, validation, test] = data.splits;
    let (train, validation) = (train.unwrap(), validation.unwrap());
    assert_eq!(sources(&*train), (vec![0], 0..16));
    assert!(train.num_samples() >= 200);
    assert_eq!(sources(&*validation), (vec![0], 16..20));
    assert!(test.is_none());
    let none = BuildConfig {
        num_samples: [Some(200), Some(0), None],
        ..config
    };
    let data = RunData::build(&none, open).unwrap();
    assert!(data.splits[1].is_none());
    // 20 documents at 99 : 1 leave none for validation.
    for path in ["a", "1 a 2 b"] {
        let few = self::config(&folder, divided(path, "99,1"), [Some(200), Some(10), Some(0)]);
        let data = RunData::build(&few, open).unwrap();
        assert!(data.splits[0].is_some() && data.splits[1].is_none(), "{path}");
    }
}

#[test]
fn a_blend_has_slightly_more_than_is_wanted_of_all_prefixes() {
    let folder = tempfile::tempdir().unwrap();
    let source = divided("0.3 a 0.7 b", "50,50,0");
    let mut config = config(&folder, source, [Some(1001), Some(10), Some(0)]);
    config.validation_by_prefix = true;
    let data = RunData::build(&config, open).unwrap();
    let train = data.splits[0].as_ref().unwrap();
    assert_eq!(train.num_samples(), 301 + 701);
    assert_eq!(sources(&**train), (vec![0, 1], 0..10));
    assert_eq!(data.validation_by_prefix.len(), 2);
    for ((prefix, samples), (name, place)) in data.validation_by_prefix.iter().zip([("a", 0), ("b", 1)]) {
        assert_eq!(prefix, name);
        assert_eq!(sources(&**samples), (vec![place], 10..20));
    }
}

#[test]
fn separate_paths_are_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let source = DataSource::Separate([Some(path("a b")), Some(path("c")), None]);
    let config = config(&folder, source, [None, Some(200), None]);
    let data = RunData::build(&config, open).unwrap();
    let train = data.splits[0].as_ref().unwrap();
    // All of both: 799 / 8 samples of each.
    assert_eq!(train.num_samples(), 2 * 99);
    assert_eq!(sources(&**train), (vec![0, 1], 0..20));
    let validation = data.splits[1].as_ref().unwrap();
    assert!(validation.num_samples() >= 200);
    assert_eq!(sources(&**validation), (vec![2], 0..20));
    assert!(data.splits[2].is_none());
}

#[test]
fn the_same_prefix_twice_is_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder, divided("1 a 1 a 1 a 1 a", "100"), [Some(100), None, None]);
    let data = RunData::build(&config, open).unwrap();
    assert_eq!(data.splits[0].as_ref().unwrap().num_samples(), 100);
    // The index of the data set, that of the blend, and their locks.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn the_cache_is_next_to_the_data_if_no_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("a").display().to_string();
    let mut config = config(&folder, divided(&prefix, "100"), [None; 3]);
    config.cache_path = None;
    RunData::build(&config, open).unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("a/cache")).unwrap().count(), 2);
}

#[test]
fn errors_name_the_prefix_and_the_part() {
    let folder = tempfile::tempdir().unwrap();
    let message = |source, num_samples| {
        let built = RunData::build(&config(&folder, source, num_samples), open);
        built.err().unwrap().to_string()
    };
    // 20 documents at 1 : 99 leave none for training.
    let short = message(divided("1 a 2 b", "1,99"), [Some(10), Some(10), None]);
    let expected = "a, training: number of tokens of the documents must be at least 1, got 0";
    assert_eq!(short, expected);
    let too_many = message(divided("a b", "100"), [Some(199), None, None]);
    assert!(
        too_many.contains("at most 198, those of one epoch of all training data sets"),
        "{too_many}"
    );
    let unweighted = message(divided("1 a 1 b", "100"), [None, None, None]);
    assert!(unweighted.contains("number of samples must be given"), "{unweighted}");
    let missing = RunData::build(&config(&folder, divided("a", "1"), [None; 3]), |prefix| {
        Err::<Arc<dyn TokenDocuments>, _>(SampleError::setting("planted", prefix, 1u64))
    });
    assert_eq!(missing.err().unwrap().to_string(), "planted must be a, got 1");
}

/// Documents of 12 equal sentences of 8 tokens, as [`open`] has them.
fn open_sentences(prefix: &str) -> Result<Arc<dyn SentenceDocuments>, SampleError> {
    let mut documents = InMemorySentences::new(1 << 16);
    for document in 0..20 {
        documents.push([[token(prefix, document); 8]; 12]);
    }
    Ok(Arc::new(documents))
}

#[test]
fn masked_samples_are_divided_and_blended_too() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer: Arc<dyn Tokenizer> = Arc::new(MaskedByteTokenizer);
    let source = divided("0.3 a 0.7 b", "80,20");
    let gpt = config(&folder, source, [Some(300), Some(20), None]);
    let mut dataset = BertDatasetConfig::new(40, None);
    // All text is one word.
    dataset.samples.masking.whole_words = false;
    let bert = BuildConfig {
        dataset,
        num_samples: [Some(300), Some(20), Some(0)],
        source: gpt.source.clone(),
        drop_last_partial_validation: true,
        validation_by_prefix: true,
        cache_path: gpt.cache_path.clone(),
    };
    let data = RunData::build_bert(&bert, &tokenizer, open_sentences).unwrap();
    let [train, validation, test] = data.splits;
    let targets = |samples: &dyn SampleSet<Sample = BertSample>| {
        let sample = |index| samples.read(index).unwrap();
        let samples: Vec<BertSample> = (0..samples.num_samples()).map(sample).collect();
        let masked = |sample: &BertSample| {
            sample
                .targets
                .iter()
                .zip(&sample.loss_mask)
                .filter(|(_, mask)| **mask > 0.0)
                .map(|(target, _)| *target)
                .collect::<Vec<_>>()
        };
        prefixes_and_documents(samples.iter().flat_map(masked))
    };
    let train = train.unwrap();
    assert!(train.num_samples() >= 300);
    assert_eq!(targets(&*train), (vec![0, 1], 0..16));
    assert_eq!(targets(&*validation.unwrap()), (vec![0, 1], 16..20));
    assert!(test.is_none());
    let by_prefix: Vec<_> = data
        .validation_by_prefix
        .iter()
        .map(|(name, samples)| (name.as_str(), targets(&**samples)))
        .collect();
    assert_eq!(by_prefix, [("a", (vec![0], 16..20)), ("b", (vec![1], 16..20))]);

    let t5 = BuildConfig {
        dataset: T5DatasetConfig::new(40, 30, None),
        num_samples: [Some(50), Some(0), Some(0)],
        source: divided("a", "1"),
        drop_last_partial_validation: true,
        validation_by_prefix: false,
        cache_path: gpt.cache_path.clone(),
    };
    let [train, ..] = RunData::build_t5(&t5, &tokenizer, open_sentences).unwrap().splits;
    assert!(train.unwrap().num_samples() >= 50);
    let bytes: Arc<dyn Tokenizer> = Arc::new(ByteTokenizer);
    let message = RunData::build_t5(&t5, &bytes, open_sentences)
        .err()
        .unwrap()
        .to_string();
    assert!(message.starts_with("a, training: samples of T5 need"), "{message}");
}
