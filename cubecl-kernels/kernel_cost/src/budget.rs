//! The budget: what the kernels cost when it was last written, as bounds that nothing may pass, with the goal next to
//! each.

use serde::{Deserialize, Serialize};

use crate::attention::Comparison;
use crate::row::{Cost, Row};

/// On which side of its limit a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    AtMost,
    AtLeast,
}

/// A figure of a kernel or a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub subject: String,
    pub figure: String,
    /// The value, in a budget the limit.
    pub value: f64,
    /// On which side of the limit a value must be.
    pub side: Side,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Budget {
    pub limits: Vec<Figure>,
}

/// A figure that is not within the budget.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Overrun {
    /// The value is on the wrong side.
    #[error("{subject}: {figure} is {value:.4}, and must be {side} {limit:.4}")]
    Beyond {
        subject: String,
        figure: String,
        value: f64,
        /// `at most` or `at least`.
        side: &'static str,
        limit: f64,
    },
    #[error("{subject}: {figure} is {value:.4}, and has no limit in the budget")]
    Unknown {
        subject: String,
        figure: String,
        value: f64,
    },
}

/// By how much of itself a limit may be passed: it is written with fewer digits.
const ROUNDING: f64 = 1e-3;

impl Budget {
    /// Returns the budget of this workspace's kernels.
    pub fn of_this_workspace() -> Result<Self, serde_json::Error> {
        serde_json::from_str(include_str!("../data/budget.json"))
    }

    /// Returns the figures that are not within the budget.
    pub fn overruns(&self, figures: &[Figure]) -> Vec<Overrun> {
        figures.iter().filter_map(|figure| self.overrun(figure)).collect()
    }

    fn overrun(&self, figure: &Figure) -> Option<Overrun> {
        let [subject, name] = [&figure.subject, &figure.figure].map(String::clone);
        let value = figure.value;
        let limit = self.limit(figure).map(|limit| limit.value);
        let (side, is_within) = match (limit, figure.side) {
            (None, _) => {
                return Some(Overrun::Unknown {
                    subject,
                    figure: name,
                    value,
                });
            }
            (Some(limit), Side::AtMost) => ("at most", value <= limit + ROUNDING * limit.abs()),
            (Some(limit), Side::AtLeast) => ("at least", value >= limit - ROUNDING * limit.abs()),
        };
        let limit = limit?;
        (!is_within).then_some(Overrun::Beyond {
            subject,
            figure: name,
            value,
            side,
            limit,
        })
    }

    fn limit(&self, of: &Figure) -> Option<&Figure> {
        self.limits
            .iter()
            .find(|limit| limit.subject == of.subject && limit.figure == of.figure)
    }
}

/// Returns the figures of a kernel that have a limit.
pub fn of_row(subject: &str, row: &Row) -> Vec<Figure> {
    let figure = |name: &str, value: f64, side: Side, goal: Option<f64>| Figure {
        subject: format!("{subject}, {}", row.gpu),
        figure: name.to_string(),
        value: rounded(value),
        side,
        goal,
    };
    let spilled = figure("spilled", row.spilled.into(), Side::AtMost, None);
    let of_cost = match &row.cost {
        Cost::Matrix(cost) => vec![
            figure(
                "instructions per HMMA",
                cost.instructions_per_matrix,
                Side::AtMost,
                None,
            ),
            figure("local accesses", cost.local_accesses as f64, Side::AtMost, None),
        ],
        Cost::Memory(cost) => vec![
            figure("needed over given", cost.needed_over_given, Side::AtMost, Some(0.5)),
            figure(
                "bytes in flight",
                cost.bytes_in_flight.into(),
                Side::AtLeast,
                Some(40.0 * 1024.0),
            ),
        ],
    };
    std::iter::once(spilled).chain(of_cost).collect()
}

/// Returns the figures of a pass that have a limit.
pub fn of_comparison(comparison: &Comparison) -> Vec<Figure> {
    let figure = |name: &str, value: f64, goal: f64| Figure {
        subject: format!("{}, d_head {}, {}", comparison.pass, comparison.d_head, comparison.gpu),
        figure: name.to_string(),
        value: rounded(value),
        side: Side::AtLeast,
        goal: Some(goal),
    };
    let (goal, balance) = match (comparison.pass.as_str(), comparison.d_head) {
        ("forward", _) => (0.95, 0.88),
        ("backward", _) => (0.90, 0.95),
        (_, 128) => (0.70, 0.95),
        _ => (0.75, 0.95),
    };
    vec![
        figure("of FlashAttention-2", comparison.with_others[2], goal),
        figure("balance", comparison.balance[0], balance),
    ]
}

/// Four digits, so that a change of the last bits is no change of the file.
fn rounded(value: f64) -> f64 {
    let digits = 10f64.powi(3 - value.abs().max(1e-3).log10().floor() as i32);
    (value * digits).round() / digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, side: Side) -> Figure {
        Figure {
            subject: "a kernel".to_string(),
            figure: format!("{side:?}"),
            value,
            side,
            goal: None,
        }
    }

    #[test]
    fn only_what_is_worse_than_the_limit_is_reported() {
        let budget = Budget {
            limits: vec![figure(2.0, Side::AtMost), figure(0.5, Side::AtLeast)],
        };
        let is_red = |value, side| !budget.overruns(&[figure(value, side)]).is_empty();
        assert!(!is_red(2.0, Side::AtMost) && !is_red(1.0, Side::AtMost) && is_red(2.01, Side::AtMost));
        assert!(!is_red(0.5, Side::AtLeast) && !is_red(0.6, Side::AtLeast) && is_red(0.49, Side::AtLeast));
        let unknown = Figure {
            figure: "another".to_string(),
            ..figure(1.0, Side::AtMost)
        };
        assert!(matches!(budget.overruns(&[unknown])[..], [Overrun::Unknown { .. }]));
    }

    #[test]
    fn each_limit_of_this_workspace_is_red_when_it_is_passed() {
        let budget = Budget::of_this_workspace().expect("it is whole");
        assert!(!budget.limits.is_empty());
        for limit in &budget.limits {
            assert_eq!(budget.overruns(std::slice::from_ref(limit)), [], "at the limit");
            let further = 0.01 * limit.value.abs().max(1e-2);
            let value = match limit.side {
                Side::AtMost => limit.value + further,
                Side::AtLeast => limit.value - further,
            };
            let overruns = budget.overruns(&[Figure { value, ..limit.clone() }]);
            assert!(matches!(overruns[..], [Overrun::Beyond { .. }]), "{limit:?}");
        }
    }

    #[test]
    fn values_keep_four_digits() {
        assert_eq!(
            [0.0, 0.98123, 6.71875, 40960.0, 123_456.0].map(rounded),
            [0.0, 0.9812, 6.719, 40960.0, 123_500.0]
        );
    }
}
