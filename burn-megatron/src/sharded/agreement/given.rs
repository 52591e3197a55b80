//! What ranks were given, compared in some steps: the batches that were distributed, and the loss.
//!
//! Every rank gives the mesh the same whole batch, or its own part of one, and computes one loss. Ranks that do not
//! train on, each with numbers of its own: nothing else looks at them together.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};

use burn::module::ParamId;
use burn::tensor::{DType, TensorData};

use crate::collectives::{CollectiveError, ProcessGroup, compare_values};
use crate::sharded::any_tensor::AnyTensor;
use crate::sharded::mesh::{Mesh, WeakMesh};
use crate::sharded::movement::redistribute::with_advice;
use crate::sharded::placement::AxisRole;
use crate::sharded::traffic::set_operation;

/// Batches of a step that are compared, the first ones.
const BATCHES: usize = 4;
/// Dimensions of a tensor that are compared.
const DIMENSIONS: usize = 6;
/// Words of a rank on a batch: a hash of its elements, how it was given, its dimensions and their lengths.
const WORDS: usize = 3 + DIMENSIONS;

const LEAVE_OUT: &str = "To leave this out, Mesh::with_check_inputs_interval(0)";

thread_local! {
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
    /// True if the thread has placed a model, or made a backward pass.
    static TRAINS: Cell<bool> = const { Cell::new(false) };
    /// Of this thread alone: what others prepare is not in the order of the program.
    static GIVEN: RefCell<Vec<Batch>> = const { RefCell::new(Vec::new()) };
    /// The meshes of this thread's models that are whole everywhere, with their parameters, which know of no mesh.
    static PLACED: RefCell<Vec<(WeakMesh, HashSet<ParamId>)>> = const { RefCell::new(Vec::new()) };
}

/// Runs without comparisons: what looks for differences finds them itself.
pub(in crate::sharded) fn left_out<T>(run: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_LEFT_OUT.set(self.0);
        }
    }
    let _restore = Restore(IS_LEFT_OUT.replace(true));
    run()
}

/// A batch of the step at hand.
struct Batch {
    mesh: WeakMesh,
    words: [i64; WORDS],
    /// The elements, on ranks that have given all of them.
    data: Option<TensorData>,
    /// The role of the axis over which each rank has given a part of its own.
    part_over: Option<AxisRole>,
}

/// Notes a batch of which every rank has all, or, of the ranks of a role, its own part of `length`.
pub(in crate::sharded) fn note(
    tensor: &dyn AnyTensor,
    mesh: &Mesh,
    dimension: usize,
    part_over: Option<(AxisRole, usize)>,
) {
    if mesh.num_ranks() == 1 || !mesh.compares_next() || IS_LEFT_OUT.get() || !TRAINS.get() {
        return;
    }
    let data = tensor.here();
    let mut shape = tensor.operand().shape;
    if let Some((_, length)) = part_over {
        shape[dimension] = length;
    }
    let mut words = [0; WORDS];
    let mut hasher = DefaultHasher::new();
    hasher.write(data.as_ref().map_or(&[][..], |data| data.as_bytes()));
    words[0] = hasher.finish() as i64;
    words[1] = if part_over.is_some() { 2 } else { 1 };
    words[2] = shape.len() as i64;
    for (word, length) in words[3..].iter_mut().zip(&shape) {
        *word = *length as i64;
    }
    GIVEN.with_borrow_mut(|given| {
        if given.len() < BATCHES {
            given.push(Batch {
                mesh: mesh.downgrade(),
                words,
                data,
                part_over: part_over.map(|(role, _)| role),
            });
        }
    });
}

/// Notes the mesh that a model has been placed on, on which it may be whole.
pub(in crate::sharded) fn note_model(parameters: Vec<ParamId>, mesh: &Mesh, is_whole: bool) {
    TRAINS.set(true);
    let ids: HashSet<ParamId> = parameters.into_iter().collect();
    PLACED.with_borrow_mut(|placed| {
        placed.retain(|(mesh, known)| mesh.upgrade().is_some() && *known != ids);
        if is_whole {
            placed.push((mesh.downgrade(), ids));
        }
    });
}

/// Returns the mesh on which a model of these parameters is whole.
pub(in crate::sharded) fn mesh_of(ids: &[ParamId]) -> Option<Mesh> {
    PLACED.with_borrow(|placed| {
        let mut latest = placed.iter().rev();
        latest.find_map(|(mesh, known)| mesh.upgrade().filter(|_| ids.iter().any(|id| known.contains(id))))
    })
}

