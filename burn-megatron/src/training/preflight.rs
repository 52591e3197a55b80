//! What is looked at before a run: that all ranks run the same thing, and that every group adds right; on request, how
//! fast each group is.

use std::fmt;
use std::time::Instant;

use burn::tensor::{DType, Tensor};
use cubecl_kernels::tape::{float, primitive};
use sha2::{Digest, Sha256};

use crate::collectives::{CollectiveBackend, CollectiveError, ProcessGroup, ReduceOp, TensorCall};
use crate::context::{ParallelContext, broadcast_bytes};
use crate::topology::GroupKind;

/// All-reduces of one number that the latency is the mean of, after the first few.
const LATENCY_ROUNDS: usize = 100;
const WARM_UP_ROUNDS: usize = 10;
/// All-reduces that the bandwidth is the mean of, after one.
const BANDWIDTH_ROUNDS: usize = 3;
/// Length of each, in f32, whatever the model computes in: 16 MiB.
const BANDWIDTH_ELEMENTS: usize = 4 << 20;
/// The groups whose collectives carry tensors.
const OF_TENSORS: [GroupKind; 3] = [GroupKind::Tensor, GroupKind::Data, GroupKind::Embedding];
/// Longest name of an engine in the table, in bytes.
const ENGINE_BYTES: usize = 16;

/// Something that must be the same on every rank.
#[derive(Clone, Debug)]
pub struct Statement {
    /// What it is, for messages.
    pub what: &'static str,
    /// Its value, of one line or several; a difference is reported as the first line that differs.
    pub value: String,
}

/// What is wrong before the first step.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// A rank has another value than most.
    #[error(
        "rank {odd} has another {what} than rank {usual}: {odd_line:?} on rank {odd}, {usual_line:?} on rank {usual}"
    )]
    Disagreement {
        /// What differs.
        what: &'static str,
        /// The first rank whose value is not that of most ranks.
        odd: usize,
        /// The first rank whose value is that of most ranks.
        usual: usize,
        /// The first line of the odd rank's value that differs.
        odd_line: String,
        /// The same line of the usual value.
        usual_line: String,
    },
    /// A group does not add right.
    #[error("rank {rank}: all_reduce over group {group} {ranks:?} gave {got:?}, expected {expected:?}")]
    WrongResult {
        /// This rank.
        rank: usize,
        /// The group's name.
        group: String,
        /// The group's ranks.
        ranks: Vec<usize>,
        /// What came out.
        got: Vec<f32>,
        /// What should have.
        expected: Vec<f32>,
    },
    /// A group does not work at all.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

