//! Groups of parameters by their names: each with a learning rate, a weight decay and an optimizer of its own, or
//! frozen.

use std::fmt;
use std::str::FromStr;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::OptimizerKind;
use crate::context::ParallelContext;
use crate::parameters::NamePattern;

/// Parameters that are trained otherwise than the others, by their global names.
///
/// Written `PATTERN:lr_mult=0.1,weight_decay=0,optimizer=sgd`, with any of the three, or `PATTERN:frozen`. In a pattern
/// `*` stands for a part of a name between dots, `**` for any number of parts and `{a,b}` for either; a name is the
/// same in every layout, so that every layout groups alike.
///
/// ```
/// use burn_megatron::optimizer::{OptimizerKind, ParameterGroup};
///
/// let embeddings: ParameterGroup = "wte.weight:lr_mult=0.1,optimizer=sgd".parse()?;
/// assert_eq!(embeddings, ParameterGroup {
///     learning_rate_factor: 0.1,
///     optimizer: Some(OptimizerKind::Sgd),
///     ..ParameterGroup::new("wte.weight")
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParameterGroup {
    /// Pattern of the names of its parameters.
    pub pattern: String,
    /// Number that the learning rate is multiplied by.
    pub learning_rate_factor: f64,
    /// The weight decay of all of them, biases and norms too, over the whole run; that of the run if not given, by
    /// which biases and norms do not decay.
    pub weight_decay: Option<f64>,
    /// The optimizer; that of the run if not given.
    pub optimizer: Option<OptimizerKind>,
    /// True if they are not trained at all.
    pub is_frozen: bool,
}

/// Groups, of which the first that names a parameter is the parameter's.
///
/// A checkpoint has nothing of them, and loads in every layout. Under other groups than it was made with, a parameter
/// may have another learning rate or weight decay, or be frozen; it is refused by name if its optimizer keeps other
/// tensors, and if it was frozen and is to be trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ParameterGroups {
    groups: Vec<ParameterGroup>,
}

/// A group that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ParameterGroupError {
    #[error(
        "{text:?} is not a valid parameter group: {reason}; it is written \
         PATTERN:lr_mult=X,weight_decay=X,optimizer=NAME with any of the three, or PATTERN:frozen"
    )]
    Text { text: String, reason: String },
    #[error("the pattern {pattern:?} of a group of parameters: {reason}")]
    Pattern { pattern: String, reason: String },
    #[error("{what} of the parameters {pattern:?} must be finite and not negative, got {value}")]
    OutOfRange {
        what: &'static str,
        pattern: String,
        value: f64,
    },
    #[error("the pattern {pattern:?} names no parameter of the model; {hint}")]
    NoMatch { pattern: String, hint: String },
}

impl ParameterGroup {
    /// Returns a group of parameters that are trained as all others are.
    pub fn new(pattern: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            learning_rate_factor: 1.0,
            weight_decay: None,
            optimizer: None,
            is_frozen: false,
        }
    }

    /// Returns a group of parameters that are not trained.
    pub fn frozen(pattern: &str) -> Self {
        Self {
            is_frozen: true,
            ..Self::new(pattern)
        }
    }

    /// Takes one setting of a text; returns what is wrong with it, if something is.
    fn set(&mut self, setting: &str) -> Result<(), String> {
        let number = |value: &str| {
            let number: Result<f64, _> = value.parse();
            number.map_err(|_| format!("{value:?} is no number"))
        };
        match setting.split_once('=') {
            None if setting == "frozen" => self.is_frozen = true,
            Some(("lr_mult", value)) => self.learning_rate_factor = number(value)?,
            Some(("weight_decay", value)) => self.weight_decay = Some(number(value)?),
            Some(("optimizer", name)) => self.optimizer = Some(name.parse()?),
            _ => {
                return Err(format!(
                    "{setting:?} is none of lr_mult=X, weight_decay=X, optimizer=NAME, frozen"
                ));
            }
        }
        Ok(())
    }

    fn pattern(&self) -> Result<NamePattern, ParameterGroupError> {
        NamePattern::new(&self.pattern).map_err(|reason| ParameterGroupError::Pattern {
            pattern: self.pattern.clone(),
            reason,
        })
    }
}

impl FromStr for ParameterGroup {
    type Err = ParameterGroupError;

    fn from_str(text: &str) -> Result<Self, ParameterGroupError> {
        let refused = |reason: String| ParameterGroupError::Text {
            text: text.to_owned(),
            reason,
        };
        let (pattern, settings) = text
            .rsplit_once(':')
            .filter(|(pattern, settings)| !pattern.is_empty() && !settings.is_empty())
            .ok_or_else(|| refused("a pattern, a colon and settings are needed".to_owned()))?;
        let mut group = Self::new(pattern);
        for setting in settings.split(',') {
            group.set(setting).map_err(refused)?;
        }
        if group.is_frozen && group != Self::frozen(pattern) {
            return Err(refused("what is frozen has no other setting".to_owned()));
        }
        group.pattern()?;
        Ok(group)
    }
}

impl fmt::Display for ParameterGroup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = Vec::new();
        if self.learning_rate_factor != 1.0 {
            settings.push(format!("lr_mult={}", self.learning_rate_factor));
        }
        settings.extend(self.weight_decay.map(|decay| format!("weight_decay={decay}")));
        settings.extend(self.optimizer.map(|optimizer| format!("optimizer={optimizer}")));
        if self.is_frozen {
            settings.push("frozen".to_owned());
        }
        write!(formatter, "{}:{}", self.pattern, settings.join(","))
    }
}

