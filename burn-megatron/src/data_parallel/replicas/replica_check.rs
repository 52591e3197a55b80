//! Checks that ranks which should hold the same parameters do.
//!
//! The check runs when a module is wrapped with [`WeightSync::Verify`](crate::data_parallel::WeightSync), and at an
//! interval of steps: replicas are checked, not assumed.

use std::hash::{DefaultHasher, Hash, Hasher};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Tensor, Transaction};

use super::undrawn::Undrawn;
use crate::collectives::ProcessGroup;
use crate::context::ParallelContext;
use crate::data_parallel::DataParallelError;
use crate::parameters::{ParameterEntry, list_parameters};

/// Parameters are read together up to this size, in pinned memory on CUDA; a larger one alone.
const BYTES_PER_READ: usize = 256 << 20;

/// Compares every trained parameter over the data-parallel group, those that several tensor ranks hold over the
/// tensor group, and tied ones over the embedding group.
///
/// Buffers, such as a batch norm's running mean, are left out: each rank's follow its own samples within a step.
///
/// # Communication
/// One all-gather of 8 bytes per parameter over each of the groups.
///
/// # Errors
/// [`DataParallelError::ReplicasDiffer`] on every rank of a group, naming the first parameter that differs and the
/// ranks; [`DataParallelError::Collective`] when a collective fails.
pub fn check_replicas<M: Module>(module: &M, context: &ParallelContext) -> Result<(), DataParallelError> {
    compare_replicas(module, Compared::Trained, context, context.data_group())?;
    check_tensor_replicas(module, context)
}

/// As [`check_replicas`], without the comparison over the data-parallel group.
pub(in crate::data_parallel) fn check_tensor_replicas<M: Module>(
    module: &M,
    context: &ParallelContext,
) -> Result<(), DataParallelError> {
    compare_replicas(module, Compared::Trained, context, context.tensor_group())?;
    compare_tied(module, context)
}

/// Compares the copies of tied parameters on the first and on the last stage.
pub(in crate::data_parallel) fn compare_tied<M: Module>(
    module: &M,
    context: &ParallelContext,
) -> Result<(), DataParallelError> {
    let Some(group) = context.embedding_group().filter(|group| group.size() > 1) else {
        return Ok(());
    };
    let entries = list_parameters(module);
    let is_tied = |entry: &ParameterEntry| {
        let declared = context.registry().declaration(entry.id);
        declared.is_some_and(|declaration| declaration.is_tied)
    };
    let hashes = hash_parameters(module, |index| is_tied(&entries[index]));
    let names = entries.iter().filter(|entry| is_tied(entry));
    let hashed = |(name, hash)| Hashed {
        name,
        copies: group.size(),
        hash,
    };
    let names = names.map(|entry| display_name(entry, context));
    let named: Vec<Hashed> = names.zip(hashes).map(hashed).collect();
    // Both stages must have declared the same; one that has none must not leave the other waiting.
    let mut hasher = DefaultHasher::new();
    named.iter().for_each(|hashed| hashed.name.hash(&mut hasher));
    let mine = hasher.finish() as i64;
    let mut declared = vec![0; group.size()];
    group.all_gather(&[mine], &mut declared)?;
    if let Some(other) = declared.iter().position(|&names| names != declared[0]) {
        return Err(DataParallelError::TiedParametersDiffer {
            mine: named.into_iter().map(|hashed| hashed.name).collect(),
            first: group.ranks()[0],
            other: group.ranks()[other],
        });
    }
    compare(&named, group)
}

/// Which parameters to compare.
#[derive(Clone, Copy, Debug)]
pub(in crate::data_parallel) enum Compared<'a> {
    /// Trained parameters and buffers, but those that are undrawn.
    Drawn(&'a Undrawn),
    /// Trained parameters.
    Trained,
}

impl Compared<'_> {
    fn list<M: Module>(self, module: &M) -> Vec<ParameterEntry> {
        match self {
            Compared::Drawn(undrawn) => undrawn.list(module),
            Compared::Trained => list_parameters(module),
        }
    }

    fn has(self, entry: &ParameterEntry) -> bool {
        match self {
            Compared::Drawn(undrawn) => !undrawn.contains(entry.id),
            Compared::Trained => entry.requires_grad,
        }
    }
}

