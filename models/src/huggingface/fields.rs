//! [`Fields`]: the settings of a file's JSON object, by a table of what each does here: it is honoured, without effect,
//! or refused by name.

use std::path::{Path, PathBuf};

use burn_megatron_data::names::{Effect, is_one_of, is_same, unknown, value_of};
use serde_json::{Map, Value};

use super::HuggingFaceError;
use super::keys::Key;

/// The largest size, so that the elements of a matrix and their bytes can be counted.
const MAX_SIZE: u64 = 1 << 28;
/// The least number above 1.
const ABOVE_1: f64 = 1.0 + f64::EPSILON;

/// The settings of an object that have not been read yet.
///
/// # Panics
/// Its methods panic when they are asked for a setting that is not in the table.
#[derive(Debug)]
pub struct Fields {
    path: PathBuf,
    /// The name of the object in the file, with a dot; empty of the whole.
    section: String,
    left: Map<String, Value>,
    keys: Vec<&'static Key>,
    /// Usual names, and those by which the file has the settings.
    renamed: Vec<[&'static str; 2]>,
    /// Remarks on objects inside that have been read.
    remarks: Vec<String>,
}

impl Fields {
    /// Returns settings of which names are the usual ones, and those that have one value have it.
    ///
    /// # Errors
    /// One has another value; two names of a setting have different values.
    pub(crate) fn new(
        path: &Path,
        left: Map<String, Value>,
        keys: Vec<&'static Key>,
    ) -> Result<Self, HuggingFaceError> {
        Self::of_section(path, String::new(), left, keys)
    }

    fn of_section(
        path: &Path,
        section: String,
        left: Map<String, Value>,
        keys: Vec<&'static Key>,
    ) -> Result<Self, HuggingFaceError> {
        let mut fields = Self {
            path: path.to_owned(),
            section,
            left,
            keys,
            renamed: Vec::new(),
            remarks: Vec::new(),
        };
        for key in fields.keys.clone() {
            // Python takes null for false.
            if key.default == "true" && fields.left.get(key.name).is_some_and(Value::is_null) {
                fields.left.insert(key.name.to_owned(), false.into());
            }
            match key.effect {
                Effect::Means(of) => fields.rename(key.name, of)?,
                Effect::Only(values, advice) => match fields.take(key.name) {
                    Some(value) if !is_one_of(values, &value) => {
                        let texts: Vec<String> = values.iter().map(|text| value_of(text).to_string()).collect();
                        let separator = if advice.is_empty() { "" } else { ": " };
                        let expected = format!("{}{separator}{advice}", texts.join(" or "));
                        return Err(fields.refuse(key.name, &value, &expected));
                    }
                    _ => (),
                },
                _ => (),
            }
        }
        Ok(fields)
    }

    fn rename(&mut self, name: &'static str, of: &'static str) -> Result<(), HuggingFaceError> {
        let Some(value) = self.take(name) else {
            return Ok(());
        };
        match self.look(of) {
            None => {
                self.left.insert(of.to_owned(), value);
                self.renamed.push([of, name]);
            }
            Some(other) if is_same(&value, other) => (),
            Some(other) => return Err(self.refuse(name, &value, &format!("{other}, as {of}"))),
        }
        Ok(())
    }

    /// Takes a setting. One that is null counts as one that is not there, as in transformers.
    fn take(&mut self, field: &str) -> Option<Value> {
        self.left.remove(field).filter(|value| !value.is_null())
    }

    /// Takes a setting, its default if it is not there; null if that is what it is.
    fn take_or_default(&mut self, field: &str) -> Value {
        let default = self.default_of(field);
        self.left.remove(field).unwrap_or(default)
    }

    /// Takes a setting, its default if it is not there or null.
    fn take_value(&mut self, field: &str) -> Value {
        let default = self.default_of(field);
        self.take(field).unwrap_or(default)
    }

    fn default_of(&self, field: &str) -> Value {
        let key = self.keys.iter().find(|key| key.name == field);
        value_of(key.unwrap_or_else(|| panic!("{field} is in the table")).default)
    }