impl From<Vec<ParameterGroup>> for ParameterGroups {
    fn from(groups: Vec<ParameterGroup>) -> Self {
        Self { groups }
    }
}

impl fmt::Display for ParameterGroups {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self.groups.iter().map(ParameterGroup::to_string).collect();
        match &groups[..] {
            [] => formatter.write_str("none"),
            groups => formatter.write_str(&groups.join("; ")),
        }
    }
}

impl ParameterGroups {
    /// The groups, in order.
    pub fn groups(&self) -> &[ParameterGroup] {
        &self.groups
    }

    /// Checks patterns and numbers.
    ///
    /// # Errors
    /// The first that cannot be.
    pub fn validate(&self) -> Result<(), ParameterGroupError> {
        for group in &self.groups {
            group.pattern()?;
            for (what, value) in [
                ("the factor of the learning rate", Some(group.learning_rate_factor)),
                ("the weight decay", group.weight_decay),
            ] {
                if let Some(value) = value.filter(|value| !(value.is_finite() && *value >= 0.0)) {
                    let pattern = group.pattern.clone();
                    return Err(ParameterGroupError::OutOfRange { what, pattern, value });
                }
            }
        }
        Ok(())
    }

    /// Returns what finds a parameter's group.
    ///
    /// # Errors
    /// When a pattern is invalid.
    pub(crate) fn matcher(&self) -> Result<GroupMatcher, ParameterGroupError> {
        let patterns = self.groups.iter().map(ParameterGroup::pattern);
        Ok(GroupMatcher {
            patterns: patterns.collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether parameters of these names are frozen.
    ///
    /// # Errors
    /// When a pattern is invalid.
    pub fn are_frozen<'n>(&self, names: impl Iterator<Item = &'n str>) -> Result<Vec<bool>, ParameterGroupError> {
        Ok(names.map(self.freezes()?).collect())
    }

    /// Returns what tells whether the parameter of a name is frozen.
    fn freezes(&self) -> Result<impl Fn(&str) -> bool, ParameterGroupError> {
        let matcher = self.matcher()?;
        Ok(move |name: &str| matcher.group_of(name).is_some_and(|group| self.groups[group].is_frozen))
    }

    /// Returns a module whose parameters of frozen groups require no gradient, before it is wrapped for training.
    ///
    /// # Errors
    /// When a pattern is invalid.
    pub fn freeze<M: Module>(&self, module: M, context: &ParallelContext) -> Result<M, ParameterGroupError> {
        if !self.groups.iter().any(|group| group.is_frozen) {
            return Ok(module);
        }
        Ok(module.map(&mut Freezer {
            is_frozen: &self.freezes()?,
            context,
            path: Vec::new(),
        }))
    }
}

/// The patterns of groups.
#[derive(Clone, Debug)]
pub(crate) struct GroupMatcher {
    patterns: Vec<NamePattern>,
}

impl GroupMatcher {
    /// The number of the first group that names a parameter.
    pub(crate) fn group_of(&self, name: &str) -> Option<usize> {
        self.patterns.iter().position(|pattern| pattern.matches(name))
    }

    /// The patterns, by the number of their group.
    #[cfg(feature = "trainer")]
    pub(crate) fn patterns(&self) -> &[NamePattern] {
        &self.patterns
    }
}

struct Freezer<'a> {
    is_frozen: &'a dyn Fn(&str) -> bool,
    context: &'a ParallelContext,
    path: Vec<String>,
}

impl ModuleMapper for Freezer<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let declared = self.context.registry().declaration(param.id);
        let name = declared.map_or_else(|| self.path.join("."), |declaration| declaration.name);
        if (self.is_frozen)(&name) {
            // One without values would count as trained, and be frozen in other modules that share it.
            param.val();
            param.set_require_grad(false)
        } else {
            param
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let group: Result<ParameterGroup, _> = text.parse();
        group.expect_err(text).to_string()
    }

    #[test]
    fn a_group_is_written_as_it_is_read() {
        for text in [
            "wte.weight:lr_mult=0.1,weight_decay=0,optimizer=sgd",
            "h.*.attn.**:optimizer=lion",
            "**.{bias,weight}:frozen",
        ] {
            assert_eq!(text.parse::<ParameterGroup>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_with_a_text_is_named() {
        assert!(refusal("wte.weight").contains("a colon and settings"));
        assert!(refusal("wte.weight:rate=1").contains("\"rate=1\" is none of lr_mult=X"));
        assert!(refusal("wte.weight:lr_mult=fast").contains("\"fast\" is no number"));
        assert!(refusal("wte.weight:optimizer=adagrad").contains("adagrad"));
        assert!(refusal("wte.weight:frozen,lr_mult=2").contains("no other setting"));
        assert!(refusal("h.{0:frozen").contains("a brace without its other half"));
        let negative = ParameterGroups::from(vec!["a:weight_decay=-1".parse().expect("a number")]);
        let message = negative.validate().expect_err("it is negative").to_string();
        assert!(message.contains("must be finite and not negative, got -1"), "{message}");
    }

    #[test]
    fn the_first_group_that_names_a_parameter_is_its_group() {
        let groups = ["h.0.**:frozen", "**.weight:lr_mult=2", "**:weight_decay=0"];
        let groups = ParameterGroups::from(groups.map(|text| text.parse().expect(text)).to_vec());
        let matcher = groups.matcher().expect("patterns");
        let found = ["h.0.fc.weight", "h.1.fc.weight", "h.1.fc.bias"].map(|name| matcher.group_of(name));
        assert_eq!(found, [Some(0), Some(1), Some(2)]);
    }
}
