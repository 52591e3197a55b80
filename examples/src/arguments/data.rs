//! Flags that say where the text or the tokens come from.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use burn_megatron::data::{DataPath, DataSource, DocumentMarking, DocumentRules, SplitRatios, Tokenizer};
use burn_megatron_data::data_path::expand;
use burn_megatron_data::indexed_dataset::idx_path;
use burn_megatron_data::programs::TokenizerArguments;
use clap::{ArgAction, Args};

/// How the names of data sets that `preprocess_data` makes end.
const DATASET: &str = "_document.idx";
/// Megatron-LM's default.
const SPLIT: &str = "969,30,1";

/// Where the text or the tokens come from.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Data")]
pub struct DataArguments {
    /// Prefixes of data sets (PREFIX.bin and PREFIX.idx, as preprocess_data writes them), each after its weight if
    /// there are several: 0.3 a 0.7 b; also patterns: 'data/*_document'. Or files and folders of UTF-8 text [default:
    /// the data set *_document.idx of the current folder; if there is none, the Rust sources that cargo downloaded to
    /// build this program]
    #[arg(long, value_name = "PATH", num_args = 1.., action = ArgAction::Set)]
    pub data_path: Vec<String>,
    /// File with the words of --data-path
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_path", "train_data_path"])]
    pub data_args_path: Option<PathBuf>,
    /// Prefixes of data sets to train on, whole; with weights as in --data-path. With --sft, files of conversations
    #[arg(long, value_name = "PREFIX", num_args = 1.., action = ArgAction::Set, conflicts_with = "data_path")]
    pub train_data_path: Vec<String>,
    /// Prefixes of data sets to validate with, whole
    #[arg(long, value_name = "PREFIX", num_args = 1.., action = ArgAction::Set, requires = "train_data_path")]
    pub valid_data_path: Vec<String>,
    /// Prefixes of data sets to test with, whole; accepted, and not read
    #[arg(long, value_name = "PREFIX", num_args = 1.., action = ArgAction::Set, requires = "train_data_path")]
    pub test_data_path: Vec<String>,
    /// Tell the validation loss of each data set, too
    #[arg(long)]
    pub multiple_validation_sets: bool,
    /// Parts of each data set of --data-path for training, validation and test [default: 969,30,1]
    #[arg(long, value_name = "N,N,N")]
    pub split: Option<String>,
    /// Folder of the samples' order, which one process of a node computes and the others map [default: the folder cache
    /// below each prefix]
    #[arg(long, value_name = "DIR")]
    pub data_cache_path: Option<PathBuf>,
    /// Learn the assistant's answers of conversations: --data-path names JSON lines of messages, which the tokenizer's
    /// chat template writes as text
    #[arg(long)]
    pub sft: bool,
    /// Count positions from 0 again after each end of a document
    #[arg(long)]
    pub reset_position_ids: bool,
    /// Let no token attend to the documents before its own
    #[arg(long)]
    pub reset_attention_mask: bool,
    /// Leave out of the loss what follows an end of a document
    #[arg(long)]
    pub eod_mask_loss: bool,
    /// Read at most this much text, a spread of it all: bytes, or with a unit as in 16MiB [default: 16MiB of the
    /// default sources, all of --data-path]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub data_limit: Option<u64>,
    #[command(flatten)]
    pub tokenizer: TokenizerArguments,
}

/// Files of conversations, whole, to train on and to validate with.
pub struct ConversationFiles {
    /// Files to train on.
    pub train: Vec<PathBuf>,
    /// Files to validate with; `None` if some conversations of the others are.
    pub validation: Option<Vec<PathBuf>>,
}

/// What the flags name.
#[derive(Clone, Debug, PartialEq)]
pub enum TextSource {
    /// The sources that cargo downloaded.
    CargoRegistry,
    /// Files and folders of text.
    Files(Vec<PathBuf>),
    /// Data sets of tokens.
    DataSets(DataSource),
}

