//! The table: a line for each case, and what it says together.

use super::cases::{Case, Work};
use super::pytorch::Answer;
use super::timing::Timing;

/// What operations that only move bytes are to reach of the copy's rate.
const COPY_SHARE: f64 = 0.85;

pub fn header() -> String {
    row([
        "operation",
        "size",
        "ours µs ",
        "PyTorch µs ",
        "ratio",
        "rate",
        "share",
        "target",
    ]
    .map(str::to_owned))
}

fn row([operation, size, ours, theirs, ratio, rate, share, target]: [String; 8]) -> String {
    format!("{operation:<26} {size:<35} {ours:>11} {theirs:>11} {ratio:>6} {rate:>21} {share:>6}  {target}")
}

pub const NOTES: &str = "rate: bytes that must be moved, or operations, by our time; attention's with the half that \
causal attention needs, and in brackets with all. share: of the faster copy of that many bytes, or of the faster of \
burn's and PyTorch's largest product. target: 85 % of the copy; attention no slower than PyTorch's flash attention. \
ratio: ours by PyTorch's time. L: launching took longer than running. c: PyTorch compiled, f: its flash attention, m: \
its memory-efficient attention.";

/// The times of a case.
pub struct Measured {
    pub ours: Timing,
    /// PyTorch's, where it is asked.
    pub theirs: Option<Answer>,
}

/// What the device can do.
pub struct Rates {
    /// Bytes that a copy of this size reads and writes in a second.
    pub copied: Option<f64>,
    /// FLOP/s of the fastest large product.
    pub matrix: Option<f64>,
    /// Whether targets are held against them: not at sizes where times mean nothing.
    pub is_judged: bool,
}

/// Whether a target is met, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Met,
    Missed,
    /// There is none, or nothing to hold it against.
    Open,
}

/// The line above the table.
pub fn rates_line(size: usize, ours: Option<f64>, theirs: Option<&Result<f64, String>>) -> String {
    let tera = |rate: f64| format!("{:.3} TFLOP/s", rate / 1e12);
    let ours = ours.map_or("failed".to_owned(), tera);
    let theirs = match theirs {
        None => String::new(),
        Some(Ok(rate)) => format!(", PyTorch's {}", tera(*rate)),
        Some(Err(error)) => format!(", PyTorch's failed: {error}"),
    };
    format!("products of {size} x {size} matrices: burn's {ours}{theirs}")
}

pub fn line(case: &Case, measured: &Measured, rates: &Rates) -> String {
    let seconds = measured.ours.seconds;
    let (rate, share) = match case.work {
        Work::Bytes(bytes) => {
            let rate = bytes as f64 / seconds;
            (
                format!("{:.1} GB/s", rate / 1e9),
                rates.copied.map(|copied| rate / copied),
            )
        }
        Work::Operations { all, needed } => {
            let [all, needed] = [all, needed].map(|operations| operations / seconds);
            let rate = if all == needed {
                format!("{:.2} TF/s", all / 1e12)
            } else {
                format!("{:.2} ({:.2}) TF/s", needed / 1e12, all / 1e12)
            };
            (rate, rates.matrix.map(|matrix| needed / matrix))
        }
    };
    let (theirs, ratio, remark) = match &measured.theirs {
        None => ("- ".to_owned(), "-".to_owned(), String::new()),
        Some(Ok((theirs, way))) => (
            format!("{:.1}{}", theirs * 1e6, if way == "eager" { " " } else { &way[..1] }),
            format!("{:.2}", seconds / theirs),
            String::new(),
        ),
        Some(Err(error)) => ("- ".to_owned(), "-".to_owned(), format!("  (PyTorch: {error})")),
    };
    let target = match verdict(case, measured, rates) {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::Open => "-",
    };
    row([
        format!("{} {}", case.operation, case.pass),
        case.size.clone(),
        format!(
            "{:.1}{}",
            seconds * 1e6,
            if measured.ours.is_launch_bound { "L" } else { " " }
        ),
        theirs,
        ratio,
        rate,
        share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
        format!("{target}{remark}"),
    ])
}

pub fn verdict(case: &Case, measured: &Measured, rates: &Rates) -> Verdict {
    if !rates.is_judged {
        return Verdict::Open;
    }
    let is_met = match (case.work, &measured.theirs, rates.copied) {
        (Work::Bytes(bytes), _, Some(copied)) => Some(bytes as f64 / measured.ours.seconds >= COPY_SHARE * copied),
        (Work::Operations { .. }, Some(Ok((theirs, way))), _) if way.starts_with('f') => {
            Some(measured.ours.seconds <= *theirs)
        }
        _ => None,
    };
    match is_met {
        Some(true) => Verdict::Met,
        Some(false) => Verdict::Missed,
        None => Verdict::Open,
    }
}

/// How many targets are met.
pub fn summary(verdicts: &[Verdict]) -> String {
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    format!(
        "{} of {} targets met; {} cases without one",
        count(Verdict::Met),
        count(Verdict::Met) + count(Verdict::Missed),
        count(Verdict::Open)
    )
}
