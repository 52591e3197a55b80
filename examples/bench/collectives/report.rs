//! A measurement as a JSON line, and the tables made of many.
//!
//! Lines are written by `worker`, read and printed by `main`.

use std::fmt::Write as _;

use examples::figures::median;
use serde::{Deserialize, Serialize};

/// One size of one operation. Peers print the same fields; more are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What moves the bytes: `shared-memory`, `tcp`, `gloo`.
    pub engine: String,
    /// `all_reduce` where a peer does not say.
    #[serde(default = "all_reduce")]
    pub operation: String,
    /// Ranks.
    pub world: usize,
    /// The message: what each rank holds before or after the operation, whichever is larger.
    pub bytes: usize,
    /// The median over calls of the slowest rank's time.
    pub seconds: f64,
    /// `bytes / seconds` times the operation's bus factor, in 10^9 bytes per second.
    pub bus_gb_per_s: f64,
}

fn all_reduce() -> String {
    "all_reduce".to_owned()
}

/// Who measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This program's ranks.
    Ours,
    /// The program of `--against`.
    Peer,
}

type Results = [(Source, Measurement)];

/// Returns one line per engine, operation, world and size, with the median over rounds.
pub fn table(results: &Results) -> String {
    let mut text = String::from("engine         operation       ranks      bytes    seconds   bus GB/s");
    for (source, first) in firsts(results) {
        let seconds = median_seconds(results, source, first);
        let _ = write!(
            text,
            "\n{:<14} {:<14} {:>6} {:>10} {:>10} {:>10.3}",
            first.engine,
            first.operation,
            first.world,
            binary(first.bytes),
            decimal(seconds),
            bandwidth(first, seconds),
        );
    }
    text
}

/// Returns one line for each of our measurements that the peer has made too.
pub fn ratios(results: &Results) -> String {
    let mut text =
        String::from("operation       ranks      bytes  peer           peer time  engine         time       ratio");
    let (peers, ours): (Vec<_>, Vec<_>) = firsts(results)
        .into_iter()
        .partition(|(source, _)| *source == Source::Peer);
    for (_, peer) in &peers {
        let peer_seconds = median_seconds(results, Source::Peer, peer);
        for (_, own) in ours.iter().filter(|(_, own)| is_same_task(own, peer)) {
            let seconds = median_seconds(results, Source::Ours, own);
            let _ = write!(
                text,
                "\n{:<14} {:>6} {:>10}  {:<13} {:>10}  {:<13} {:>10} {:>6.2}",
                own.operation,
                own.world,
                binary(own.bytes),
                peer.engine,
                decimal(peer_seconds),
                own.engine,
                decimal(seconds),
                peer_seconds / seconds,
            );
        }
    }
    text.push_str("\nratio: the peer's time by ours, which is also our bus bandwidth by the peer's");
    text
}

/// Returns one line for each all-reduce over shared memory whose size was copied too; `None` if there is none.
///
/// An all-reduce through a staging area reads and writes every byte several times on each of `p` ranks: it stages the
/// slices of the others (`(p - 1) / p` of the message, read and written), reads `p` contributions of `1 / p` and writes
/// the sum twice, into its buffer and for the others, and collects the others' slices (`(p - 1) / p`). The time of a
/// plain copy of that many bytes is the floor of its time.
pub fn floors(results: &Results) -> Option<String> {
    let mut text = String::from("ranks      bytes       copy  copies      floor  all_reduce  of the floor");
    let header = text.len();
    let ours: Vec<&Measurement> = firsts(results)
        .into_iter()
        .filter_map(|(source, first)| (source == Source::Ours && first.engine == "shared-memory").then_some(first))
        .collect();
    for reduced in ours.iter().filter(|first| first.operation == "all_reduce") {
        let is_copy_of = |copied: &&&Measurement| {
            (copied.operation.as_str(), copied.world, copied.bytes) == ("copy", reduced.world, reduced.bytes)
        };
        let Some(copied) = ours.iter().find(is_copy_of) else {
            continue;
        };
        let [copy, measured] = [copied, reduced].map(|kind| median_seconds(results, Source::Ours, kind));
        let copies = copies_of_all_reduce(reduced.world);
        let _ = write!(
            text,
            "\n{:>5} {:>10} {:>10} {copies:>7.2} {:>10} {:>11} {:>13.2}",
            reduced.world,
            binary(reduced.bytes),
            decimal(copy),
            decimal(copies * copy),
            decimal(measured),
            copies * copy / measured,
        );
    }
    (text.len() > header).then_some(text)
}

/// How often a rank of an all-reduce through a staging area reads and writes its message; see [`floors`].
fn copies_of_all_reduce(ranks: usize) -> f64 {
    let own = 1.0 / ranks as f64;
    let others = 1.0 - own;
    let (reads, writes) = (others + 1.0 + others, others + 2.0 * own + others);
    (reads + writes) / 2.0
}

/// Returns the first measurement of each kind, in the order in which they came.
fn firsts(results: &Results) -> Vec<(Source, &Measurement)> {
    let mut firsts: Vec<(Source, &Measurement)> = Vec::new();
    for (source, measurement) in results {
        let is_known = |(other, first): &(Source, &Measurement)| other == source && is_same_kind(first, measurement);
        if !firsts.iter().any(is_known) {
            firsts.push((*source, measurement));
        }
    }
    firsts
}

fn median_seconds(results: &Results, source: Source, kind: &Measurement) -> f64 {
    let of_kind = results
        .iter()
        .filter(|(other, measurement)| *other == source && is_same_kind(measurement, kind));
    median(of_kind.map(|(_, measurement)| measurement.seconds).collect())
}

fn is_same_kind(a: &Measurement, b: &Measurement) -> bool {
    a.engine == b.engine && is_same_task(a, b)
}

fn is_same_task(a: &Measurement, b: &Measurement) -> bool {
    (&a.operation, a.world, a.bytes) == (&b.operation, b.world, b.bytes)
}

/// The bandwidth of `first` if it had taken `seconds`.
fn bandwidth(first: &Measurement, seconds: f64) -> f64 {
    first.bus_gb_per_s * first.seconds / seconds
}

/// The middle value, or the mean of the two in the middle.
fn binary(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1048576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1048576),
    }
}

fn decimal(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