impl DataArguments {
    /// Returns where the text or the tokens come from.
    ///
    /// # Errors
    /// When there is neither a data set nor a file of a name, weights and prefixes do not alternate, or the current
    /// folder has several data sets.
    pub fn source(&self) -> anyhow::Result<TextSource> {
        if !self.train_data_path.is_empty() {
            let mut parts = [None, None, None];
            for (part, (flag, path)) in parts.iter_mut().zip(self.parts()?) {
                if !path.is_empty() {
                    *part = Some(prefixes(&path).context(flag)?);
                }
            }
            return Ok(TextSource::DataSets(DataSource::Separate(parts)));
        }
        let mut given = match &self.data_args_path {
            Some(path) => words(path).with_context(|| format!("--data-args-path {}", path.display()))?,
            None => self.data_path.clone(),
        };
        if given.is_empty() {
            match find_data_set(Path::new("."))? {
                Some(prefix) => given.push(prefix),
                None => {
                    ensure!(
                        self.split.is_none(),
                        "--split divides a data set, and there is none: give --data-path"
                    );
                    return Ok(TextSource::CargoRegistry);
                }
            }
        }
        let given = expand(&given).context("--data-path")?;
        if !given.iter().any(|path| idx_path(Path::new(path)).is_file()) {
            for path in &given {
                ensure!(
                    Path::new(path).exists(),
                    "--data-path {path}: there is no data set {path}.idx, and no such file or folder of text"
                );
                let is_half = path.ends_with(".bin") || path.ends_with(".idx");
                ensure!(
                    !is_half,
                    "--data-path {path}: a data set is a pair of .bin and .idx, and one of them is missing"
                );
            }
            ensure!(
                self.split.is_none(),
                "--split divides data sets, and --data-path names files of text"
            );
            return Ok(TextSource::Files(given.into_iter().map(PathBuf::from).collect()));
        }
        let split = SplitRatios::parse(self.split.as_deref().unwrap_or(SPLIT)).context("--split")?;
        let path = prefixes(&given).context("--data-path")?;
        Ok(TextSource::DataSets(DataSource::Divided { path, split }))
    }

    /// Checks that the flags name what there is.
    ///
    /// # Errors
    /// Checks the files of [`Self::source`] or, with `--sft`, of [`Self::conversations`].
    pub fn check_source(&self) -> anyhow::Result<()> {
        if self.sft {
            return self.conversations().map(drop);
        }
        self.source().map(drop)
    }

    /// Returns the files of conversations that the flags name.
    ///
    /// # Errors
    /// When there is none, or a data set of tokens is named.
    pub fn conversations(&self) -> anyhow::Result<ConversationFiles> {
        if self.train_data_path.is_empty() {
            return match self.source()? {
                TextSource::Files(train) => Ok(ConversationFiles {
                    train,
                    validation: None,
                }),
                TextSource::CargoRegistry => bail!("--sft reads conversations: give --data-path FILE.jsonl"),
                TextSource::DataSets(_) => {
                    bail!("--sft reads files of conversations, and --data-path names data sets of tokens")
                }
            };
        }
        let [train, validation, _] = self.parts()?.map(|(flag, paths)| {
            for path in &paths {
                let is_file = Path::new(path).is_file();
                ensure!(
                    is_file,
                    "{flag} {path}: there is no such file of conversations, which --sft reads"
                );
            }
            Ok(paths.into_iter().map(PathBuf::from).collect::<Vec<_>>())
        });
        let validation = validation?;
        Ok(ConversationFiles {
            train: train?,
            validation: (!validation.is_empty()).then_some(validation),
        })
    }

