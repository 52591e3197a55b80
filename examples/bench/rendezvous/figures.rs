//! What is measured of a size, the table of all sizes, and the laws that the figures follow.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use examples::figures::{bytes, median};

use crate::rendezvous::layout::Layout;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    Join,
    JoinProofs,
    JoinMessages,
    JoinBytes,
    Connect,
    ConnectProofs,
    ConnectMessages,
    ConnectBytes,
    BarrierMedian,
    BarrierLast,
    AllReduceMedian,
    AllReduceLast,
    RankWrites,
    RankSockets,
    RankThreads,
    RankMemory,
    RankMemoryAfter,
    StoreSockets,
    StoreMemory,
    Cause,
    Returned,
    CauseMessages,
}

/// What the numbers of a figure mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Seconds,
    Percent,
    Bytes,
    Number,
}

impl Figure {
    /// All, in the order of the table.
    pub const ALL: [Figure; 22] = [
        Figure::Join,
        Figure::JoinProofs,
        Figure::JoinMessages,
        Figure::JoinBytes,
        Figure::Connect,
        Figure::ConnectProofs,
        Figure::ConnectMessages,
        Figure::ConnectBytes,
        Figure::BarrierMedian,
        Figure::BarrierLast,
        Figure::AllReduceMedian,
        Figure::AllReduceLast,
        Figure::RankWrites,
        Figure::RankSockets,
        Figure::RankThreads,
        Figure::RankMemory,
        Figure::RankMemoryAfter,
        Figure::StoreSockets,
        Figure::StoreMemory,
        Figure::Cause,
        Figure::Returned,
        Figure::CauseMessages,
    ];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Join => "join",
            Figure::JoinProofs => "  HMAC's share of the processors",
            Figure::JoinMessages => "  messages of the store",
            Figure::JoinBytes => "  their bytes",
            Figure::Connect => "all groups",
            Figure::ConnectProofs => "  HMAC's share of the processors",
            Figure::ConnectMessages => "  messages of the store",
            Figure::ConnectBytes => "  their bytes",
            Figure::BarrierMedian => "barrier of the world, p50",
            Figure::BarrierLast => "  p99",
            Figure::AllReduceMedian => "all-reduce of 8 bytes, p50",
            Figure::AllReduceLast => "  p99",
            Figure::RankWrites => "writes of a rank per barrier",
            Figure::RankSockets => "sockets of a rank",
            Figure::RankThreads => "threads of a rank",
            Figure::RankMemory => "resident memory of a rank",
            Figure::RankMemoryAfter => "  after the first all-reduce",
            Figure::StoreSockets => "sockets of the store",
            Figure::StoreMemory => "resident memory of the store",
            Figure::Cause => "a death: all know the first cause",
            Figure::Returned => "  all calls have returned",
            Figure::CauseMessages => "  messages of the store",
        }
    }

    fn unit(self) -> Unit {
        match self {
            Figure::Join
            | Figure::Connect
            | Figure::BarrierMedian
            | Figure::BarrierLast
            | Figure::AllReduceMedian
            | Figure::AllReduceLast
            | Figure::Cause
            | Figure::Returned => Unit::Seconds,
            Figure::JoinProofs | Figure::ConnectProofs => Unit::Percent,
            Figure::JoinBytes
            | Figure::ConnectBytes
            | Figure::RankMemory
            | Figure::RankMemoryAfter
            | Figure::StoreMemory => Unit::Bytes,
            _ => Unit::Number,
        }
    }

    fn text(self, value: f64) -> String {
        match self.unit() {
            Unit::Seconds => seconds(value),
            Unit::Percent => format!("{value:.2} %"),
            Unit::Bytes => bytes(value as u64),
            Unit::Number if value.fract() == 0.0 => format!("{value:.0}"),
            Unit::Number => format!("{value:.1}"),
        }
    }
}

/// What was measured of a job, as far as it came.
#[derive(Clone, Debug, Default)]
pub struct Figures(BTreeMap<Figure, f64>);

impl Figures {
    /// Notes a figure.
    pub fn set(&mut self, figure: Figure, value: f64) {
        self.0.insert(figure, value);
    }
}

/// What was measured of a size.
#[derive(Clone, Debug)]
pub struct Row {
    /// Ranks.
    pub ranks: usize,
    /// Their axes.
    pub layout: Layout,
    medians: BTreeMap<Figure, f64>,
    /// Why not everything was measured.
    pub error: Option<String>,
}

impl Row {
    /// Returns the medians over jobs.
    pub fn new(ranks: usize, layout: Layout, jobs: &[Figures], error: Option<String>) -> Self {
        let values = |figure: &Figure| {
            jobs.iter()
                .filter_map(|job| job.0.get(figure).copied())
                .collect::<Vec<f64>>()
        };
        let medians = Figure::ALL.into_iter().map(|figure| (figure, median(values(&figure))));
        Self {
            ranks,
            layout,
            medians: medians.filter(|(_, value)| !value.is_nan()).collect(),
            error,
        }
    }

