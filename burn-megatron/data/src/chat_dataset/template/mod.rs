//! `ChatTemplate`: how a conversation is written as a text, as Hugging Face's `apply_chat_template` does.

mod filters;
mod functions;
mod python_strings;
mod request;
mod to_json;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::merge_maps;
use minijinja::{Environment, Value, context};
use regex::{Captures, Regex};
use serde_json::Value as Json;

use super::ChatError;
use super::conversation::{Conversation, MARKS};
use crate::json_lines;
use crate::tokenizer::{TokenizerFiles, named_text};

pub use request::PromptEnd;

/// Name of the template, as errors give it.
const NAME: &str = "template";
/// Names of the templates that write [`MARKS`]; no word of a template is one.
const MARK_NAMES: [&str; 2] = ["<", ">"];
/// What one text may cost: a loop without an end is an error after a few seconds.
const FUEL: u64 = 10_000_000;
/// Tokens whose texts a template can use.
const SPECIAL_TOKENS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];
/// ChatML: the template where a vocabulary has none.
const CHATML: &str = "\
    {%- for message in messages %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        {%- if message.role == 'assistant' %}
            {%- generation %}
            {{- message.content + '<|im_end|>' }}
            {%- endgeneration %}
        {%- else %}
            {{- message.content + '<|im_end|>' }}
        {%- endif %}
        {{- '\\n' }}
    {%- endfor %}
    {%- if add_generation_prompt %}
        {{- '<|im_start|>assistant\\n' }}
    {%- endif %}";

/// A conversation as a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rendered {
    pub(super) text: String,
    /// Bytes of what the assistant generates, where the template has `{% generation %}` blocks.
    pub(super) generated: Vec<Range<usize>>,
}

/// A chat template in Jinja, with what Hugging Face's have: `messages`, `tools`, `add_generation_prompt`, the texts of
/// special tokens (`bos_token`, …), `raise_exception`, `strftime_now`, `tojson`, `truncate`, `urlencode`, `wordcount`,
/// the methods of Python's strings and dictionaries, strings that `%` fills, `{% break %}`, and `{% generation %}`
/// blocks.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: Value,
    marks_answers: bool,
    /// The words of its names and its texts.
    words: HashSet<String>,
}

impl ChatTemplate {
    /// Source of ChatML.
    pub const CHATML: &'static str = CHATML;

    /// Returns ChatML: `<|im_start|>role`, an end of line, the content, `<|im_end|>`, an end of line.
    ///
    /// # Panics
    /// Never: its template can be read.
    pub fn chatml() -> Self {
        Self::new("ChatML", CHATML, Value::UNDEFINED).expect("the template of ChatML can be read")
    }

    /// Returns the template of a tokenizer: its `chat_template.jinja`, else the one (of several, `default`) in its
    /// `tokenizer_config.json`; `None` if it has none.
    ///
    /// # Errors
    /// The template, or the file that has it, cannot be read: the error names file and line.
    pub fn of_tokenizer(files: &TokenizerFiles) -> Result<Option<Self>, ChatError> {
        let parse = |file| -> Result<Json, ChatError> {
            let parsed = files.find(file).map_or(Ok(Json::Null), json_lines::value);
            parsed.map_err(|error| ChatError::Template {
                file,
                reason: error.to_string(),
            })
        };
        let config = parse("tokenizer_config.json")?;
        let map = parse("special_tokens_map.json")?;
        let special_tokens = SPECIAL_TOKENS.iter().filter_map(|&name| {
            let text = [&config, &map]
                .into_iter()
                .find_map(|config| named_text(config, name))?;
            Some((name, Value::from(text)))
        });
        let special_tokens = Value::from_pairs(special_tokens);
        let file = TokenizerFiles::CHAT_TEMPLATE;
        if let Some(source) = files.find(file) {
            let source = std::str::from_utf8(source).map_err(|error| ChatError::Template {
                file,
                reason: error.to_string(),
            })?;
            return Self::new(file, source, special_tokens).map(Some);
        }
        let template = &config["chat_template"];
        let named = template.as_array().and_then(|templates| {
            let default = templates.iter().find(|template| template["name"] == "default");
            default.or(templates.first())?["template"].as_str()
        });
        let source = template.as_str().or(named);
        source
            .map(|source| Self::new("tokenizer_config.json", source, special_tokens))
            .transpose()
    }

