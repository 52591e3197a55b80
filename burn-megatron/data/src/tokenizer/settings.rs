//! `TokenizerSettings`: what the files next to a vocabulary say of it, read as transformers reads them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::roles::named_text;
use super::{Token, TokenRoles, TokenizerError};
use crate::json_lines;

/// The files next to a vocabulary that decide its tokens, in the order in which they are read.
pub(super) const SETTINGS: [&str; 3] = [CONFIG, MAP, ADDED];
const CONFIG: &str = "tokenizer_config.json";
const MAP: &str = "special_tokens_map.json";
const ADDED: &str = "added_tokens.json";

/// Keys whose tokens are special and have no role here.
const OTHER_SPECIAL: [&str; 3] = ["unk_token", "additional_special_tokens", "extra_special_tokens"];
/// Keys of BERT's tokenizers, and what a `tokenizer.json` calls them.
const BERT: [(&str, &str); 3] = [
    ("do_lower_case", "lowercase"),
    ("strip_accents", "strip_accents"),
    ("tokenize_chinese_chars", "handle_chinese_chars"),
];
/// Tokenizers of SentencePiece's models whose prompts begin with BOS where nothing else is said.
const BEGIN_WITH_BOS: [&str; 3] = ["LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer"];

/// Settings of a vocabulary in the files next to it.
#[derive(Debug, Default)]
pub(super) struct TokenizerSettings {
    /// `tokenizer_config.json`, an object or null.
    config: Value,
    /// The texts of tokens with a role, by the name of the role, and the file that says so.
    roles: Vec<(&'static str, String, &'static str)>,
    special: Vec<String>,
    /// Tokens that are added to the vocabulary, as a `tokenizer.json` lists them, by their numbers.
    added: BTreeMap<u64, Value>,
    pub(super) add_bos: Option<bool>,
    pub(super) add_eos: Option<bool>,
}

/// Parts of a `tokenizer.json` that [`TokenizerSettings::apply`] has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) added_tokens: bool,
    pub(super) normalizer: bool,
    pub(super) pre_tokenizer: bool,
}