    /// The names of the model's classes in transformers; none if they are not given.
    pub fn architectures(&self) -> Vec<&str> {
        let names = self.left.get("architectures").and_then(Value::as_array);
        names.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Returns the default of a size that the file has by another name alone.
    pub fn default_if_renamed(&self, field: &str) -> Option<usize> {
        let is_renamed = self.renamed.iter().any(|[of, _]| *of == field);
        let default = is_renamed.then(|| self.default_of(field).as_u64());
        default.flatten().map(|size| size as usize)
    }

    pub fn has(&self, field: &str) -> bool {
        self.look(field).is_some()
    }

    /// Returns the error of a setting that the family does not have.
    pub fn refuse(&self, field: &str, value: &Value, expected: &str) -> HuggingFaceError {
        let renamed = self.renamed.iter().find(|[of, _]| *of == field);
        let name = renamed.map_or(field, |[_, name]| name);
        HuggingFaceError::field(&self.path, format!("{}{name}", self.section), value, expected)
    }

    /// Takes a setting that, unless it is null, must be what another one says.
    ///
    /// # Errors
    /// It is something else.
    pub fn agree(&mut self, field: &str, said: &Value, by: &str) -> Result<(), HuggingFaceError> {
        let value = self.take_value(field);
        if value.is_null() || is_same(&value, said) {
            return Ok(());
        }
        Err(self.refuse(field, &value, &format!("{said}, as {by}")))
    }

    /// Takes an object of values, each of which must be what another setting says.
    ///
    /// # Errors
    /// It is no object, or one is something else.
    pub fn agree_all(&mut self, field: &str, said: &Value, by: &str) -> Result<(), HuggingFaceError> {
        let value = self.take_value(field);
        match value.as_object() {
            Some(object) if object.values().all(|value| is_same(value, said)) => Ok(()),
            _ => Err(self.refuse(field, &value, &format!("{said} of each, as {by}"))),
        }
    }

    /// Leaves out a setting that others say, too.
    pub fn leave(&mut self, field: &str) {
        self.left.remove(field);
    }

    /// Takes a size.
    ///
    /// # Errors
    /// It is no whole number, 0 or too large.
    pub fn size(&mut self, field: &str) -> Result<usize, HuggingFaceError> {
        let value = self.take_or_default(field);
        self.as_size(field, &value)
    }

    /// Takes a size that may be null.
    ///
    /// # Errors
    /// It is no whole number, 0 or too large.
    pub fn optional_size(&mut self, field: &str) -> Result<Option<usize>, HuggingFaceError> {
        match self.take_or_default(field) {
            Value::Null => Ok(None),
            value => self.as_size(field, &value).map(Some),
        }
    }

    /// Takes a whole number, which may be 0.
    ///
    /// # Errors
    /// It is no whole number, or too large.
    pub fn whole(&mut self, field: &str) -> Result<usize, HuggingFaceError> {
        let value = self.take_or_default(field);
        if value == 0 { Ok(0) } else { self.as_size(field, &value) }
    }

    fn as_size(&self, field: &str, value: &Value) -> Result<usize, HuggingFaceError> {
        match value.as_u64() {
            Some(size @ 1..=MAX_SIZE) => Ok(size as usize),
            _ => Err(self.refuse(field, value, &format!("a whole number from 1 to {MAX_SIZE}"))),
        }
    }

    /// Takes a size; `None` if it is the usual one.
    pub fn size_unless(&mut self, field: &str, usual: usize) -> Result<Option<usize>, HuggingFaceError> {
        Ok(Some(self.size(field)?).filter(|size| *size != usual))
    }

    /// Takes a number.
    ///
    /// # Errors
    /// It is no number, or outside `range`; it is not there, and has no default.
    pub fn number(&mut self, field: &str, range: std::ops::Range<f64>) -> Result<f64, HuggingFaceError> {
        let value = self.take_value(field);
        match value.as_f64() {
            Some(number) if range.contains(&number) => Ok(number),
            _ => {
                let above = match range.start {
                    f64::MIN_POSITIVE => "above 0".to_owned(),
                    ABOVE_1 => "above 1".to_owned(),
                    start => format!("from {start}"),
                };
                let below = match range.end {
                    f64::MAX => String::new(),
                    ABOVE_1 => " and up to 1".to_owned(),
                    end => format!(" and below {end}"),
                };
                Err(self.refuse(field, &value, &format!("a number {above}{below}")))
            }
        }
    }

    /// Takes a number that another setting may say, too; it is that one's then.
    ///
    /// # Errors
    /// As [`number`](Self::number); both are there and differ.
    pub fn number_unless(
        &mut self,
        field: &str,
        range: std::ops::Range<f64>,
        (said, by): (Option<f64>, &str),
    ) -> Result<f64, HuggingFaceError> {
        match said {
            Some(said) if self.has(field) => self.agree(field, &said.into(), by).map(|()| said),
            Some(said) => Ok(said),
            None => self.number(field, range),
        }
    }

    /// Takes a number, if it is there.
    ///
    /// # Errors
    /// It is no number, or outside `range`.
    pub fn optional_number(
        &mut self,
        field: &str,
        range: std::ops::Range<f64>,
    ) -> Result<Option<f64>, HuggingFaceError> {
        self.has(field).then(|| self.number(field, range)).transpose()
    }

    /// Takes what a name stands for.
    ///
    /// # Errors
    /// It is none of `choices`.
    pub fn choice<T: Clone>(&mut self, field: &str, choices: &[(&str, T)]) -> Result<T, HuggingFaceError> {
        let value = self.take_value(field);
        let found = choices.iter().find(|(name, _)| value == *name);
        found.map(|(_, chosen)| chosen.clone()).ok_or_else(|| {
            let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
            self.refuse(field, &value, &names.join(" or "))
        })
    }

    /// Takes an object, if it is there, with a table of its own. It is given back by [`close`](Self::close).
    pub fn object(&mut self, field: &str, keys: &'static [Key]) -> Result<Option<Self>, HuggingFaceError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Object(object)) => {
                let section = format!("{}{field}.", self.section);
                Self::of_section(&self.path, section, object, keys.iter().collect()).map(Some)
            }
            Some(value) => Err(self.refuse(field, &value, "an object")),
        }
    }