/// Compares `statements`, the version of this library and a small sum over every group on all ranks; on a device also
/// of tensors, over the groups whose collectives carry them; transfers between stages are tried by the first step.
///
/// # Communication
/// One all-gather of 8 bytes per statement over the world, and an all-reduce of three numbers per group, or two; every
/// rank of the world must call, with statements about the same things. Connects these groups over NCCL.
///
/// # Errors
/// A rank that differs, a wrong sum, a group that fails.
pub fn check<B: CollectiveBackend>(
    context: &ParallelContext,
    statements: &[Statement],
    device: &B::Device,
) -> Result<(), PreflightError> {
    let version = Statement {
        what: "program version",
        value: env!("CARGO_PKG_VERSION").to_owned(),
    };
    for statement in std::iter::once(&version).chain(statements) {
        agree(context.world_group(), statement)?;
    }
    for kind in GroupKind::ALL {
        if let Some(group) = context.group(kind) {
            add_up(context.rank(), group, |numbers| {
                group.all_reduce(numbers, ReduceOp::Sum)
            })?;
        }
    }
    for kind in OF_TENSORS.into_iter().filter(|_| B::HAS_DEVICE_MEMORY) {
        if let Some(group) = context.group(kind) {
            add_up(context.rank(), group, |numbers| {
                let sum = all_reduce::<B>(Tensor::from_data(*numbers, (device, DType::F32)), group)?;
                numbers.copy_from_slice(&sum.into_data().iter::<f32>().collect::<Vec<_>>());
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// The speed of one group of ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSpeed {
    /// The group's kind.
    pub kind: GroupKind,
    /// Its ranks.
    pub ranks: Vec<usize>,
    /// What moves its bytes: those of slices in host memory, or of tensors on a device.
    pub engine: String,
    /// Time of an all-reduce of one f32, in seconds: that of the slowest rank.
    pub latency_seconds: f64,
    /// Bus bandwidth of an all-reduce of 16 MiB, in bytes per second: `2 (n - 1) / n` of its size over the time of the
    /// slowest rank.
    pub bus_bytes_per_second: f64,
}

/// The speed of every group of two or more ranks. Its `Display` is a table.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedReport {
    /// One row per group.
    pub groups: Vec<GroupSpeed>,
}

/// Measures every group; groups of one kind at the same time, as in training; on a device also tensors over the groups
/// whose collectives carry them. Every rank gets the same report.
///
/// # Communication
/// A hundred small all-reduces and four of 16 MiB per group, or twice that; every rank of the world must call.
///
/// # Errors
/// When a group fails.
pub fn measure<B: CollectiveBackend>(
    context: &ParallelContext,
    device: &B::Device,
) -> Result<SpeedReport, PreflightError> {
    let world = context.world_group();
    let mut groups = Vec::new();
    let of_slices = GroupKind::ALL.into_iter().map(|kind| (kind, false));
    let of_tensors = OF_TENSORS.into_iter().filter(|_| B::HAS_DEVICE_MEMORY);
    for (kind, is_of_tensors) in of_slices.chain(of_tensors.map(|kind| (kind, true))) {
        world.barrier()?;
        let group = context.group(kind).filter(|group| group.size() > 1);
        let mut times = [0.0; 2];
        let mut engine = [0_u8; ENGINE_BYTES];
        if let Some(group) = group {
            let name;
            (times, name) = if is_of_tensors {
                (time_tensors::<B>(group, device)?, B::tensor_engine(group))
            } else {
                (time(group)?, group.engine_name())
            };
            let name = name.as_bytes();
            let length = name.len().min(ENGINE_BYTES);
            engine[..length].copy_from_slice(&name[..length]);
        }
        let mut all_times = vec![0.0; times.len() * world.size()];
        world.all_gather(&times, &mut all_times)?;
        let mut all_engines = vec![0; ENGINE_BYTES * world.size()];
        world.all_gather(&engine, &mut all_engines)?;
        for first in 0..world.size() {
            let ranks = context.grid().group(kind, first).unwrap_or_default();
            if ranks.len() < 2 || ranks[0] != first {
                continue;
            }
            let engine = &all_engines[ENGINE_BYTES * first..][..ENGINE_BYTES];
            let (latency_seconds, seconds) = (all_times[2 * first], all_times[2 * first + 1]);
            let share = 2.0 * (ranks.len() - 1) as f64 / ranks.len() as f64;
            groups.push(GroupSpeed {
                kind,
                engine: String::from_utf8_lossy(engine).trim_end_matches('\0').to_owned(),
                latency_seconds,
                bus_bytes_per_second: share * (4 * BANDWIDTH_ELEMENTS) as f64 / seconds,
                ranks,
            });
        }
    }
    Ok(SpeedReport { groups })
}

impl fmt::Display for SpeedReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.groups.is_empty() {
            return formatter.write_str("no group has two ranks: nothing to measure");
        }
        let ranks: Vec<String> = self.groups.iter().map(|group| format!("{:?}", group.ranks)).collect();
        let width = ranks.iter().map(String::len).chain([5]).max().unwrap_or(5);
        write!(
            formatter,
            "{:<9} {:<width$} {:<13} {:>12} {:>14}",
            "group", "ranks", "engine", "latency", "bus bandwidth"
        )?;
        for (group, ranks) in self.groups.iter().zip(&ranks) {
            write!(
                formatter,
                "\n{:<9} {ranks:<width$} {:<13} {:>9.1} µs {:>9.2} GB/s",
                group.kind.name(),
                group.engine,
                group.latency_seconds * 1e6,
                group.bus_bytes_per_second / 1e9
            )?;
        }
        Ok(())
    }
}

/// Compares one statement over all ranks.
fn agree(world: &ProcessGroup, statement: &Statement) -> Result<(), PreflightError> {
    let digest = Sha256::digest(statement.value.as_bytes());
    let mine = digest[..8].iter().fold(0_i64, |sum, byte| sum << 8 | i64::from(*byte));
    let mut hashes = vec![0; world.size()];
    world.all_gather(&[mine], &mut hashes)?;
    let Some((odd, usual)) = odd_one(&hashes) else {
        return Ok(());
    };
    let odd_value = value_of(world, odd, &statement.value)?;
    let usual_value = value_of(world, usual, &statement.value)?;
    let (odd_line, usual_line) = first_difference(&odd_value, &usual_value);
    Err(PreflightError::Disagreement {
        what: statement.what,
        odd,
        usual,
        odd_line,
        usual_line,
    })
}

/// Returns the first rank that differs from most, and the first of most; `None` if all are the same. Of two values that
/// are equally frequent, that of the lower rank counts as that of most.
fn odd_one(hashes: &[i64]) -> Option<(usize, usize)> {
    let count = |hash: &i64| hashes.iter().filter(|other| *other == hash).count();
    let most = hashes.iter().map(count).max()?;
    let usual = hashes.iter().position(|hash| count(hash) == most)?;
    let odd = hashes.iter().position(|hash| *hash != hashes[usual])?;
    Some((odd, usual))
}

/// Returns the value of rank `root` on every rank.
fn value_of(world: &ProcessGroup, root: usize, value: &str) -> Result<String, CollectiveError> {
    let bytes = broadcast_bytes(value.as_bytes().to_vec(), root, usize::MAX, world)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn first_difference(left: &str, right: &str) -> (String, String) {
    let (mut left, mut right) = (left.lines(), right.lines());
    loop {
        match (left.next(), right.next()) {
            (Some(left), Some(right)) if left == right => {}
            (left, right) => {
                let text = |line: Option<&str>| line.unwrap_or_default().trim().to_owned();
                return (text(left), text(right));
            }
        }
    }
}

/// Adds up what each rank of a group contributes, and compares the sum.
fn add_up(
    rank: usize,
    group: &ProcessGroup,
    all_reduce: impl FnOnce(&mut [f32; 3]) -> Result<(), CollectiveError>,
) -> Result<(), PreflightError> {
    // Small whole numbers: exact in f32, whatever the order.
    let share = |rank: usize| [1.0, rank as f32, 2.0 * rank as f32];
    let mut got = share(rank);
    all_reduce(&mut got)?;
    let members = if group.size() == 1 { &[rank][..] } else { group.ranks() };
    let mut expected = [0.0; 3];
    for member in members {
        for (sum, part) in expected.iter_mut().zip(share(*member)) {
            *sum += part;
        }
    }
    if got == expected {
        Ok(())
    } else {
        Err(PreflightError::WrongResult {
            rank,
            group: group.name().to_owned(),
            ranks: group.ranks().to_vec(),
            got: got.to_vec(),
            expected: expected.to_vec(),
        })
    }
}

/// Returns the seconds of a small and of a large all-reduce, those of the group's slowest rank.
fn time(group: &ProcessGroup) -> Result<[f64; 2], CollectiveError> {
    let mut small = [0.0_f32];
    let mut large = vec![0.0_f32; BANDWIDTH_ELEMENTS];
    time_both(
        group,
        || group.all_reduce(&mut small, ReduceOp::Sum),
        || group.all_reduce(&mut large, ReduceOp::Sum),
    )
}

/// The same for tensors. One number is read after each call, so that the device has finished it.
fn time_tensors<B: CollectiveBackend>(group: &ProcessGroup, device: &B::Device) -> Result<[f64; 2], CollectiveError> {
    let all_reduce_read = |elements: usize| {
        let input = Tensor::<B, 1>::zeros([elements], (device, DType::F32));
        move || all_reduce::<B>(input.clone(), group).map(|sum| drop(sum.slice(0..1).into_data()))
    };
    time_both(group, all_reduce_read(1), all_reduce_read(BANDWIDTH_ELEMENTS))
}

fn all_reduce<B: CollectiveBackend>(
    tensor: Tensor<B, 1>,
    group: &ProcessGroup,
) -> Result<Tensor<B, 1>, CollectiveError> {
    B::run(primitive(tensor), TensorCall::AllReduce(ReduceOp::Sum), group).map(float)
}

fn time_both(
    group: &ProcessGroup,
    small: impl FnMut() -> Result<(), CollectiveError>,
    large: impl FnMut() -> Result<(), CollectiveError>,
) -> Result<[f64; 2], CollectiveError> {
    let latency = mean_seconds(group, small, WARM_UP_ROUNDS, LATENCY_ROUNDS)?;
    let transfer = mean_seconds(group, large, 1, BANDWIDTH_ROUNDS)?;
    let mut times = [latency, transfer];
    group.all_reduce(&mut times, ReduceOp::Max)?;
    Ok(times)
}

fn mean_seconds(
    group: &ProcessGroup,
    mut all_reduce: impl FnMut() -> Result<(), CollectiveError>,
    warm_up: usize,
    rounds: usize,
) -> Result<f64, CollectiveError> {
    for _ in 0..warm_up {
        all_reduce()?;
    }
    group.barrier()?;
    let start = Instant::now();
    for _ in 0..rounds {
        all_reduce()?;
    }
    Ok(start.elapsed().as_secs_f64() / rounds as f64)
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;

    #[test]
    fn odd_rank_is_the_one_that_differs_from_most() {
        assert_eq!(odd_one(&[7, 7, 7]), None);
        assert_eq!(odd_one(&[7, 7, 8]), Some((2, 0)));
        assert_eq!(odd_one(&[8, 7, 7]), Some((0, 1)));
        assert_eq!(odd_one(&[8, 7]), Some((1, 0)));
    }

    #[test]
    fn first_line_that_differs_is_found() {
        assert_eq!(
            first_difference("a\n b: 1\nc", "a\n b: 2\nd"),
            ("b: 1".into(), "b: 2".into())
        );
        assert_eq!(first_difference("a\nb", "a"), ("b".into(), String::new()));
    }

    #[test]
    fn one_rank_passes_and_has_nothing_to_measure() {
        let context = ParallelContext::single(1);
        check::<Flex>(&context, &[], &FlexDevice).unwrap();
        let report = measure::<Flex>(&context, &FlexDevice).unwrap();
        assert_eq!(report.to_string(), "no group has two ranks: nothing to measure");
    }
}
