//! [`Document`]: a configuration whose keys are known and whose values have their types.

use burn_megatron_data::names::{Effect, is_one_of, unknown};

use super::ConfigError;
use super::json::{Node, join};
use super::keys::{Form, Key, TOP, is_comment};

/// A configuration's keys, by their paths, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Keys that become flags, and the values of those that are not `"auto"`.
    mapped: Vec<Entry>,
    /// Keys without effect.
    pub idle: Vec<String>,
    /// Keys with the value `"auto"`.
    pub automatic: Vec<String>,
    /// Keys that are not known, where that can do no harm, in words.
    pub unknown: Vec<String>,
}

/// A key that becomes flags.
#[derive(Debug)]
pub(super) struct Entry {
    pub path: String,
    pub value: Node,
    /// The flag that it becomes without more.
    pub flag: Option<&'static str>,
}

/// What a configuration says of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Setting<T> {
    Absent,
    /// That the flags say it.
    Auto,
    Is(T),
}

impl<T> Setting<T> {
    pub(super) fn value(self) -> Option<T> {
        match self {
            Setting::Is(value) => Some(value),
            Setting::Absent | Setting::Auto => None,
        }
    }
}

impl Document {
    /// Parses a configuration.
    ///
    /// # Errors
    /// When it is no JSON object, a key occurs twice, or is not known and may be meant to change the result, a value
    /// has another type than its key or is out of range, or a key would change the result and cannot be honoured.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let node = Node::parse(text)?;
        let mut document = Self::default();
        let Node::Object(entries) = &node else {
            return Err(ConfigError::NotAnObject { got: node.to_string() });
        };
        document.read_section(entries, TOP, "", false)?;
        Ok(document)
    }

    /// The keys that become flags.
    pub(super) fn mapped(&self) -> &[Entry] {
        &self.mapped
    }

    /// Whether there is a key at a path, or below it.
    pub(super) fn has(&self, path: &str) -> bool {
        let is_there =
            |found: &str| found == path || found.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        let mapped = self.mapped.iter().map(|entry| &entry.path);
        mapped
            .chain(&self.idle)
            .chain(&self.automatic)
            .any(|found| is_there(found))
    }

    pub(super) fn bool(&self, path: &str) -> Setting<bool> {
        self.setting(path, |node| match node {
            Node::Bool(value) => Some(*value),
            _ => None,
        })
    }

    pub(super) fn count(&self, path: &str) -> Setting<u64> {
        self.setting(path, Node::as_count)
    }

    pub(super) fn number(&self, path: &str) -> Setting<f64> {
        self.setting(path, Node::as_number)
    }

    pub(super) fn text(&self, path: &str) -> Setting<&str> {
        self.setting(path, |node| match node {
            Node::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The texts of a key's values: one, or those of a list.
    pub(super) fn words(&self, path: &str) -> Setting<Vec<String>> {
        self.setting(path, |node| match node {
            Node::List(nodes) => Some(nodes.iter().map(Node::to_string).collect()),
            node => Some(vec![node.to_string()]),
        })
    }

    fn setting<'a, T>(&'a self, path: &str, read: impl FnOnce(&'a Node) -> Option<T>) -> Setting<T> {
        if self.automatic.iter().any(|found| found == path) {
            return Setting::Auto;
        }
        let entry = self.mapped.iter().find(|entry| entry.path == path);
        match entry.and_then(|entry| read(&entry.value)) {
            Some(value) => Setting::Is(value),
            None => Setting::Absent,
        }
    }

    /// Reads an object. Of a section without effect, `is_idle`, only its own path is listed.
    fn read_section(
        &mut self,
        entries: &[(String, Node)],
        keys: &[Key],
        section: &str,
        is_idle: bool,
    ) -> Result<(), ConfigError> {
        for (name, node) in entries {
            let path = join(section, name);
            match keys.iter().find(|key| key.name == name) {
                Some(_) if *node == Node::Null => {}
                Some(key) => self.read(key, node, path, is_idle)?,
                None if is_comment(name) => self.idle.push(path),
                None => {
                    let prefix = path.strip_suffix(&*name.escape_debug().to_string()).unwrap_or_default();
                    let known = keys.iter().map(|key| key.name);
                    // Sections below the whole set the computation, but for those without effect.
                    let is_harmless = is_idle || section.is_empty();
                    let warning = unknown(prefix, name, known, is_harmless).map_err(ConfigError::UnknownKey)?;
                    self.unknown.push(warning);
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, key: &Key, node: &Node, path: String, is_idle: bool) -> Result<(), ConfigError> {
        if let Form::Section(keys) | Form::SectionOrBool(keys) = key.form
            && let Node::Object(entries) = node
        {
            let own_is_idle = matches!(key.effect, Effect::Idle);
            if own_is_idle && !is_idle {
                self.idle.push(path.clone());
            }
            return self.read_section(entries, keys, &path, is_idle || own_is_idle);
        }
        let is_single = !matches!(
            key.form,
            Form::Section(_) | Form::SectionOrBool(_) | Form::Any | Form::With(..)
        );
        let is_auto = match node {
            Node::List(nodes) => !nodes.is_empty() && nodes.iter().all(Node::is_auto),
            node => node.is_auto(),
        };
        if is_single && is_auto {
            self.automatic.push(path);
            return Ok(());
        }
        let node = &as_form(key.form, node);
        // Of what has no effect any number will do.
        let is_idle_number = matches!(key.effect, Effect::Idle)
            && matches!(key.form, Form::Count(_) | Form::Number(..))
            && matches!(node, Node::Number(_) | Node::NotFinite(_));
        if !is_idle_number {
            check_form(key.form, node, &path)?;
        }
        let judged = match key.form {
            Form::With(name, depth) => node.values_of(name, depth),
            _ => vec![node],
        };
        let flag = match key.effect {
            Effect::Means(flag) => Some(flag),
            Effect::Read => None,
            Effect::Only(values, why) if judged.iter().any(|node| !is_one_of(values, &node.to_value())) => {
                return Err(ConfigError::Unsupported {
                    path,
                    value: node.to_string(),
                    why: why.to_owned(),
                });
            }
            _ => {
                if !is_idle {
                    self.idle.push(path);
                }
                return Ok(());
            }
        };
        self.mapped.push(Entry {
            path,
            value: node.clone(),
            flag,
        });
        Ok(())
    }
}

/// Returns a value as its key's form has it, where it is written otherwise.
fn as_form(form: Form, node: &Node) -> Node {
    let spelled = node.spelled();
    match (form, node) {
        (Form::Bool, _) => match spelled.as_count() {
            Some(value @ (0 | 1)) => Node::Bool(value == 1),
            _ => spelled,
        },
        (Form::Interval, _) if spelled == Node::NotFinite("Infinity") => Node::Number(u64::MAX.into()),
        (Form::Count(_) | Form::Interval | Form::Number(..), _) => spelled,
        (Form::Betas, Node::List(nodes)) => Node::List(nodes.iter().map(Node::spelled).collect()),
        _ => node.clone(),
    }
}

fn check_form(form: Form, node: &Node, path: &str) -> Result<(), ConfigError> {
    let is_share = |node: &Node| node.is_auto() || node.as_number().is_some_and(|number| (0.0..1.0).contains(&number));
    let (is_valid, expected) = match form {
        Form::Bool => (matches!(node, Node::Bool(_)), "true or false".to_owned()),
        Form::Count(least) => (
            node.as_count().is_some_and(|count| count >= least),
            format!("a whole number, at least {least}"),
        ),
        Form::Interval => (
            node.as_count().is_some_and(|count| count >= 1),
            "a whole number, at least 1, or Infinity".to_owned(),
        ),
        Form::Number(from, to) => (
            node.as_number().is_some_and(|number| (from..=to).contains(&number)),
            match to {
                f64::MAX => format!("a number, at least {from}"),
                _ => format!("a number from {from} to {to}"),
            },
        ),
        Form::Betas => (
            matches!(node, Node::List(nodes) if nodes.len() == 2 && nodes.iter().all(is_share)),
            "a list of two numbers, each at least 0 and below 1".to_owned(),
        ),
        Form::Text => (
            matches!(node, Node::Text(text) if !text.is_empty()),
            "a text that is not empty".to_owned(),
        ),
        Form::Choice(names) => (
            matches!(node, Node::Text(text) if names.contains(&text.as_str())),
            format!("one of {}", names.join(", ")),
        ),
        Form::Section(_) => (false, "an object of keys".to_owned()),
        Form::SectionOrBool(_) => (
            matches!(node, Node::Bool(_)),
            "an object of keys, or true or false".to_owned(),
        ),
        Form::Any | Form::With(..) => (true, String::new()),
    };
    if is_valid {
        return Ok(());
    }
    Err(ConfigError::Value {
        path: path.to_owned(),
        expected,
        got: node.to_string(),
    })
}
