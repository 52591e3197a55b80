//! `ParameterRegistry`: what this rank's parameters have declared about themselves.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use burn::module::ParamId;
use parking_lot::Mutex;

use super::{Distribution, FirstValues, Placement};

/// What a parameter has declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The parameter's name, the same on every rank and in every layout.
    pub name: String,
    /// Which part of the logical parameter is here.
    pub placement: Placement,
    /// Who else holds it, and what its local gradient is.
    pub distribution: Distribution,
    /// Whether the model uses it at its start and at its end: the first and the last pipeline stage each have a copy,
    /// whose gradients are summed.
    pub is_tied: bool,
    /// Whether several segments of one stage use it, so that a pass gives it several gradients.
    pub is_reused: bool,
}

/// A parameter that cannot be handled as it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum RegistryError {
    /// Nothing is known of a parameter where something must be.
    #[error(
        "parameter {path} has not declared its layout, which tensor-parallel ranks need; declare it with \
         ParameterScope::declare_replicated (its layer sees every token on every rank), declare_token_wise (it is \
         applied to each token between parallel layers) or declare_sharded; if the module was loaded from a record, \
         load it with ParallelContext::load_record, which keeps the declarations"
    )]
    Undeclared { path: String },
    /// A part of a model whose parameters have no values yet.
    #[error(
        "parameter {path} has no values yet: burn draws them at the first use, and a part of a model that is drawn by \
         itself gets other values than in the whole model; make the whole model on every rank and call \
         burn_megatron::initialize(model) before it is converted or cut into stages"
    )]
    Undrawn { path: String },
    #[error("parameter {name} was declared with {declared} elements on this rank but has {actual}")]
    ShapeChanged {
        name: String,
        declared: usize,
        actual: usize,
    },
}

/// The declarations of this rank's parameters. Clones share them.
///
/// `Debug` writes how many there are.
#[derive(Clone, Default)]
pub struct ParameterRegistry {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    declarations: HashMap<ParamId, Declaration>,
    names: HashSet<String>,
    /// Of the parameters that were made without values.
    first_values: HashMap<ParamId, FirstValues>,
    /// The parameters that were made from those of a burn layer.
    converted: HashSet<ParamId>,
}

impl ParameterRegistry {
    /// Records a parameter's declaration.
    pub fn declare(&self, id: ParamId, declaration: Declaration) {
        self.inner.lock().declarations.insert(id, declaration);
    }

    /// Adds to a parameter's declaration that it is tied.
    ///
    /// # Panics
    /// When it has none.
    pub fn declare_tied(&self, id: ParamId) {
        let mut inner = self.inner.lock();
        let declaration = inner.declarations.get_mut(&id).expect("declared when it was made");
        declaration.is_tied = true;
        declaration.is_reused = true;
    }

    /// Adds to a parameter's declaration that several segments of one stage use it.
    ///
    /// # Panics
    /// When it has none.
    pub fn declare_reused(&self, id: ParamId) {
        let mut inner = self.inner.lock();
        let declaration = inner.declarations.get_mut(&id).expect("declared when it was made");
        declaration.is_reused = true;
    }

    /// What a parameter has declared, if it has.
    pub fn declaration(&self, id: ParamId) -> Option<Declaration> {
        self.inner.lock().declarations.get(&id).cloned()
    }

    /// Records what a parameter that was made without values starts with.
    pub(crate) fn start_later(&self, id: ParamId, first: FirstValues) {
        self.inner.lock().first_values.insert(id, first);
    }

    /// What a parameter that was made without values starts with.
    pub(crate) fn first_values(&self, id: ParamId) -> Option<FirstValues> {
        self.inner.lock().first_values.get(&id).cloned()
    }

    /// Forgets what a parameter starts with.
    pub(crate) fn forget_first_values(&self, id: ParamId) {
        self.inner.lock().first_values.remove(&id);
    }

    /// Records that a parameter was made from that of a burn layer, whose values had been drawn by then.
    pub(crate) fn mark_converted(&self, id: ParamId) {
        self.inner.lock().converted.insert(id);
    }

    /// Whether a parameter was made from that of a burn layer.
    pub(crate) fn is_converted(&self, id: ParamId) -> bool {
        self.inner.lock().converted.contains(&id)
    }

    /// Returns `name`, or, if it has been given out before, `name` followed by the lowest free ordinal.
    ///
    /// Two layers made under one name are two layers: they must not start with the same numbers. All ranks make
    /// their layers in the same order, so they agree on the ordinal.
    pub fn reserve_name(&self, name: &str) -> String {
        let mut inner = self.inner.lock();
        let mut unique = name.to_owned();
        let mut ordinal = 1;
        while !inner.names.insert(unique.clone()) {
            ordinal += 1;
            unique = format!("{name}#{ordinal}");
        }
        unique
    }
}

impl fmt::Debug for ParameterRegistry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ParameterRegistry")
            .field("declarations", &self.inner.lock().declarations.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_given_twice_gets_an_ordinal() {
        let registry = ParameterRegistry::default();
        assert_eq!(registry.reserve_name("fc.weight"), "fc.weight");
        assert_eq!(registry.clone().reserve_name("fc.weight"), "fc.weight#2");
        assert_eq!(registry.reserve_name("fc.weight"), "fc.weight#3");
    }
}
