//! [`Figure`]: what an evaluation comes to, under the name of the program that defines it.

use serde_json::{Map, Value, json};

/// The figures of one program's definitions.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) program: Program,
    pub(super) figures: Vec<Figure>,
}

/// A program that defines figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    MegatronLm,
    LmEval,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) value: FigureValue,
    /// Of a mean, its deviation over samples of the same size.
    pub(super) standard_error: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FigureValue {
    Count(usize),
    Real(f64),
}

impl Program {
    /// Its name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MegatronLm => "Megatron-LM",
            Self::LmEval => "lm-evaluation-harness",
        }
    }

    /// Its name in JSON.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::MegatronLm => "megatron_lm",
            Self::LmEval => "lm_eval",
        }
    }
}

impl Figure {
    pub(super) fn count(name: &'static str, count: usize) -> Self {
        Self {
            name,
            value: FigureValue::Count(count),
            standard_error: None,
        }
    }

    pub(super) fn real(name: &'static str, value: f64) -> Self {
        Self {
            name,
            value: FigureValue::Real(value),
            standard_error: None,
        }
    }

    /// The part of `all` that is right, with the standard error of lm-evaluation-harness: the deviation of the sample,
    /// by one less than its size, over the root of the size; none of one.
    pub(super) fn accuracy(name: &'static str, right: usize, all: usize) -> Self {
        let mean = right as f64 / all as f64;
        let standard_error = (all > 1).then(|| (mean * (1.0 - mean) / (all - 1) as f64).sqrt());
        Self {
            standard_error,
            ..Self::real(name, mean)
        }
    }
}

/// All figures as JSON, by program and name; a standard error has its figure's name and `_stderr`.
pub(super) fn as_json(families: &[Family]) -> Value {
    let of_family = |family: &Family| {
        let mut object = Map::new();
        for figure in &family.figures {
            let value = match figure.value {
                FigureValue::Count(count) => json!(count),
                FigureValue::Real(value) => json!(value),
            };
            object.insert(figure.name.to_owned(), value);
            if let Some(error) = figure.standard_error {
                object.insert(format!("{}_stderr", figure.name), json!(error));
            }
        }
        (family.program.key().to_owned(), Value::Object(object))
    };
    Value::Object(families.iter().map(of_family).collect())
}

/// All figures as lines of a table.
pub(super) fn as_table(families: &[Family]) -> String {
    let names = families.iter().flat_map(|family| &family.figures);
    let width = names.map(|figure| figure.name.len()).max().unwrap_or(0);
    let mut table = String::new();
    for family in families {
        for (number, figure) in family.figures.iter().enumerate() {
            let program = if number == 0 { family.program.name() } else { "" };
            let value = match figure.value {
                FigureValue::Count(count) => count.to_string(),
                FigureValue::Real(value) => format!("{value:.6}"),
            };
            let error = figure.standard_error;
            let error = error.map_or(String::new(), |error| format!(" ± {error:.6}"));
            table += &format!("{program:<22}{:<width$}  {value}{error}\n", figure.name);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accuracy_has_the_standard_error_of_its_sample() {
        // statistics.stdev([1, 1, 1, 0, 0]) / math.sqrt(5) in Python.
        let figure = Figure::accuracy("acc", 3, 5);
        assert_eq!(figure.value, FigureValue::Real(0.6));
        let error = figure.standard_error.expect("of five");
        assert!((error - 0.244_948_974_278_317_83).abs() < 1e-15, "{error}");
        assert_eq!(Figure::accuracy("acc", 1, 1).standard_error, None);
    }

    #[test]
    fn figures_are_listed_by_program() {
        let families = [Family {
            program: Program::LmEval,
            figures: vec![Figure::accuracy("acc", 1, 2), Figure::count("questions", 2)],
        }];
        assert_eq!(
            as_json(&families),
            json!({"lm_eval": {"acc": 0.5, "acc_stderr": 0.5, "questions": 2}})
        );
        assert_eq!(
            as_table(&families),
            "lm-evaluation-harness acc        0.500000 ± 0.500000\n                      questions  2\n"
        );
    }
}
