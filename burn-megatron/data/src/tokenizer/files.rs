//! The files of a tokenizer as a checkpoint carries them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::settings::{SETTINGS, TokenizerSettings, parse};
use super::{
    BertWordPieceTokenizer, ByteTokenizer, GPT2BPETokenizer, HuggingFaceTokenizer, MaskedByteTokenizer, NullTokenizer,
    SentencePieceTokenizer, Token, Tokenizer, TokenizerDifference, TokenizerError, TokenizerKind,
};
use crate::hexadecimal;

/// A kind of tokenizer and the contents of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenizerFiles {
    kind: TokenizerKind,
    num_tokens: Option<usize>,
    /// Contents by name.
    files: BTreeMap<String, Vec<u8>>,
}

/// What is in the folder of a saved tokenizer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    kind: TokenizerKind,
    num_tokens: Option<usize>,
    files: Vec<ManifestFile>,
    sha256: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFile {
    name: String,
    sha256: String,
}

/// The folder of templates that are asked for by name.
const FURTHER_TEMPLATES: &str = "additional_chat_templates";
/// Settings of a `config.json` that number tokens: of that file, only they are kept.
const NUMBERS: [&str; 4] = ["bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"];

impl TokenizerFiles {
    /// Largest file that is read, in bytes: vocabularies of a million tokens are a tenth of it.
    pub const MAX_FILE_BYTES: u64 = 512 << 20;

    /// The file of a saved tokenizer that lists the others and their hashes. It is written last.
    pub const MANIFEST: &'static str = "tokenizer_files.json";

    /// The file that writes conversations as texts.
    pub const CHAT_TEMPLATE: &'static str = "chat_template.jinja";

    /// The file that says where generated texts end.
    pub const GENERATION: &'static str = "generation_config.json";

    /// The file that says what a model is, of which the numbers of tokens are kept.
    pub const MODEL: &'static str = "config.json";

    /// Files of a model's folder that decide tokens, ends and templates: a saved tokenizer has these and no others.
    /// Vocabularies that are not read here go along.
    pub const NAMES: [&'static str; 13] = [
        "tokenizer.json",
        "tokenizer.model",
        "vocab.json",
        "merges.txt",
        "vocab.txt",
        "spiece.model",
        "sentencepiece.bpe.model",
        SETTINGS[0],
        SETTINGS[1],
        SETTINGS[2],
        Self::CHAT_TEMPLATE,
        Self::GENERATION,
        Self::MODEL,
    ];

    /// Returns the contents of a model's folder that decide tokens, ends and templates, by their names.
    ///
    /// # Errors
    /// If one cannot be read or is too large.
    pub fn contents(folder: &Path) -> Result<Vec<(String, Vec<u8>)>, TokenizerError> {
        let mut contents = vec![];
        for name in Self::NAMES {
            let path = folder.join(name);
            if !path.is_file() {
                continue;
            }
            let mut content = read_bounded(&path)?;
            if name == Self::MODEL {
                let Value::Object(mut fields) = parse(name, &content)? else {
                    return Err(TokenizerError::invalid(name, "expected an object"));
                };
                fields.retain(|field, _| NUMBERS.contains(&field.as_str()));
                if fields.is_empty() {
                    continue;
                }
                content = Value::Object(fields).to_string().into_bytes();
            }
            contents.push((name.to_owned(), content));
        }
        let further = folder.join(FURTHER_TEMPLATES);
        // No such folder has no templates.
        for entry in fs::read_dir(&further).into_iter().flatten() {
            let path = entry.map_err(|source| io_error("read", &further, source))?.path();
            let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let name = format!("{FURTHER_TEMPLATES}/{file}");
            if Self::has_place_for(&name) && path.is_file() {
                contents.push((name, read_bounded(&path)?));
            }
        }
        Ok(contents)
    }

    /// Returns whether a saved tokenizer may have a file of this name: one of [`Self::NAMES`], or a template by another
    /// name than the usual one.
    fn has_place_for(name: &str) -> bool {
        let further = name
            .strip_prefix(FURTHER_TEMPLATES)
            .and_then(|name| name.strip_prefix('/'));
        let is_template = further.is_some_and(|file| file.ends_with(".jinja") && !file.contains(['/', '\\']));
        is_template || Self::NAMES.contains(&name)
    }

    /// Returns a kind with the contents of its files, by their names.
    pub fn from_parts(kind: TokenizerKind, num_tokens: Option<usize>, files: Vec<(String, Vec<u8>)>) -> Self {
        Self {
            kind,
            num_tokens,
            files: files.into_iter().collect(),
        }
    }

    /// Returns these files as those of BERT's word pieces as written, where a `tokenizer_config.json` says so.
    ///
    /// # Errors
    /// If it is not what its name promises.
    pub fn with_case_of_config(self) -> Result<Self, TokenizerError> {
        let is_cased = self.kind == TokenizerKind::BertWordPieceLowerCase && self.settings()?.is_cased()?;
        let kind = if is_cased {
            TokenizerKind::BertWordPieceCase
        } else {
            self.kind
        };
        Ok(Self { kind, ..self })
    }