/// Compares what the ranks of the data-parallel or of the tensor group should all hold.
pub(in crate::data_parallel) fn compare_replicas<M: Module>(
    module: &M,
    compared: Compared<'_>,
    context: &ParallelContext,
    group: &ProcessGroup,
) -> Result<(), DataParallelError> {
    if group.size() == 1 {
        return Ok(());
    }
    let is_data_group = group.ranks() == context.data_group().ranks();
    let entries = compared.list(module);
    // How many adjacent ranks of the group should hold the same, where they are compared.
    let copies: Vec<Option<usize>> = entries
        .iter()
        .map(|entry| {
            let declared = context.registry().declaration(entry.id);
            let copies = match declared {
                Some(declared) if !is_data_group => declared.distribution.copies(group.size()),
                _ => group.size(),
            };
            (copies > 1 && compared.has(entry)).then_some(copies)
        })
        .collect();
    let hashes = hash_parameters(module, |index| copies[index].is_some());
    let with_copies = entries.iter().zip(&copies);
    let named: Vec<Hashed> = with_copies
        .filter_map(|(entry, copies)| Some((display_name(entry, context), (*copies)?)))
        .zip(hashes)
        .map(|((name, copies), hash)| Hashed { name, copies, hash })
        .collect();
    compare(&named, group)
}

/// What a rank holds of a parameter.
struct Hashed {
    name: String,
    /// The number of adjacent ranks that hold the same.
    copies: usize,
    hash: i64,
}

fn display_name(entry: &ParameterEntry, context: &ParallelContext) -> String {
    context
        .registry()
        .declaration(entry.id)
        .map_or_else(|| entry.path.clone(), |declaration| declaration.name)
}

fn compare(named: &[Hashed], group: &ProcessGroup) -> Result<(), DataParallelError> {
    if group.size() == 1 || named.is_empty() {
        return Ok(());
    }
    let mine: Vec<i64> = named.iter().map(|hashed| hashed.hash).collect();
    let mut all = vec![0; mine.len() * group.size()];
    group.all_gather(&mine, &mut all)?;
    let rows: Vec<&[i64]> = all.chunks_exact(mine.len()).collect();
    for (column, Hashed { name, copies, .. }) in named.iter().enumerate() {
        let first_of = |rank: usize| rank / copies * copies;
        let odd = (0..rows.len()).find(|&rank| rows[rank][column] != rows[first_of(rank)][column]);
        if let Some(odd) = odd {
            return Err(DataParallelError::ReplicasDiffer {
                name: name.clone(),
                group: group.name().to_owned(),
                first: group.ranks()[first_of(odd)],
                other: group.ranks()[odd],
            });
        }
    }
    Ok(())
}

/// A 64-bit hash of the bytes of each parameter whose number in the module's order is selected.
pub(in crate::data_parallel) fn hash_parameters<M: Module>(
    module: &M,
    is_selected: impl Fn(usize) -> bool,
) -> Vec<i64> {
    let mut hashes = Hashes {
        is_selected: &is_selected,
        next: 0,
        read: Transaction::default(),
        bytes: 0,
        hashes: Vec::new(),
    };
    module.visit(&mut hashes);
    hashes.read_registered();
    hashes.hashes
}

/// Reads parameters, many at once: on a GPU each read waits for what has been launched.
struct Hashes<'a> {
    is_selected: &'a dyn Fn(usize) -> bool,
    next: usize,
    /// What is read next.
    read: Transaction,
    bytes: usize,
    hashes: Vec<i64>,
}

impl Hashes<'_> {
    fn read_registered(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.bytes = 0;
        for data in std::mem::take(&mut self.read).execute() {
            let mut hasher = DefaultHasher::new();
            hasher.write(data.as_bytes());
            self.hashes.push(hasher.finish() as i64);
        }
    }
}

impl ModuleVisitor for Hashes<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if (self.is_selected)(self.next) {
            let value = param.val().inner();
            let bytes = value.shape().num_elements() * value.dtype().size();
            if self.bytes + bytes > BYTES_PER_READ {
                self.read_registered();
            }
            self.read = std::mem::take(&mut self.read).register(value);
            // A parameter of no elements is read too.
            self.bytes += bytes.max(1);
        }
        self.next += 1;
    }
}