    fn new(file: &'static str, source: &str, special_tokens: Value) -> Result<Self, ChatError> {
        // Other tags instead of them, one by one: so what is stripped around them stays the same.
        static GENERATION: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("the expression can be read")
        });
        let marks_answers = GENERATION.is_match(source);
        let source = python_strings::rewrite(source);
        let source = GENERATION.replace_all(&source, |tag: &Captures| {
            let mark = MARK_NAMES[usize::from(tag.get(2).is_some())];
            format!("{{%{} include \"{mark}\" {}%}}", &tag[1], &tag[3])
        });
        let mut environment = Environment::new();
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()
                .map_err(wrong(file))?,
        );
        environment.set_fuel(Some(FUEL));
        functions::add(&mut environment, now());
        for (name, mark) in MARK_NAMES.into_iter().zip(MARKS) {
            environment
                .add_template_owned(name, mark.to_string())
                .map_err(wrong(file))?;
        }
        let words = source.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let words = words.filter(|word| !word.is_empty()).map(str::to_owned).collect();
        environment
            .add_template_owned(NAME, source.into_owned())
            .map_err(wrong(file))?;
        Ok(Self {
            environment,
            special_tokens,
            marks_answers,
            words,
        })
    }

    /// Returns the template with another time for `strftime_now` than the one at which it was read (UTC). With the same
    /// time on every day, samples stay the same too.
    pub fn with_time(mut self, time: DateTime) -> Self {
        functions::add(&mut self.environment, time);
        self
    }

    /// Returns whether the template says which parts of a text are generated, in `{% generation %}` blocks.
    pub fn marks_answers(&self) -> bool {
        self.marks_answers
    }

    /// Returns a conversation as a text. It is given as a JSON object with `messages`, a list of objects with `role`
    /// and `content`, and perhaps `tools`. With `add_generation_prompt` the text ends where an answer begins.
    ///
    /// # Errors
    /// It is no conversation, or the template refuses it.
    pub fn render(&self, conversation: &str, add_generation_prompt: bool) -> Result<String, ChatError> {
        let conversation = Conversation::parse(conversation.as_bytes()).map_err(ChatError::conversation)?;
        let rendered = self.render_messages(&conversation, conversation.messages.len(), add_generation_prompt);
        let rendered = rendered.map_err(|reason| ChatError::Conversation { reason })?;
        Ok(rendered.text)
    }

    /// Returns whether the template has a word, in its names or its texts.
    pub(super) fn mentions(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    /// Returns the first `messages` messages of a conversation as a text.
    pub(super) fn render_messages(
        &self,
        conversation: &Conversation,
        messages: usize,
        add_generation_prompt: bool,
    ) -> Result<Rendered, String> {
        let messages = conversation.messages[..messages].iter();
        let messages: Vec<Value> = messages.map(|message| message.value.clone()).collect();
        let variables = conversation.variables.clone();
        self.render_with(&messages, &conversation.tools, add_generation_prompt, variables)
    }

    /// Returns messages as a text, by a template that has other variables too. `tools` is undefined or none where there
    /// are none.
    fn render_with(
        &self,
        messages: &[Value],
        tools: &Value,
        add_generation_prompt: bool,
        variables: Value,
    ) -> Result<Rendered, String> {
        let template = self.environment.get_template(NAME).map_err(|error| error.to_string())?;
        let tools = if tools.is_undefined() {
            Value::from(())
        } else {
            tools.clone()
        };
        let text = template.render(context! {
            messages => messages,
            tools => tools,
            add_generation_prompt => add_generation_prompt,
            ..merge_maps([self.special_tokens.clone(), context! { documents => () }, variables])
        });
        unmarked(&text.map_err(|error| describe(&error))?)
    }
}

/// The time, by UTC.
fn now() -> DateTime {
    TimeZone::UTC.to_datetime(Timestamp::now())
}

/// Takes the marks out of a text.
fn unmarked(marked: &str) -> Result<Rendered, String> {
    let (mut text, mut generated) = (String::with_capacity(marked.len()), vec![]);
    let mut start = None;
    for part in marked.split_inclusive(MARKS) {
        let kept = part.trim_end_matches(MARKS);
        text.push_str(kept);
        match (part[kept.len()..].chars().next(), start) {
            (None, _) => {}
            (Some(mark), None) if mark == MARKS[0] => start = Some(text.len()),
            (Some(mark), Some(first)) if mark == MARKS[1] => {
                generated.push(first..text.len());
                start = None;
            }
            (Some(_), Some(_)) => return Err("{% generation %} blocks are nested".to_owned()),
            (Some(_), None) => return Err("{% endgeneration %} has no {% generation %} before it".to_owned()),
        }
    }
    match start {
        None => Ok(Rendered { text, generated }),
        Some(_) => Err("a {% generation %} block does not end".to_owned()),
    }
}

/// Returns an error of the template with those that caused it.
fn describe(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

fn wrong(file: &'static str) -> impl Fn(minijinja::Error) -> ChatError {
    move |error| ChatError::Template {
        file,
        reason: describe(&error),
    }
}

#[cfg(test)]
impl ChatTemplate {
    /// Returns the template of a source, without special tokens.
    pub(super) fn from_source(source: &str) -> Result<Self, ChatError> {
        Self::new("test", source, Value::UNDEFINED)
    }
}