impl TokenizerSettings {
    /// Reads the contents of files, by their names.
    ///
    /// # Errors
    /// If a content is not what it should be, or asks for what is not built here.
    pub(super) fn parse(files: &[(&str, &[u8])]) -> Result<Self, TokenizerError> {
        let read = |name: &str| {
            let found = files.iter().find(|(file, _)| *file == name);
            found.map_or(Ok(Value::Null), |(_, content)| parse(name, content))
        };
        let (config, map, added) = (read(CONFIG)?, read(MAP)?, read(ADDED)?);
        let mut settings = Self::default();
        // Where the config lists the added tokens, transformers reads neither of the others.
        let is_complete = config["added_tokens_decoder"].is_object();
        let sources = if is_complete {
            vec![(CONFIG, &config)]
        } else {
            vec![(MAP, &map), (CONFIG, &config)]
        };
        for (role, _) in TokenRoles::default().named() {
            let named =
                |&(file, source): &(&'static str, &Value)| Some((role, named_text(source, role)?.to_owned(), file));
            settings.roles.extend(sources.iter().find_map(named));
        }
        settings.special = settings.roles.iter().map(|(_, text, _)| text.clone()).collect();
        for (_, source) in &sources {
            for key in OTHER_SPECIAL {
                settings.special.extend(texts(&source[key]));
            }
        }
        if is_complete {
            for (number, token) in config["added_tokens_decoder"].as_object().into_iter().flatten() {
                let entry = number.parse().ok().filter(|_| token["content"].is_string());
                let number =
                    entry.ok_or_else(|| invalid(CONFIG, "added_tokens_decoder", token, "tokens by their numbers"))?;
                settings.added.insert(number, described(number, token.clone()));
            }
        } else if !added.is_null() {
            let entries = added
                .as_object()
                .ok_or_else(|| TokenizerError::invalid(ADDED, "expected an object"))?;
            for (text, number) in entries {
                let is_special = settings.special.contains(text);
                let token = json!({"content": text, "normalized": !is_special, "special": is_special});
                let number = number
                    .as_u64()
                    .ok_or_else(|| invalid(ADDED, text, number, "a token's number"))?;
                settings.added.insert(number, described(number, token));
            }
        }
        if flag(&config, "split_special_tokens")? == Some(true) {
            return Err(invalid(
                CONFIG,
                "split_special_tokens",
                &true.into(),
                "false: special tokens are not cut",
            ));
        }
        settings.add_bos = flag(&config, "add_bos_token")?;
        settings.add_eos = flag(&config, "add_eos_token")?;
        settings.config = config;
        Ok(settings)
    }

    /// Returns the text of the token with a role, by the role's name, and the file that says so.
    pub(super) fn role(&self, role: &str) -> Option<(&str, &'static str)> {
        let found = self.roles.iter().find(|(name, ..)| *name == role);
        found.map(|(_, text, file)| (text.as_str(), *file))
    }

    /// Sets the roles that the files name. `token` finds the token of a text.
    ///
    /// # Errors
    /// If the end of a document has no token.
    pub(super) fn set_roles(
        &self,
        roles: &mut TokenRoles,
        token: impl Fn(&str) -> Option<Token>,
    ) -> Result<(), TokenizerError> {
        for (name, role) in roles.named() {
            let Some((text, file)) = self.role(name) else {
                continue;
            };
            let found = token(text);
            if name == "eos_token" && found.is_none() {
                let reason = format!("its eos_token {text:?} is not a token of the vocabulary");
                return Err(TokenizerError::invalid(file, reason));
            }
            *role = found.or(*role);
        }
        Ok(())
    }

    /// Returns whether prompts of this class of tokenizers begin with BOS where nothing else is said.
    pub(super) fn begins_with_bos(&self) -> bool {
        let class = self.config["tokenizer_class"].as_str().unwrap_or_default();
        BEGIN_WITH_BOS.contains(&class.strip_suffix("Fast").unwrap_or(class))
    }

    /// Returns whether a `tokenizer_config.json` is there.
    pub(super) fn is_of_transformers(&self) -> bool {
        self.config.is_object()
    }

    /// Returns whether a space is put before each part of a text between marks, and not before the first alone.
    ///
    /// # Errors
    /// If the flag is not one.
    pub(super) fn is_legacy(&self) -> Result<bool, TokenizerError> {
        Ok(flag(&self.config, "legacy")?.unwrap_or(true))
    }

    /// Returns whether word pieces are of text as it is written.
    ///
    /// # Errors
    /// If the flag is not one.
    pub(super) fn is_cased(&self) -> Result<bool, TokenizerError> {
        Ok(flag(&self.config, BERT[0].0)? == Some(false))
    }

    /// Returns the first token that is added and not one of these texts, and its number.
    pub(super) fn added_beyond(&self, number_of: impl Fn(&str) -> Option<Token>) -> Option<(u64, &str)> {
        let mut added = self.added.iter().map(|(&number, token)| (number, content(token)));
        added.find(|&(number, text)| number_of(text).map(u64::from) != Some(number))
    }

    /// Writes into a `tokenizer.json` what the files say. `number_of` finds the token of a text in the vocabulary
    /// without added tokens.
    ///
    /// # Errors
    /// If a flag is not one.
    pub(super) fn apply(
        &self,
        json: &mut Value,
        number_of: impl Fn(&str) -> Option<Token>,
    ) -> Result<Changed, TokenizerError> {
        let mut changed = Changed::default();
        let mut list = json["added_tokens"].as_array().cloned().unwrap_or_default();
        let before = list.clone();
        let is_special = |text: &str| self.special.iter().any(|special| special == text);
        for (number, token) in &self.added {
            if list.iter().all(|listed| content(listed) != content(token)) {
                list.push(described(*number, token.clone()));
            }
        }
        for text in &self.special {
            let known = list.iter().any(|listed| content(listed) == text);
            // A text that is no token is left out: no embedding is there for it.
            if let (false, Some(number)) = (known, number_of(text)) {
                list.push(described(number.into(), json!({"content": text})));
            }
        }
        for listed in &mut list {
            let by_config = self
                .added
                .values()
                .any(|token| content(token) == content(listed) && token["special"] == true);
            if by_config || is_special(content(listed)) {
                listed["special"] = true.into();
            }
        }
        if list != before {
            list.sort_by_key(|token| token["id"].as_u64());
            json["added_tokens"] = list.into();
            changed.added_tokens = true;
        }
        if json["normalizer"]["type"] == "BertNormalizer" {
            for (key, setting) in BERT {
                if let Some(value) = flag(&self.config, key)?.filter(|&value| json["normalizer"][setting] != value) {
                    json["normalizer"][setting] = value.into();
                    changed.normalizer = true;
                }
            }
        }
        let space = flag(&self.config, "add_prefix_space")?;
        let pre_tokenizer = &mut json["pre_tokenizer"];
        // True where it is left out.
        let current = pre_tokenizer["add_prefix_space"].as_bool().unwrap_or(true);
        if let Some(space) = space.filter(|&space| pre_tokenizer["type"] == "ByteLevel" && space != current) {
            pre_tokenizer["add_prefix_space"] = space.into();
            changed.pre_tokenizer = true;
        }
        Ok(changed)
    }

    /// Checks that added tokens have the numbers that the files give them.
    ///
    /// # Errors
    /// Names the first that has another one.
    pub(super) fn check_numbers(&self, number_of: impl Fn(&str) -> Option<Token>) -> Result<(), TokenizerError> {
        let Some((number, text)) = self.added_beyond(&number_of) else {
            return Ok(());
        };
        let file = if self.config["added_tokens_decoder"].is_object() {
            CONFIG
        } else {
            ADDED
        };
        let found = number_of(text).map_or_else(|| "none".to_owned(), |token| token.to_string());
        let reason = format!("the token {text:?} has the number {number} there and {found} in the vocabulary");
        Err(TokenizerError::invalid(file, reason))
    }
}

/// Returns the text of a token that a `tokenizer.json` lists.
fn content(token: &Value) -> &str {
    token["content"].as_str().unwrap_or_default()
}

/// Returns a token as a `tokenizer.json` lists it: what is left out is false.
fn described(number: u64, mut token: Value) -> Value {
    token["id"] = number.into();
    for key in ["single_word", "lstrip", "rstrip", "normalized", "special"] {
        if !token[key].is_boolean() {
            token[key] = false.into();
        }
    }
    if let Some(fields) = token.as_object_mut() {
        fields.remove("__type");
    }
    token
}

/// Returns the texts of a token, a list of them, or some by names.
fn texts(value: &Value) -> Vec<String> {
    let text = |token: &Value| token.as_str().or(token["content"].as_str()).map(str::to_owned);
    match value {
        Value::Array(list) => list.iter().filter_map(text).collect(),
        Value::Object(named) if !named.contains_key("content") => named.values().filter_map(text).collect(),
        one => text(one).into_iter().collect(),
    }
}

fn flag(config: &Value, key: &str) -> Result<Option<bool>, TokenizerError> {
    match &config[key] {
        Value::Null => Ok(None),
        Value::Bool(flag) => Ok(Some(*flag)),
        other => Err(invalid(CONFIG, key, other, "true or false")),
    }
}

fn invalid(file: &str, key: &str, value: &Value, expected: &str) -> TokenizerError {
    TokenizerError::invalid(file, format!("{key} is {value}: expected {expected}"))
}

/// Reads a file of JSON, as Python writes it: numbers that JSON does not have are null.
pub(super) fn parse(file: &str, content: &[u8]) -> Result<Value, TokenizerError> {
    json_lines::value(content).map_err(|error| TokenizerError::invalid(file, error))
}