    /// Takes the files of `other` that are not there.
    pub fn fill_from(&mut self, other: &Self) {
        for (name, content) in &other.files {
            self.files.entry(name.clone()).or_insert_with(|| content.clone());
        }
    }

    /// Takes what another folder says of the ends of texts, where nothing is said.
    pub fn fill_ends_from(&mut self, contents: Vec<(String, Vec<u8>)>) {
        let is_end = |name: &String| [Self::GENERATION, Self::MODEL].contains(&name.as_str());
        for (name, content) in contents.into_iter().filter(|(name, _)| is_end(name)) {
            self.files.entry(name).or_insert(content);
        }
    }

    /// Adds the content of a file under the name that it has in a saved tokenizer.
    pub(super) fn read(&mut self, name: &str, path: &Path) -> Result<(), TokenizerError> {
        self.files.insert(name.to_owned(), read_bounded(path)?);
        Ok(())
    }

    /// Returns the kind of tokenizer.
    pub fn kind(&self) -> TokenizerKind {
        self.kind
    }

    /// Returns the number of tokens of the [`TokenizerKind::NullTokenizer`].
    pub fn num_tokens(&self) -> Option<usize> {
        self.num_tokens
    }

    /// Returns the names and contents of the files, in the order of their names.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, content)| (&**name, &**content))
    }

    /// Returns the SHA-256 of the kind, the names and the contents, in hexadecimal digits. Tokenizers that have the
    /// same one give the same tokens: files that this kind does not read, and what says how texts end and how
    /// conversations are written, do not count.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(self.kind.name().as_bytes());
        let num_tokens = self.num_tokens.map(|tokens| tokens.to_string());
        part(num_tokens.unwrap_or_default().as_bytes());
        let own = self.kind.files();
        for (name, content) in self.files().filter(|(name, _)| own.contains(name)) {
            part(name.as_bytes());
            part(content);
        }
        hexadecimal(&hash.finalize())
    }

    /// Builds the tokenizer.
    ///
    /// # Errors
    /// If a file is missing or does not have the form that its name promises.
    pub fn tokenizer(&self) -> Result<Arc<dyn Tokenizer>, TokenizerError> {
        let (settings, ends) = (self.settings()?, self.ends_of_text()?);
        Ok(match self.kind {
            TokenizerKind::ByteTokenizer => Arc::new(ByteTokenizer),
            TokenizerKind::MaskedByteTokenizer => Arc::new(MaskedByteTokenizer),
            TokenizerKind::NullTokenizer => {
                let num_tokens = self.num_tokens.ok_or_else(|| self.missing("the number of tokens"))?;
                Arc::new(NullTokenizer::new(num_tokens)?)
            }
            TokenizerKind::GPT2BPETokenizer => {
                let (vocabulary, merges) = (self.content("vocab.json")?, self.content("merges.txt")?);
                let tokenizer = GPT2BPETokenizer::with_settings(vocabulary, merges, &settings)?;
                Arc::new(tokenizer.with_ends_of_text(ends))
            }
            TokenizerKind::BertWordPieceLowerCase | TokenizerKind::BertWordPieceCase => {
                let is_lower_case = self.kind == TokenizerKind::BertWordPieceLowerCase;
                let vocabulary = self.content("vocab.txt")?;
                let tokenizer = BertWordPieceTokenizer::with_settings(vocabulary, is_lower_case, &settings)?;
                Arc::new(tokenizer.with_ends_of_text(ends))
            }
            TokenizerKind::HuggingFaceTokenizer => {
                let tokenizer = HuggingFaceTokenizer::with_settings(self.content("tokenizer.json")?, &settings)?;
                Arc::new(tokenizer.with_ends_of_text(ends))
            }
            TokenizerKind::SentencePieceTokenizer => {
                let tokenizer = SentencePieceTokenizer::new(self.content("tokenizer.model")?)?;
                Arc::new(tokenizer.with_settings(&settings, ends)?)
            }
        })
    }

    fn settings(&self) -> Result<TokenizerSettings, TokenizerError> {
        let files: Vec<(&str, &[u8])> = self.files().filter(|(name, _)| SETTINGS.contains(name)).collect();
        TokenizerSettings::parse(&files)
    }

    /// Returns the tokens at which generated texts end, as the first file says that says it; `None` if none does.
    fn ends_of_text(&self) -> Result<Option<Vec<Token>>, TokenizerError> {
        for name in [Self::GENERATION, Self::MODEL] {
            let Some(content) = self.find(name) else { continue };
            let ends = match parse(name, content)?["eos_token_id"].take() {
                Value::Null => continue,
                Value::Array(ends) => ends,
                end => vec![end],
            };
            let token = |end: &Value| end.as_u64().and_then(|end| Token::try_from(end).ok());
            let tokens = ends.iter().map(token).collect::<Option<Vec<Token>>>();
            let reason = || {
                format!(
                    "eos_token_id is {}: expected a token or a list of tokens",
                    Value::from(ends.clone())
                )
            };
            return tokens.map(Some).ok_or_else(|| TokenizerError::invalid(name, reason()));
        }
        Ok(None)
    }

    /// Checks that two tokenizers give the same tokens. `name` and `other_name` say where they are from.
    ///
    /// # Errors
    /// If their hashes differ; the error names both.
    pub fn check_same(&self, name: &str, other: &Self, other_name: &str) -> Result<(), TokenizerError> {
        let (left_hash, right_hash) = (self.sha256(), other.sha256());
        if left_hash == right_hash {
            return Ok(());
        }
        Err(TokenizerError::Different(Box::new(TokenizerDifference {
            left_name: name.to_owned(),
            left: self.summary(),
            left_hash: left_hash[..12].to_owned(),
            right_name: other_name.to_owned(),
            right: other.summary(),
            right_hash: right_hash[..12].to_owned(),
        })))
    }

    /// Writes the files and their list into a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), TokenizerError> {
        fs::create_dir_all(folder).map_err(|source| io_error("make the folder", folder, source))?;
        for (name, content) in &self.files {
            if let Some(parent) = Path::new(name).parent().filter(|parent| *parent != Path::new("")) {
                let parent = folder.join(parent);
                fs::create_dir_all(&parent).map_err(|source| io_error("make the folder", &parent, source))?;
            }
            write_whole(&folder.join(name), content)?;
        }
        let files = self.files.iter().map(|(name, content)| ManifestFile {
            name: name.clone(),
            sha256: hexadecimal(&Sha256::digest(content)),
        });
        let manifest = Manifest {
            kind: self.kind,
            num_tokens: self.num_tokens,
            files: files.collect(),
            sha256: self.sha256(),
        };
        let json =
            serde_json::to_vec_pretty(&manifest).map_err(|error| TokenizerError::invalid(Self::MANIFEST, error))?;
        write_whole(&folder.join(Self::MANIFEST), &json)
    }

    /// Reads what [`Self::save`] wrote.
    ///
    /// # Errors
    /// If a file is missing or is not what was written.
    pub fn load(folder: &Path) -> Result<Self, TokenizerError> {
        let json = read_bounded(&folder.join(Self::MANIFEST))?;
        let manifest: Manifest =
            serde_json::from_slice(&json).map_err(|error| TokenizerError::invalid(Self::MANIFEST, error))?;
        let mut files = Self::from_parts(manifest.kind, manifest.num_tokens, vec![]);
        for ManifestFile { name, sha256 } in manifest.files {
            if !Self::has_place_for(&name) {
                let reason = format!(
                    "{name:?} is no file of a tokenizer; valid are {}",
                    Self::NAMES.join(", ")
                );
                return Err(TokenizerError::invalid(Self::MANIFEST, reason));
            }
            files.read(&name, &folder.join(&name))?;
            let found = hexadecimal(&Sha256::digest(files.content(&name)?));
            check_hash(name, sha256, found)?;
        }
        check_hash("the tokenizer".to_owned(), manifest.sha256, files.sha256())?;
        Ok(files)
    }

    /// Returns the content of a file, if it is there.
    pub fn find(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(Vec::as_slice)
    }

    fn content(&self, name: &str) -> Result<&[u8], TokenizerError> {
        self.find(name).ok_or_else(|| self.missing(name))
    }

    fn missing(&self, what: &str) -> TokenizerError {
        TokenizerError::Missing {
            kind: self.kind.name(),
            what: what.to_owned(),
        }
    }

    /// Returns the kind, and what its vocabulary is made of.
    fn summary(&self) -> String {
        let files = self.files();
        let files = files.map(|(name, content)| format!("{name} of {} bytes", content.len()));
        let mut parts: Vec<String> = files.collect();
        parts.extend(self.num_tokens.map(|tokens| format!("{tokens} tokens")));
        if parts.is_empty() {
            self.kind.to_string()
        } else {
            format!("{} with {}", self.kind, parts.join(", "))
        }
    }
}

