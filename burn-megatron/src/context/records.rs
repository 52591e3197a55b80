//! Records of modules whose parameters have declarations.

use burn::module::Module;
use burn::store;

use super::ParallelContext;
use crate::parameters::{ParameterEntry, RecordError, list_undrawn, load_checked, load_unmarked};

impl ParallelContext {
    /// Returns a module with a record's values, each parameter keeping the declaration of its path.
    ///
    /// burn gives a loaded parameter the identifier that was recorded; what was declared under the old one would be
    /// lost. A record holds one rank's shards: it is loaded by that rank in the same layout.
    ///
    /// # Errors
    /// When the record holds the shards of another rank or of another tensor-parallel size, when it does not say whose
    /// shards it holds and there are tensor-parallel ranks or stages, when a parameter has another shape in it, or when
    /// it has more or fewer parameters than the module, unless it says that it may.
    pub fn load_record<M: Module>(&self, module: M, record: store::ModuleRecord) -> Result<M, RecordError> {
        self.keep_declarations(module, |module| load_checked(|| module.try_load_record(record)))
    }

    /// As [`load_record`](Self::load_record), for a record that does not say whose shards it holds, such as one of
    /// burn's own layers with this rank's shards.
    ///
    /// # Errors
    /// When a parameter has another shape in the record, or when the record has more or fewer parameters than the
    /// module: one that does say whose shards it holds has more.
    pub fn load_unmarked_record<M: Module>(&self, module: M, record: store::ModuleRecord) -> Result<M, RecordError> {
        self.keep_declarations(module, |module| load_unmarked(|| module.try_load_record(record)))
    }

    fn keep_declarations<M: Module, E>(&self, module: M, load: impl FnOnce(M) -> Result<M, E>) -> Result<M, E> {
        // Without drawing values that a record replaces.
        let list = |module: &M| list_undrawn(module, |_| true);
        let before = list(&module);
        let module = load(module)?;
        self.transfer_declarations(&before, &list(&module));
        Ok(module)
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