    /// Returns a figure, if it was measured.
    pub fn value(&self, figure: Figure) -> Option<f64> {
        self.medians.get(&figure).copied()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ranks, {}", self.ranks, self.layout)?;
        for (figure, value) in &self.medians {
            write!(formatter, "\n  {:<36}{:>12}", figure.name(), figure.text(*value))?;
        }
        match &self.error {
            Some(error) => write!(formatter, "\n  error: {error}"),
            None => Ok(()),
        }
    }
}

/// `factor * ranks ^ exponent`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// At one rank.
    pub factor: f64,
    /// Of the number of ranks.
    pub exponent: f64,
}

impl Law {
    /// Returns the law of a figure: least squares of the logarithms over the sizes that have it; `None` of fewer than
    /// two.
    pub fn of(rows: &[Row], figure: Figure) -> Option<Law> {
        let point = |row: &Row| {
            let value = row.value(figure).filter(|value| *value > 0.0)?;
            Some(((row.ranks as f64).ln(), value.ln()))
        };
        let points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let slope: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        (spread > 0.0).then(|| {
            let exponent = slope / spread;
            Law {
                factor: (y - exponent * x).exp(),
                exponent,
            }
        })
    }

    /// Returns what it says of a size.
    pub fn at(&self, ranks: f64) -> f64 {
        self.factor * ranks.powf(self.exponent)
    }
}

/// Returns one line for each figure, with a column for each size, the exponent of the law, and what it says of the
/// largest size that was asked for, if that was not measured.
pub fn table(rows: &[Row]) -> String {
    const WIDTH: usize = 12;
    let largest = rows.iter().map(|row| row.ranks).max().unwrap_or_default();
    let mut text = format!("{:<36}", "ranks");
    // Writing to a string does not fail.
    for row in rows {
        let _ = write!(text, "{:>WIDTH$}", row.ranks);
    }
    let _ = write!(text, "{:>WIDTH$}", "law");
    let _ = write!(text, "\n{:<36}", "tp × pp × dp");
    for row in rows {
        let _ = write!(text, "{:>WIDTH$}", row.layout.short());
    }
    let mut is_foretold = false;
    for figure in Figure::ALL {
        let _ = write!(text, "\n{:<36}", figure.name());
        for row in rows {
            let value = row
                .value(figure)
                .map_or_else(|| "-".to_owned(), |value| figure.text(value));
            let _ = write!(text, "{value:>WIDTH$}");
        }
        let law = Law::of(rows, figure).filter(|_| figure.unit() != Unit::Percent);
        let _ = write!(
            text,
            "{:>WIDTH$}",
            law.map_or_else(String::new, |law| format!("N^{:.2}", law.exponent))
        );
        let is_missing = rows
            .iter()
            .any(|row| row.ranks == largest && row.value(figure).is_none());
        if let (Some(law), true) = (law, is_missing) {
            is_foretold = true;
            let _ = write!(text, "{:>WIDTH$}", figure.text(law.at(largest as f64)));
        }
    }
    if is_foretold {
        let _ = write!(text, "\nthe last column: what the law says of {largest} ranks");
    }
    for row in rows {
        if let Some(error) = &row.error {
            let _ = write!(text, "\n{} ranks: {error}", row.ranks);
        }
    }
    text
}

/// Returns a time with a unit that leaves it readable.
pub fn seconds(value: f64) -> String {
    if value < 1e-3 {
        format!("{:.0} µs", 1e6 * value)
    } else if value < 1.0 {
        format!("{:.1} ms", 1e3 * value)
    } else {
        format!("{value:.2} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ranks: usize, join: Option<f64>) -> Row {
        let mut figures = Figures::default();
        if let Some(join) = join {
            figures.set(Figure::Join, join);
        }
        let error = join.is_none().then(|| "out of descriptors".to_owned());
        Row::new(ranks, Layout::new(ranks, None, None).unwrap(), &[figures], error)
    }

    #[test]
    fn a_square_is_found_in_its_points() {
        let rows = [16, 64, 256].map(|ranks| row(ranks, Some(3e-4 * (ranks * ranks) as f64)));
        let law = Law::of(&rows, Figure::Join).unwrap();
        assert!(
            (law.exponent - 2.0).abs() < 1e-9 && (law.factor - 3e-4).abs() < 1e-9,
            "{law:?}"
        );
        assert!((law.at(1000.0) - 300.0).abs() < 1e-6);
        assert_eq!(Law::of(&rows[..1], Figure::Join), None);
        assert_eq!(Law::of(&rows, Figure::Connect), None);
    }

    #[test]
    fn a_size_that_could_not_be_done_has_its_error_and_what_the_law_says() {
        let rows = [row(16, Some(0.016)), row(64, Some(0.256)), row(256, None)];
        let text = table(&rows);
        let join = text.lines().find(|line| line.starts_with("join")).unwrap();
        let columns: Vec<&str> = join.split_whitespace().collect();
        assert_eq!(
            columns,
            ["join", "16.0", "ms", "256.0", "ms", "-", "N^2.00", "4.10", "s"]
        );
        assert!(text.ends_with("256 ranks: out of descriptors"), "{text}");
    }
}