fn check_hash(file: String, expected: String, found: String) -> Result<(), TokenizerError> {
    if expected == found {
        return Ok(());
    }
    Err(TokenizerError::Damaged {
        file,
        manifest: TokenizerFiles::MANIFEST,
        expected,
        found,
    })
}

pub(super) fn io_error(action: &'static str, path: &Path, source: io::Error) -> TokenizerError {
    TokenizerError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Returns the content of a file that is not larger than any vocabulary.
fn read_bounded(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let limit = TokenizerFiles::MAX_FILE_BYTES;
    let failed = |source| io_error("read", path, source);
    let file = File::open(path).map_err(failed)?;
    let mut content = vec![];
    // A device or a pipe has no length: what is read counts.
    let bytes = file.take(limit + 1).read_to_end(&mut content).map_err(failed)? as u64;
    if bytes > limit {
        return Err(TokenizerError::TooLarge {
            path: path.to_owned(),
            bytes,
            limit,
        });
    }
    Ok(content)
}

/// Writes a file under a temporary name and renames it, so that no half of it has its name.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), TokenizerError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = Path::new(&temporary);
    let write = || {
        let mut file = File::create(temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(temporary, path)
    };
    write().map_err(|source| {
        // What is left is of no use; that it cannot be removed says less than the first reason.
        let _ = fs::remove_file(temporary);
        io_error("write", path, source)
    })
}
