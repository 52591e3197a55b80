//! [`Measurement`]: a JSON line, and the tables made of many.

use examples::figures::median;
use serde::{Deserialize, Serialize};

use crate::table::{self, Row};

/// One size of one operation. Peers print the same fields; more are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Name of what moves the bytes: `shared-memory`, `tcp`, `gloo`.
    pub engine: String,
    /// `all_reduce` where a peer does not say.
    #[serde(default = "all_reduce")]
    pub operation: String,
    pub world: usize,
    /// Size of the message, which each rank holds before or after the operation, whichever is larger.
    pub bytes: usize,
    /// The median over calls of the slowest rank's time.
    pub seconds: f64,
    /// Median over calls of the slowest rank's time until the call has returned. `None` if a peer does not report it.
    #[serde(default)]
    pub host_seconds: Option<f64>,
    /// `bytes / seconds` times the operation's bus factor, in 10^9 bytes per second.
    pub bus_gb_per_s: f64,
}

fn all_reduce() -> String {
    "all_reduce".to_owned()
}

impl Measurement {
    fn is_same_kind(&self, other: &Self) -> bool {
        self.engine == other.engine && self.is_same_task(other)
    }

    fn is_same_task(&self, other: &Self) -> bool {
        (&self.operation, self.world, self.bytes) == (&other.operation, other.world, other.bytes)
    }

    /// Returns the columns that say what was done.
    fn row(&self) -> Row {
        Row::default()
            .text("operation", &self.operation)
            .number("ranks", self.world as f64)
            .bytes("bytes", self.bytes as f64)
    }
}

/// Returns the medians over rounds, in the order in which the first ones came.
pub fn medians(all: &[Measurement]) -> Vec<Measurement> {
    let mut medians: Vec<Measurement> = Vec::new();
    for first in all {
        if !medians.iter().any(|known| known.is_same_kind(first)) {
            let of_kind = all.iter().filter(|other| other.is_same_kind(first));
            let seconds = median(of_kind.clone().map(|measurement| measurement.seconds).collect());
            let hosts: Vec<f64> = of_kind.filter_map(|measurement| measurement.host_seconds).collect();
            medians.push(Measurement {
                seconds,
                host_seconds: (!hosts.is_empty()).then(|| median(hosts)),
                bus_gb_per_s: first.bus_gb_per_s * first.seconds / seconds,
                ..first.clone()
            });
        }
    }
    medians
}

/// Returns one line for each measurement.
pub fn table<'a>(medians: impl Iterator<Item = &'a Measurement>) -> String {
    let row = |measurement: &Measurement| {
        Row::default()
            .text("engine", &measurement.engine)
            .and(measurement.row())
            .seconds("time", measurement.seconds)
            .seconds("host", measurement.host_seconds.unwrap_or(f64::NAN))
            .number("bus GB/s", measurement.bus_gb_per_s)
    };
    table::table(&medians.map(row).collect::<Vec<_>>())
}

/// Returns one line for each of our measurements that the peer has made too.
pub fn ratios(ours: &[Measurement], theirs: &[Measurement]) -> String {
    let mut rows = Vec::new();
    for peer in theirs {
        for own in ours.iter().filter(|own| own.is_same_task(peer)) {
            let row = own.row().text("peer", &peer.engine).seconds("peer time", peer.seconds);
            let row = row.text("engine", &own.engine).seconds("time", own.seconds);
            rows.push(row.number("ratio", peer.seconds / own.seconds));
        }
    }
    let legend = "ratio: the peer's time by ours, which is also our bus bandwidth by the peer's";
    format!("{}\n{legend}", table::table(&rows))
}

/// Returns one line for each all-reduce over shared memory whose size was copied too; `None` if there is none.
///
/// An all-reduce through a staging area reads and writes every byte several times on each of `p` ranks: it stages the
/// slices of the others (`(p - 1) / p` of the message, read and written), reads `p` contributions of `1 / p` and writes
/// the sum twice, into its buffer and for the others, and collects the others' slices (`(p - 1) / p`). The time of a
/// plain copy of that many bytes is the floor of its time.
pub fn floors(ours: &[Measurement]) -> Option<String> {
    let named = |name: &'static str| {
        let of_engine = ours.iter().filter(|own| own.engine == "shared-memory");
        of_engine.filter(move |own| own.operation == name)
    };
    let row = |reduced: &Measurement| {
        let mut copies = named("copy");
        let copy = copies.find(|copy| (copy.world, copy.bytes) == (reduced.world, reduced.bytes))?;
        let own = 1.0 / reduced.world as f64;
        let others = 1.0 - own;
        let (reads, writes) = (others + 1.0 + others, others + 2.0 * own + others);
        let copies = (reads + writes) / 2.0;
        let row = Row::default()
            .number("ranks", reduced.world as f64)
            .bytes("bytes", reduced.bytes as f64);
        let row = row.seconds("copy", copy.seconds).number("copies", copies);
        let row = row
            .seconds("floor", copies * copy.seconds)
            .seconds("all_reduce", reduced.seconds);
        Some(row.number("of the floor", copies * copy.seconds / reduced.seconds))
    };
    let rows: Vec<Row> = named("all_reduce").filter_map(row).collect();
    (!rows.is_empty()).then(|| table::table(&rows))
}
