//! Records of modules whose parameters have declarations.

use burn::module::Module;

use super::ParallelContext;
use crate::parameters::{ParameterEntry, RecordError, collect_mismatches, list_parameters};

impl ParallelContext {
    /// Returns a module with a record's values, each parameter keeping the declaration of its path.
    ///
    /// burn gives a loaded parameter the identifier that was recorded; what was declared under the old one would be
    /// lost. A record holds one rank's shards: it is loaded by that rank in the same layout.
    ///
    /// # Errors
    /// When the record holds the shards of another rank or of another tensor-parallel size, when it does not say whose
    /// shards it holds and there are tensor-parallel ranks, or when a parameter has another shape in it.
    ///
    /// # Panics
    /// When burn does: the record has more or fewer layers than the module.
    pub fn load_record<M: Module>(&self, module: M, record: M::Record) -> Result<M, RecordError> {
        let (module, unmarked) = self.load_marked::<M>(module, record)?;
        match unmarked {
            None => Ok(module),
            Some(error) => Err(error),
        }
    }

    /// As [`load_record`](Self::load_record), for a record that does not say whose shards it holds: one that this very
    /// rank saved in this very layout by a version that did not record it.
    ///
    /// # Errors
    /// As [`load_record`](Self::load_record), except that a record may be silent about its shards.
    ///
    /// # Panics
    /// As [`load_record`](Self::load_record).
    pub fn load_unmarked_record<M: Module>(&self, module: M, record: M::Record) -> Result<M, RecordError> {
        self.load_marked::<M>(module, record).map(|(module, _)| module)
    }

    /// Loads a record; returns also what speaks against it if it does not say whose shards it holds.
    fn load_marked<M: Module>(&self, module: M, record: M::Record) -> Result<(M, Option<RecordError>), RecordError> {
        let before = list_parameters::<M>(&module);
        let (module, other_shard, unmarked) = collect_mismatches(|| module.load_record(record));
        if let Some(error) = other_shard {
            return Err(error);
        }
        let after = list_parameters::<M>(&module);
        for old in &before {
            let new = after.iter().find(|new| new.path == old.path);
            if let Some(new) = new.filter(|new| new.shape != old.shape) {
                return Err(RecordError::OtherShape {
                    path: old.path.clone(),
                    recorded: new.shape.clone(),
                    expected: old.shape.clone(),
                });
            }
        }
        self.transfer_declarations(&before, &after);
        Ok((module, unmarked))
    }

    /// Declares each parameter of `after` that has no declaration as the one of the same path in `before`.
    pub(crate) fn transfer_declarations(&self, before: &[ParameterEntry], after: &[ParameterEntry]) {
        for new in after {
            let old = before.iter().find(|old| old.path == new.path && old.id != new.id);
            let declared = old.and_then(|old| self.registry.declaration(old.id));
            if let (Some(declaration), None) = (declared, self.registry.declaration(new.id)) {
                self.registry.declare(new.id, declaration);
            }
        }
    }
}
