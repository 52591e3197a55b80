//! Checks that ranks which should hold the same parameters do.
//!
//! Called when a module is wrapped with [`WeightSync::Verify`](super::WeightSync), and by the trainer every so many
//! steps: replicas are checked, not assumed.

use std::hash::{DefaultHasher, Hasher};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Tensor, backend::Backend};

use super::DataParallelError;
use crate::collectives::ProcessGroup;
use crate::context::ParallelContext;
use crate::parameters::{Distribution, ParameterEntry, list_parameters};

/// Compares every parameter over the data-parallel group, and those that all tensor ranks hold over the tensor group.
///
/// # Communication
/// One all-gather of 8 bytes per parameter over each of the two groups.
///
/// # Errors
/// [`DataParallelError::ReplicasDiffer`] on every rank of a group, naming the first parameter that differs and the
/// ranks; [`DataParallelError::Collective`] when a collective fails.
pub fn check_replicas<B: Backend, M: Module<B>>(
    module: &M,
    context: &ParallelContext,
) -> Result<(), DataParallelError> {
    let entries = list_parameters::<B, M>(module);
    let hashes = hash_parameters::<B, M>(module);
    let named: Vec<(String, i64)> = entries
        .iter()
        .map(|entry| display_name(entry, context))
        .zip(hashes)
        .collect();
    compare(&named, context.data_group())?;
    let replicated: Vec<(String, i64)> = named
        .into_iter()
        .zip(&entries)
        .filter(|(_, entry)| {
            let declared = context.registry().declaration(entry.id);
            declared.is_none_or(|d| d.distribution != Distribution::Sharded)
        })
        .map(|(hash, _)| hash)
        .collect();
    compare(&replicated, context.tensor_group())
}

fn display_name(entry: &ParameterEntry, context: &ParallelContext) -> String {
    context
        .registry()
        .declaration(entry.id)
        .map_or_else(|| entry.path.clone(), |declaration| declaration.name)
}

fn compare(named: &[(String, i64)], group: &ProcessGroup) -> Result<(), DataParallelError> {
    if group.size() == 1 || named.is_empty() {
        return Ok(());
    }
    let mine: Vec<i64> = named.iter().map(|(_, hash)| *hash).collect();
    let mut all = vec![0; mine.len() * group.size()];
    group.all_gather(&mine, &mut all)?;
    let rows: Vec<&[i64]> = all.chunks_exact(mine.len()).collect();
    for (column, (name, _)) in named.iter().enumerate() {
        let odd = rows.iter().position(|row| row[column] != rows[0][column]);
        if let Some(odd) = odd {
            return Err(DataParallelError::ReplicasDiffer {
                name: name.clone(),
                group: group.name().to_owned(),
                first: group.ranks()[0],
                other: group.ranks()[odd],
            });
        }
    }
    Ok(())
}

/// A 64-bit hash of each parameter's bytes, in the module's order.
fn hash_parameters<B: Backend, M: Module<B>>(module: &M) -> Vec<i64> {
    struct Hashes(Vec<i64>);
    impl<B: Backend> ModuleVisitor<B> for Hashes {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let mut hasher = DefaultHasher::new();
            hasher.write(param.val().into_data().as_bytes());
            self.0.push(hasher.finish() as i64);
        }
    }
    let mut hashes = Hashes(Vec::new());
    module.visit(&mut hashes);
    hashes.0
}
