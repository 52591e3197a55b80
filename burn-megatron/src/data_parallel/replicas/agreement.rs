//! Whether the ranks of a group have wrapped the same module and have come equally far: what they compare, and the
//! errors that name the parameter or the steps.

use std::hash::{DefaultHasher, Hasher};

use super::undrawn::Undrawn;
use crate::collectives::ProcessGroup;
use crate::context::ParallelContext;
use crate::data_parallel::DataParallelError;
use crate::data_parallel::progress::{Progress, Stated};
use crate::parameters::ParameterEntry;

/// Compares names, shapes and types of the parameters, and which of them are undrawn, over a group whose ranks hold the
/// same module: over the data-parallel group local shapes, otherwise logical ones.
///
/// # Communication
/// One all-gather of 16 bytes; if the ranks differ, another one of the lists themselves.
///
/// # Errors
/// [`DataParallelError::ModulesDiffer`] on every rank of the group, naming the first parameter that differs; when a
/// collective fails.
pub(in crate::data_parallel) fn compare_modules(
    parameters: &[ParameterEntry],
    undrawn: &Undrawn,
    context: &ParallelContext,
    group: &ProcessGroup,
) -> Result<(), DataParallelError> {
    if group.size() == 1 {
        return Ok(());
    }
    let group = group.labelled("comparing the modules' parameters");
    let is_data_group = group.ranks() == context.data_group().ranks();
    let lines: Vec<String> = parameters
        .iter()
        .map(|parameter| in_words(parameter, undrawn, context, is_data_group))
        .collect();
    compare_lists(&lines, &group)
}

/// Compares what ranks say of each parameter, in the module's order.
///
/// # Communication
/// One all-gather of 16 bytes; if the ranks differ, another one of the lists themselves.
///
/// # Errors
/// As [`compare_modules`].
pub(in crate::data_parallel) fn compare_lists(lines: &[String], group: &ProcessGroup) -> Result<(), DataParallelError> {
    let text = lines.join("\n");
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    let mut digests = vec![0_i64; 2 * group.size()];
    group.all_gather(&[hasher.finish() as i64, text.len() as i64], &mut digests)?;
    let digests: Vec<&[i64]> = digests.chunks_exact(2).collect();
    let Some(other) = digests.iter().position(|&digest| digest != digests[0]) else {
        return Ok(());
    };
    let longest = digests.iter().map(|digest| digest[1] as usize).max().unwrap_or(0);
    let mut padded = text.into_bytes();
    padded.resize(longest, 0);
    let mut texts = vec![0_u8; longest * group.size()];
    group.all_gather(&padded, &mut texts)?;
    let text_of = |rank: usize| {
        let bytes = &texts[longest * rank..][..digests[rank][1] as usize];
        String::from_utf8_lossy(bytes)
    };
    Err(difference(&text_of(0), &text_of(other), group, other))
}

/// `encoder.fc.weight [4, 8] F32, trained`.
fn in_words(parameter: &ParameterEntry, undrawn: &Undrawn, context: &ParallelContext, is_data_group: bool) -> String {
    let declared = context.registry().declaration(parameter.id);
    let logical = declared
        .as_ref()
        .map(|declared| declared.placement.logical_shape().to_vec());
    let shape = logical
        .filter(|_| !is_data_group)
        .unwrap_or_else(|| parameter.shape.clone());
    let trained = if parameter.requires_grad {
        "trained"
    } else {
        "not trained"
    };
    // Its values are the same on ranks of one seed.
    let seed = undrawn.seed(parameter.id);
    let values = seed.map_or(String::new(), |seed| format!(", without values, of the seed {seed}"));
    format!("{} {shape:?} {:?}, {trained}{values}", parameter.path, parameter.dtype)
}

/// The first difference between the lists of the group's first rank and of another.
fn difference(first: &str, other: &str, group: &ProcessGroup, other_rank: usize) -> DataParallelError {
    let (first, other): (Vec<&str>, Vec<&str>) = (first.lines().collect(), other.lines().collect());
    let number = first
        .iter()
        .zip(&other)
        .take_while(|(first, other)| first == other)
        .count();
    let at = |lines: &[&str]| match lines.get(number) {
        Some(line) => (*line).to_owned(),
        None => format!("nothing, for it has {} parameters", lines.len()),
    };
    DataParallelError::ModulesDiffer {
        group: group.name().to_owned(),
        number: number + 1,
        first: group.ranks()[0],
        first_has: at(&first),
        other: group.ranks()[other_rank],
        other_has: at(&other),
    }
}

/// Compares how far the ranks that together hold one model have come: the steps of all of them, the updates of those
/// that share a stage. Returns whether any of them trains a parameter.
///
/// # Communication
/// One all-gather of 16 bytes over the model group.
///
/// # Errors
/// [`DataParallelError::OutOfStep`] on every rank of the group; when the collective fails.
pub(in crate::data_parallel) fn compare_parts(
    progress: Progress,
    is_trained: bool,
    context: &ParallelContext,
) -> Result<bool, DataParallelError> {
    let group = context.model_group();
    if group.size() == 1 {
        return Ok(is_trained);
    }
    let Progress { steps, updates } = progress;
    let stage = context.coordinates().pipeline;
    let mut all = vec![0; 4 * group.size()];
    let labelled = group.labelled("comparing the ranks' steps");
    let mine = [steps as i32, updates as i32, stage as i32, i32::from(is_trained)];
    labelled.all_gather(&mine, &mut all)?;
    let (all, _) = all.as_chunks::<4>();
    let made = |[steps, updates, ..]: [i32; 4]| Progress {
        steps: steps as u32,
        updates: updates as u32,
    };
    let is_apart =
        |first: &[i32; 4], other: &[i32; 4]| first[0] != other[0] || (first[2] == other[2] && first[1] != other[1]);
    let other_of = |first: usize| all.iter().position(|other| is_apart(&all[first], other));
    match (0..all.len()).find_map(|first| Some((first, other_of(first)?))) {
        None => Ok(all.iter().any(|[.., is_trained]| *is_trained > 0)),
        Some((first, other)) => Err(apart(group, |rank| made(all[rank]), [first, other])),
    }
}

