//! Checks before a run: that all ranks run the same thing, and that every group adds right; on request, how
//! fast each group is.

use std::collections::HashMap;
use std::fmt;
use std::time::Instant;

use burn::tensor::{DType, Device, Tensor};
use sha2::{Digest, Sha256};

use super::spread::Spread;
use crate::collectives::{
    CollectiveError, ProcessGroup, ReduceOp, TensorCall, connect, has_device_memory, listed_ranks, run, tensor_engine,
};
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
/// Groups of a kind that the table has rows of: the slowest ones.
const ROWS: usize = 10;

/// Something that must be the same on every rank.
#[derive(Clone, Debug)]
pub struct Statement {
    /// What it is, for messages.
    pub what: &'static str,
    /// Its value, of one line or several; a difference is reported as the first line that differs.
    pub value: String,
}

/// Error before the first step.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PreflightError {
    #[error(
        "rank {odd} has another {what} than rank {usual}: {odd_line:?} on rank {odd}, {usual_line:?} on rank {usual}"
    )]
    Disagreement {
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
    #[error(
        "rank {rank}: all_reduce over group {group} {} gave {got:?}, expected {expected:?}",
        listed_ranks(ranks)
    )]
    WrongResult {
        rank: usize,
        group: String,
        ranks: Vec<usize>,
        got: Vec<f32>,
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
pub fn check(context: &ParallelContext, statements: &[Statement], device: &Device) -> Result<(), PreflightError> {
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
    let of_tensors = OF_TENSORS.into_iter().filter_map(|kind| context.group(kind));
    connect(device, &of_tensors.collect::<Vec<_>>())?;
    for kind in OF_TENSORS.into_iter().filter(|_| has_device_memory(device)) {
        if let Some(group) = context.group(kind) {
            add_up(context.rank(), group, |numbers| {
                let sum = all_reduce(Tensor::from_data(*numbers, (device, DType::F32)), group)?;
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
    /// slowest rank. None of the world, over which a step sends a few numbers only.
    pub bus_bytes_per_second: Option<f64>,
}

/// The speed of every group of two or more ranks. Its `Display` is a table, of many groups of a kind that of the
/// slowest ten, and how all are distributed.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedReport {
    /// One row per group.
    pub groups: Vec<GroupSpeed>,
}

/// Measures every group; groups of one kind at the same time, as in training; on a device also tensors over the groups
/// whose collectives carry them. Every rank gets the same report.
///
/// # Communication
/// A hundred small all-reduces per group, and four of 16 MiB per group but the world, or twice that; every rank of the
/// world must call.
///
/// # Errors
/// When a group fails.
pub fn measure(context: &ParallelContext, device: &Device) -> Result<SpeedReport, PreflightError> {
    let world = context.world_group();
    let mut groups = Vec::new();
    let of_slices = GroupKind::ALL.into_iter().map(|kind| (kind, false));
    let of_tensors = OF_TENSORS.into_iter().filter(|_| has_device_memory(device));
    for (kind, is_of_tensors) in of_slices.chain(of_tensors.map(|kind| (kind, true))) {
        world.barrier()?;
        let group = context.group(kind).filter(|group| group.size() > 1);
        let mut times = [0.0; 2];
        let mut engine = [0_u8; ENGINE_BYTES];
        if let Some(group) = group {
            let name;
            (times, name) = if is_of_tensors {
                (time_tensors(group, device)?, tensor_engine(device, group))
            } else {
                let rounds = if kind == GroupKind::World { 0 } else { BANDWIDTH_ROUNDS };
                (time(group, rounds)?, group.engine_name())
            };
            let name = name.as_bytes();
            let length = name.len().min(ENGINE_BYTES);
            engine[..length].copy_from_slice(&name[..length]);
        }
        let mut all_times = vec![0.0; times.len() * world.size()];
        world.all_gather(&times, &mut all_times)?;
        let mut all_engines = vec![0; ENGINE_BYTES * world.size()];
        world.all_gather(&engine, &mut all_engines)?;
        for ranks in context.grid().groups(kind).filter(|ranks| ranks.len() > 1) {
            let first = ranks[0];
            let engine = &all_engines[ENGINE_BYTES * first..][..ENGINE_BYTES];
            let (latency_seconds, seconds) = (all_times[2 * first], all_times[2 * first + 1]);
            let share = 2.0 * (ranks.len() - 1) as f64 / ranks.len() as f64;
            let bytes = share * (4 * BANDWIDTH_ELEMENTS) as f64;
            groups.push(GroupSpeed {
                kind,
                engine: String::from_utf8_lossy(engine).trim_end_matches('\0').to_owned(),
                latency_seconds,
                bus_bytes_per_second: (kind != GroupKind::World).then(|| bytes / seconds),
                ranks,
            });
        }
    }
    Ok(SpeedReport { groups })
}

impl GroupSpeed {
    fn microseconds(&self) -> f64 {
        1e6 * self.latency_seconds
    }

    fn gigabytes_per_second(&self) -> Option<f64> {
        self.bus_bytes_per_second.map(|rate| rate / 1e9)
    }
}

/// The groups of a kind, moved by one engine.
struct Alike<'a> {
    groups: Vec<&'a GroupSpeed>,
    latencies: Spread,
    /// None where there is no bandwidth.
    bandwidths: Option<Spread>,
}

impl<'a> Alike<'a> {
    fn new(groups: Vec<&'a GroupSpeed>) -> Self {
        let bandwidths: Option<Vec<f64>> = groups.iter().map(|group| group.gigabytes_per_second()).collect();
        Self {
            latencies: Spread::new(groups.iter().map(|group| group.microseconds())),
            bandwidths: bandwidths.map(|rates| Spread::new(rates.into_iter())),
            groups,
        }
    }

    /// The groups that have a row: if there are more than those, the slowest first.
    fn rows(&self) -> Vec<&'a GroupSpeed> {
        let mut groups = self.groups.clone();
        if self.is_cut() {
            groups.sort_by(|one, other| self.slowness(other).total_cmp(&self.slowness(one)));
            groups.truncate(ROWS);
        }
        groups
    }

    fn is_cut(&self) -> bool {
        self.groups.len() > ROWS
    }

    /// How many times slower than the median a group is, in whichever of both is worse.
    fn slowness(&self, group: &GroupSpeed) -> f64 {
        let by_latency = group.microseconds() / self.latencies.median();
        let bandwidth = self.bandwidths.as_ref().zip(group.gigabytes_per_second());
        let by_bandwidth = bandwidth.map_or(0.0, |(all, rate)| all.median() / rate);
        by_latency.max(by_bandwidth)
    }
}

impl SpeedReport {
    fn alike(&self) -> Vec<Alike<'_>> {
        let same = |one: &GroupSpeed, other: &GroupSpeed| one.kind == other.kind && one.engine == other.engine;
        let mut alike: Vec<Vec<&GroupSpeed>> = Vec::new();
        for group in &self.groups {
            match alike.iter_mut().find(|groups| same(groups[0], group)) {
                Some(groups) => groups.push(group),
                None => alike.push(vec![group]),
            }
        }
        alike.into_iter().map(Alike::new).collect()
    }
}

impl fmt::Display for SpeedReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.groups.is_empty() {
            return formatter.write_str("no group has two ranks: nothing to measure");
        }
        let alike = self.alike();
        let rows: Vec<(&GroupSpeed, String)> = alike
            .iter()
            .flat_map(Alike::rows)
            .map(|group| (group, listed_ranks(&group.ranks)))
            .collect();
        let width = rows
            .iter()
            .map(|(_, ranks)| ranks.chars().count())
            .chain([5])
            .max()
            .unwrap_or(5);
        write!(
            formatter,
            "{:<9} {:<width$} {:<13} {:>12} {:>14}",
            "group", "ranks", "engine", "latency", "bus bandwidth"
        )?;
        for (group, ranks) in &rows {
            let (kind, engine, latency) = (group.kind.name(), &group.engine, group.microseconds());
            write!(formatter, "\n{kind:<9} {ranks:<width$} {engine:<13} {latency:>9.1} µs")?;
            if let Some(rate) = group.gigabytes_per_second() {
                write!(formatter, " {rate:>9.2} GB/s")?;
            }
        }
        for all in alike.iter().filter(|all| all.is_cut()) {
            let (kind, engine, count) = (all.groups[0].kind.name(), &all.groups[0].engine, all.groups.len());
            write!(
                formatter,
                "\nof {count} {kind} groups over {engine}, the slowest {ROWS} are above; of all"
            )?;
            write!(formatter, "\n  latency in µs: {}", all.latencies.text(1))?;
            if let Some(bandwidths) = &all.bandwidths {
                write!(formatter, "\n  bus bandwidth in GB/s: {}", bandwidths.text(2))?;
            }
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
    let mut counts: HashMap<i64, usize> = HashMap::new();
    for hash in hashes {
        *counts.entry(*hash).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let usual = hashes.iter().position(|hash| counts[hash] == most)?;
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
    // Small whole numbers: exact in f32, whatever the order, of a million ranks too.
    let share = |rank: usize| [1.0, (rank % 16) as f32, (rank / 16 % 16) as f32];
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

/// Returns the seconds of a small and of a large all-reduce, those of the group's slowest rank; of no large one, 0.
fn time(group: &ProcessGroup, large_rounds: usize) -> Result<[f64; 2], CollectiveError> {
    let mut small = [0.0_f32];
    let mut large = vec![0.0_f32; if large_rounds > 0 { BANDWIDTH_ELEMENTS } else { 0 }];
    time_both(
        group,
        || group.all_reduce(&mut small, ReduceOp::Sum),
        || group.all_reduce(&mut large, ReduceOp::Sum),
        large_rounds,
    )
}

/// The same for tensors. One number is read after each call, so that the device has finished it.
fn time_tensors(group: &ProcessGroup, device: &Device) -> Result<[f64; 2], CollectiveError> {
    let all_reduce_read = |elements: usize| {
        let input = Tensor::<1>::zeros([elements], (device, DType::F32));
        move || all_reduce(input.clone(), group).map(|sum| drop(sum.slice(0..1).into_data()))
    };
    time_both(
        group,
        all_reduce_read(1),
        all_reduce_read(BANDWIDTH_ELEMENTS),
        BANDWIDTH_ROUNDS,
    )
}

fn all_reduce(tensor: Tensor<1>, group: &ProcessGroup) -> Result<Tensor<1>, CollectiveError> {
    run(tensor, TensorCall::AllReduce(ReduceOp::Sum), group)
}

fn time_both(
    group: &ProcessGroup,
    small: impl FnMut() -> Result<(), CollectiveError>,
    large: impl FnMut() -> Result<(), CollectiveError>,
    large_rounds: usize,
) -> Result<[f64; 2], CollectiveError> {
    let latency = mean_seconds(group, small, WARM_UP_ROUNDS, LATENCY_ROUNDS)?;
    let transfer = match large_rounds {
        0 => 0.0,
        rounds => mean_seconds(group, large, 1, rounds)?,
    };
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
    fn of_many_groups_the_slowest_are_named_and_all_are_counted() {
        let group = |kind, first: usize, latency_seconds, rate: Option<f64>| GroupSpeed {
            kind,
            ranks: (first..first + 8).collect(),
            engine: "tcp".to_owned(),
            latency_seconds,
            bus_bytes_per_second: rate,
        };
        let mut groups = vec![group(GroupKind::World, 0, 1e-3, None)];
        groups[0].ranks = (0..800).collect();
        groups.extend((0..100).map(|index| group(GroupKind::Tensor, 8 * index, 1e-5, Some(2e9))));
        groups[38].latency_seconds = 3e-5;
        groups[52].bus_bytes_per_second = Some(1e9);
        let table = SpeedReport { groups }.to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 1 + 1 + ROWS + 3, "{table}");
        assert!(
            lines[1].starts_with("world     [0, 1, …, 799] (800 ranks) ") && lines[1].ends_with("1000.0 µs"),
            "{table}"
        );
        assert!(
            lines[2].starts_with("tensor    [296, 297, ") && lines[2].contains(" 30.0 µs"),
            "{table}"
        );
        assert!(
            lines[3].starts_with("tensor    [408, 409, ") && lines[3].contains(" 1.00 GB/s"),
            "{table}"
        );
        assert_eq!(
            lines[12],
            "of 100 tensor groups over tcp, the slowest 10 are above; of all"
        );
        assert_eq!(lines[13], "  latency in µs: 10.0 to 30.0, median 10.0 |█          ▁|");
        assert_eq!(
            lines[14],
            "  bus bandwidth in GB/s: 1.00 to 2.00, median 2.00 |▁          █|"
        );
    }

    #[test]
    fn one_rank_passes_and_has_nothing_to_measure() {
        let context = ParallelContext::single(1);
        check(&context, &[], &Device::flex()).unwrap();
        let report = measure(&context, &Device::flex()).unwrap();
        assert_eq!(report.to_string(), "no group has two ranks: nothing to measure");
    }
}