/// Ends a step: compares what the ranks were given in it, if that is due. `loss` is its value on this rank.
///
/// # Communication
/// In the steps that are due, per axis of the mesh one all-gather of 304 bytes; of floats that differ a broadcast.
///
/// # Errors
/// When ranks were given different batches or have different losses; when a collective fails.
pub(in crate::sharded) fn compare(loss: Option<&dyn AnyTensor>, mesh: &Mesh) -> Result<(), CollectiveError> {
    TRAINS.set(true);
    let batches = take(mesh);
    if !mesh.ends_step() || mesh.num_ranks() == 1 || IS_LEFT_OUT.get() {
        return Ok(());
    }
    let value = loss.map(|loss| loss.part().iter::<f64>().sum::<f64>());
    // What kernels of other processes may round differently.
    let allowed = match loss.map(AnyTensor::element_type) {
        Some(DType::F16 | DType::BF16) => 1e-2,
        _ => 1e-4,
    };
    set_operation("comparing what the ranks were given");
    for axis in (0..mesh.shape().num_axes()).filter(|&axis| mesh.shape().size(axis) > 1) {
        let group = mesh.group(axis).labelled("comparing what the ranks were given");
        compare_axis(&batches, value, allowed, mesh.shape().role(axis), &group).map_err(with_advice)?;
    }
    Ok(())
}

/// The batches of a mesh's step, which is over.
fn take(mesh: &Mesh) -> Vec<Batch> {
    GIVEN.with_borrow_mut(|given| {
        let (own, mut others): (Vec<Batch>, Vec<Batch>) = given
            .drain(..)
            .partition(|batch| batch.mesh.upgrade().is_some_and(|of| of.is_same(mesh)));
        others.retain(|batch| batch.mesh.upgrade().is_some());
        *given = others;
        own
    })
}

fn compare_axis(
    batches: &[Batch],
    loss: Option<f64>,
    allowed: f64,
    role: AxisRole,
    group: &ProcessGroup,
) -> Result<(), CollectiveError> {
    const ALL: usize = 2 + BATCHES * WORDS;
    let is_own = |batch: &Batch| batch.part_over == Some(role);
    let mut mine = [0; ALL];
    mine[0] = loss.unwrap_or(0.0).to_bits() as i64;
    mine[1] = batches.len() as i64;
    for (words, batch) in mine[2..].chunks_exact_mut(WORDS).zip(batches) {
        words.copy_from_slice(&batch.words);
        if is_own(batch) {
            words[0] = 0;
        }
    }
    let mut all = vec![0; ALL * group.size()];
    group.all_gather(&mine, &mut all)?;
    let (all, _) = all.as_chunks::<ALL>();
    let differs = |what: String| {
        Err(CollectiveError::NoAgreement {
            group: group.to_string(),
            what,
        })
    };
    let rank = |index: usize| group.ranks()[index];
    if let Some(other) = all.iter().position(|said| said[1] != all[0][1]) {
        return differs(format!(
            "rank {} distributed {} tensors in this step, and rank {} {}: every rank runs the same program",
            rank(0),
            all[0][1],
            rank(other),
            all[other][1]
        ));
    }
    for (number, batch) in batches.iter().enumerate() {
        let said = |index: usize| &all[index][2 + number * WORDS..][..WORDS];
        if let Some(other) = (1..all.len()).find(|&other| said(other)[1..] != said(0)[1..]) {
            return differs(format!(
                "rank {} gave {}, and rank {} gave {}: every rank gives distribute the same whole batch, and \
                 from_local its part of one length",
                rank(0),
                in_words(said(0)),
                rank(other),
                in_words(said(other))
            ));
        }
        let Some(odd) = (1..all.len()).find(|&other| said(other)[0] != said(0)[0]) else {
            continue;
        };
        // Those of floats may be rounded differently.
        let odd = match &batch.data {
            Some(data) if data.dtype().is_float() => compare_values(data, group)?,
            _ => Some(odd),
        };
        if let Some(other) = odd {
            return differs(format!(
                "rank {} and rank {} gave {} of different elements: distribute takes the whole batch, the same on \
                 every rank, and keeps this rank's part; a batch of a rank's own samples, such as those of \
                 ParallelContext::data_shard, goes to from_local. {LEAVE_OUT}",
                rank(0),
                rank(other),
                in_words(said(0))
            ));
        }
    }
    let losses: Vec<f64> = all.iter().map(|said| f64::from_bits(said[0] as u64)).collect();
    match losses.iter().position(|&other| is_far(losses[0], other, allowed)) {
        None => Ok(()),
        Some(other) => differs(format!(
            "the loss is {} on rank {} and {} on rank {}: all ranks of a mesh compute one loss; a batch of a rank's \
             own samples, such as those of ParallelContext::data_shard, goes to from_local, and whatever scales the \
             loss must be the same on all, as the seed of the first values must. {LEAVE_OUT}",
            losses[0],
            rank(0),
            losses[other],
            rank(other)
        )),
    }
}

/// Returns whether two losses differ by more than rounding. One that is not finite is reported elsewhere.
fn is_far(first: f64, other: f64, allowed: f64) -> bool {
    match (first.is_finite(), other.is_finite()) {
        (true, true) => (other - first).abs() > allowed * first.abs().max(other.abs()).max(1.0),
        (first, other) => first != other,
    }
}

/// `distribute a batch of shape [8, 4]`.
fn in_words(words: &[i64]) -> String {
    let call = if words[1] == 2 { "from_local" } else { "distribute" };
    let dimensions = (words[2] as usize).min(DIMENSIONS);
    format!("{call} a batch of shape {:?}", &words[3..3 + dimensions])
}