    /// Ends the reading of an object inside this one.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn close(&mut self, inside: Self) -> Result<(), HuggingFaceError> {
        self.remarks.extend(inside.finish()?);
        Ok(())
    }

    /// Takes a list, if it is there.
    pub fn list(&mut self, field: &str) -> Result<Option<Vec<Value>>, HuggingFaceError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(value) => Err(self.refuse(field, &value, "a list")),
        }
    }

    /// Returns a setting without taking it, if it is there.
    pub fn look(&self, field: &str) -> Option<&Value> {
        self.left.get(field).filter(|value| !value.is_null())
    }

    /// Takes a flag.
    ///
    /// # Errors
    /// It is neither true nor false.
    pub fn flag(&mut self, field: &str) -> Result<bool, HuggingFaceError> {
        match self.take_value(field) {
            Value::Bool(flag) => Ok(flag),
            value => Err(self.refuse(field, &value, "true or false")),
        }
    }

    /// Checks that what has not been read changes nothing, and returns what there is to say of it.
    ///
    /// # Errors
    /// A name is unknown, and so near to that of a setting that has an effect that this is what is meant.
    pub fn finish(self) -> Result<Vec<String>, HuggingFaceError> {
        let (mut idle, mut remarks) = (Vec::new(), self.remarks.clone());
        let path = self.path.display();
        for (field, value) in self.left.iter().filter(|(_, value)| !value.is_null()) {
            let name = format!("{}{field}", self.section);
            match self.keys.iter().find(|key| key.name == field) {
                Some(key) if matches!(key.effect, Effect::Elsewhere) || is_same(value, &value_of(key.default)) => (),
                Some(_) => idle.push(name),
                None => {
                    let known = self.keys.iter().filter(|key| key.is_effective()).map(|key| key.name);
                    let warning = unknown(&self.section, field, known, true);
                    let warning = warning.map_err(|what| HuggingFaceError::broken(&self.path, what))?;
                    remarks.push(format!("{path}: {warning}"));
                }
            }
        }
        if !idle.is_empty() {
            remarks.push(format!("{path}: without effect here: {}", idle.join(", ")));
        }
        Ok(remarks)
    }
}