/// Returns what is wrong with ranks of which some, as all have just learned, have come further than others, or are in
/// another step.
///
/// # Communication
/// One all-gather of 56 bytes.
///
/// # Errors
/// When it fails.
pub(in crate::data_parallel) fn out_of_step(
    progress: Progress,
    stated: Stated,
    group: &ProcessGroup,
) -> Result<DataParallelError, DataParallelError> {
    const ALL: usize = 2 + Stated::NUM_WORDS;
    let mut mine = [i64::from(progress.steps), i64::from(progress.updates), 0, 0, 0, 0, 0];
    mine[2..].copy_from_slice(&stated.to_words());
    let mut all = vec![0_i64; ALL * group.size()];
    group.all_gather(&mine, &mut all)?;
    let (all, _) = all.as_chunks::<ALL>();
    let made = |rank: usize| Progress {
        steps: all[rank][0] as u32,
        updates: all[rank][1] as u32,
    };
    let difference = |rank: usize| Stated::difference(&all[0][2..], &all[rank][2..]);
    let other = (0..all.len()).find(|&rank| made(rank) != made(0));
    let stated = (0..all.len()).find_map(|rank| Some((rank, difference(rank)?)));
    Ok(match (other, stated) {
        (None, Some((rank, (what, [first_value, other_value])))) => DataParallelError::OtherStep {
            what,
            group: group.name().to_owned(),
            first: group.ranks()[0],
            first_value,
            other: group.ranks()[rank],
            other_value,
        },
        (other, _) => apart(group, made, [0, other.unwrap_or(0)]),
    })
}

/// The error of two ranks of a group that have not come equally far.
fn apart(group: &ProcessGroup, made: impl Fn(usize) -> Progress, [first, other]: [usize; 2]) -> DataParallelError {
    DataParallelError::OutOfStep {
        group: group.name().to_owned(),
        first: group.ranks()[first],
        first_made: made(first),
        other: group.ranks()[other],
        other_made: made(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SaidOfStep;

    #[test]
    fn maxima_show_whether_ranks_have_come_equally_far() {
        let maxima = |all: &[Progress]| -> Vec<i32> {
            let columns = 0..Progress::NUM_MAXIMA;
            let column = |index: usize| {
                let maxima = all.iter().map(|progress| progress.to_maxima(Stated::default())[index]);
                maxima.max()
            };
            columns.map(|index| column(index).unwrap_or_default()).collect()
        };
        let at = |steps, updates| Progress { steps, updates };
        assert!(Progress::is_equal(&maxima(&[at(3, 1), at(3, 1), at(3, 1)])));
        assert!(Progress::is_equal(&maxima(&[at(0, 0)])));
        assert!(!Progress::is_equal(&maxima(&[at(3, 1), at(2, 1), at(3, 1)])));
        assert!(!Progress::is_equal(&maxima(&[at(3, 1), at(3, 1), at(3, 2)])));
    }

    #[test]
    fn what_ranks_say_of_different_steps_is_named() {
        let stated = |iteration, batch, begun, learning_rate| Stated {
            said: SaidOfStep {
                iteration: Some(iteration),
                batch: Some(batch),
            },
            begun,
            learning_rate: Some(learning_rate),
        };
        let first = stated(3, [24, 32], 4, 0.5).to_words();
        let named = |other: Stated| {
            Stated::difference(&first, &other.to_words())
                .map(|(what, [first, other])| format!("{what} {first} {other}"))
        };
        assert_eq!(named(stated(3, [24, 32], 4, 0.5)), None);
        let differences = [
            (stated(4, [32, 40], 4, 0.5), "the iteration that set_step named 3 4"),
            (
                stated(3, [32, 40], 4, 0.5),
                "the global batch of data_shard or shard_loader 24..32 32..40",
            ),
            (stated(3, [24, 32], 5, 0.5), "the number of steps begun 4 5"),
            (
                stated(3, [24, 32], 4, 0.25),
                "the learning rate of the last step 0.5 0.25",
            ),
            (Stated::default(), "the iteration that set_step named 3 none"),
        ];
        for (other, expected) in differences {
            assert_eq!(named(other).as_deref(), Some(expected));
        }
    }

    #[test]
    fn first_parameter_that_differs_is_named() {
        let group = ProcessGroup::single();
        let lists = (
            "a [2] F32, trained\nb [3] F32, trained",
            "a [2] F32, trained\nb [4] F32, trained",
        );
        let message = difference(lists.0, lists.1, &group, 0).to_string();
        assert!(
            message.contains("parameter 2 is b [3] F32, trained on rank 0"),
            "{message}"
        );
        assert!(message.contains("b [4] F32, trained on rank 0"), "{message}");
        let message = difference(lists.0, "a [2] F32, trained", &group, 0).to_string();
        assert!(
            message.contains("nothing, for it has 1 parameters on rank 0"),
            "{message}"
        );
    }
}