    /// Returns the flags of what is taken whole, and what each names.
    fn parts(&self) -> anyhow::Result<[(&'static str, Vec<String>); 3]> {
        ensure!(
            self.split.is_none(),
            "--split divides --data-path; --train-data-path is taken whole"
        );
        let expanded = |flag, path: &[String]| Ok::<_, anyhow::Error>((flag, expand(path).context(flag)?));
        Ok([
            expanded("--train-data-path", &self.train_data_path)?,
            expanded("--valid-data-path", &self.valid_data_path)?,
            expanded("--test-data-path", &self.test_data_path)?,
        ])
    }

    /// Returns which token ends a document and what starts again there; `None` if samples are taken as one text.
    ///
    /// # Errors
    /// When documents of this tokenizer have no end.
    pub fn marking(&self, tokenizer: &dyn Tokenizer) -> anyhow::Result<Option<DocumentMarking>> {
        let rules = DocumentRules {
            reset_position_ids: self.reset_position_ids,
            reset_attention_mask: self.reset_attention_mask,
            eod_mask_loss: self.eod_mask_loss,
        };
        if rules.is_default() {
            return Ok(None);
        }
        let end_of_document = tokenizer.end_of_document().context(
            "--reset-position-ids, --reset-attention-mask and --eod-mask-loss need a token that ends documents, and \
             the vocabulary has none",
        )?;
        Ok(Some(DocumentMarking { end_of_document, rules }))
    }

    /// Checks that no flag says what starts again where documents end. `why` says what such flags are for.
    ///
    /// # Errors
    /// Names the first that is given.
    pub fn check_no_marking(&self, why: &str) -> anyhow::Result<()> {
        for (flag, is_given) in [
            ("--reset-position-ids", self.reset_position_ids),
            ("--reset-attention-mask", self.reset_attention_mask),
            ("--eod-mask-loss", self.eod_mask_loss),
        ] {
            ensure!(!is_given, "{flag} is for {why}: leave it out");
        }
        Ok(())
    }

    /// Returns what to tell of a source that no flag names; nothing where one does, or where it is the usual one.
    pub fn note(&self, source: &TextSource) -> Option<String> {
        let is_named = !(self.data_path.is_empty() && self.train_data_path.is_empty()) || self.data_args_path.is_some();
        match source {
            _ if is_named => None,
            TextSource::DataSets(DataSource::Divided { path, .. }) => Some(format!(
                "no --data-path: training on the data set {} of the current folder",
                path.prefixes.join(", ")
            )),
            TextSource::CargoRegistry if self.tokenizer != TokenizerArguments::default() => Some(format!(
                "warning: a tokenizer is given, but no --data-path, and the current folder has no *{DATASET}: training \
                 on the Rust sources that cargo downloaded to build this program"
            )),
            _ => None,
        }
    }
}

/// Reads what Megatron-LM's `--data-args-path` names: words with white space between them.
fn words(path: &Path) -> anyhow::Result<Vec<String>> {
    let words: Vec<String> = std::fs::read_to_string(path)?
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    ensure!(
        !words.is_empty(),
        "the file is empty, and the words of --data-path are wanted"
    );
    Ok(words)
}

fn prefixes(given: &[String]) -> anyhow::Result<DataPath> {
    let path = DataPath::parse(given)?;
    for prefix in &path.prefixes {
        let index = idx_path(Path::new(prefix));
        ensure!(index.is_file(), "there is no data set {}", index.display());
    }
    Ok(path)
}

/// Returns the prefix of a folder's only data set.
fn find_data_set(folder: &Path) -> anyhow::Result<Option<String>> {
    let entries = folder.read_dir().with_context(|| folder.display().to_string())?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<String> = names.filter(|name| name.ends_with(DATASET)).collect();
    found.sort();
    match found.as_slice() {
        [] => Ok(None),
        [name] => Ok(name.strip_suffix(".idx").map(str::to_owned)),
        several => bail!(
            "the current folder has several data sets: {}; say with --data-path which to train on",
            several.join(", ")
        ),
    }
}

/// Parses a number of bytes, with or without a unit.
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        unit => {
            return Err(format!("unknown unit {unit:?}: use none, KiB, MiB, GiB, KB, MB or GB"));
        }
    };
    let number: u64 = digits
        .trim()
        .parse()
        .map_err(|_| format!("{digits:?} is not a whole number"))?;
    match number.checked_mul(factor) {
        Some(0) => Err("expected at least one byte".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err(format!("{text} is more than 2^64 bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::try_parse;
    use super::*;

    #[test]
    fn the_only_data_set_of_a_folder_is_found() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find_data_set(folder.path()).unwrap(), None);
        std::fs::write(folder.path().join("my_text_document.idx"), "").unwrap();
        std::fs::write(folder.path().join("other.idx"), "").unwrap();
        assert_eq!(
            find_data_set(folder.path()).unwrap().as_deref(),
            Some("my_text_document")
        );
        std::fs::write(folder.path().join("b_text_document.idx"), "").unwrap();
        let message = find_data_set(folder.path()).unwrap_err().to_string();
        assert!(
            message.contains("b_text_document.idx, my_text_document.idx; say with --data-path"),
            "{message}"
        );
    }

    #[test]
    fn data_sets_and_files_are_named_in_several_ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for name in ["a.bin", "a.idx", "b.bin", "b.idx", "c.jsonl", "d.jsonl", "e.bin"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::write(path("words"), format!("0.3 {}\n0.7 {}\n", path("a"), path("b"))).unwrap();
        let parse = |flags: &str| try_parse::<DataArguments>(&flags.replace('@', &path(""))).unwrap();
        let source = |flags: &str| match parse(flags).source() {
            Ok(TextSource::DataSets(DataSource::Divided { path: found, .. })) => {
                Ok((found.prefixes.join(" ").replace(&path(""), "@"), found.weights))
            }
            Ok(other) => panic!("{flags}: {other:?}"),
            Err(error) => Err(format!("{error:#}")),
        };
        for (flags, prefixes, weights) in [
            ("--data-path @a.bin", "@a", None),
            ("--data-path @a.bin @a.idx", "@a", None),
            ("--data-path @[ab]*", "@a @b", None),
            ("--data-args-path @words", "@a @b", Some(vec![0.3, 0.7])),
        ] {
            assert_eq!(source(flags), Ok((prefixes.to_owned(), weights)), "{flags}");
        }
        for (flags, words) in [
            (
                "--data-path @e.bin",
                "a data set is a pair of .bin and .idx, and one of them is missing",
            ),
            ("--data-path @x*", "matches no data set and no file"),
            (
                "--data-args-path @c.jsonl",
                "the file is empty, and the words of --data-path are wanted",
            ),
        ] {
            let message = source(flags).unwrap_err();
            assert!(message.contains(words), "{flags}: {message}");
        }
        let files = |flags: &str| {
            parse(flags)
                .conversations()
                .map(|files| (files.train, files.validation))
        };
        let [c, d] = ["c.jsonl", "d.jsonl"].map(|name| vec![folder.path().join(name)]);
        assert_eq!(files("--data-path @c.jsonl").unwrap(), (c.clone(), None));
        let separate = "--train-data-path @c.jsonl --valid-data-path @d.jsonl";
        assert_eq!(files(separate).unwrap(), (c, Some(d)));
        assert!(parse(&format!("--sft {separate}")).check_source().is_ok());
        let message = files("--train-data-path @a").unwrap_err().to_string();
        assert!(message.contains("there is no such file of conversations"), "{message}");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("1000"), Ok(1000));
        assert_eq!(parse_size("16MiB"), Ok(16 << 20));
        assert_eq!(parse_size("2gb"), Ok(2_000_000_000));
        assert!(parse_size("0").is_err());
        assert!(parse_size("12 parsecs").is_err());
        assert!(parse_size("99999999999GiB").is_err());
    }
}
