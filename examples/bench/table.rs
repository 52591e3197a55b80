//! [`Row`]: named figures of what was measured; rows as a table, or as lines of JSON.

use std::fmt;

use examples::figures::{bytes, median};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Cell {
    Text(String),
    Figure(f64, Unit),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Unit {
    Seconds,
    Bytes,
    Percent,
    Number,
}

impl Cell {
    fn value(&self) -> Option<f64> {
        match *self {
            Cell::Text(_) => None,
            Cell::Figure(value, _) => Some(value),
        }
    }

    /// Returns the same unit with another value; a text stays as it is.
    fn with(&self, value: f64) -> Cell {
        match self {
            Cell::Text(_) => self.clone(),
            Cell::Figure(_, unit) => Cell::Figure(value, *unit),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self {
            Cell::Text(text) => return formatter.write_str(text),
            Cell::Figure(value, unit) => (*value, unit),
        };
        match unit {
            Unit::Seconds => formatter.write_str(&seconds(value)),
            Unit::Bytes => formatter.write_str(&bytes(value as u64)),
            Unit::Percent => write!(formatter, "{value:.2} %"),
            Unit::Number if value.fract() == 0.0 || value.abs() >= 1000.0 => write!(formatter, "{value:.0}"),
            Unit::Number if value.abs() >= 100.0 => write!(formatter, "{value:.1}"),
            Unit::Number => write!(formatter, "{value:.3}"),
        }
    }
}

/// Returns a time with a unit that leaves it readable.
pub fn seconds(value: f64) -> String {
    match value {
        _ if value < 1e-3 => format!("{:.1} µs", 1e6 * value),
        _ if value < 1.0 => format!("{:.1} ms", 1e3 * value),
        _ => format!("{value:.3} s"),
    }
}

/// Figures by name, in their order. A figure that is NaN was not measured, and is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row(Vec<(String, Cell)>);

impl Row {
    /// Adds a text.
    pub fn text(self, name: &str, text: impl fmt::Display) -> Self {
        self.with(name, Cell::Text(text.to_string()))
    }

    /// Adds a time.
    pub fn seconds(self, name: &str, value: f64) -> Self {
        self.with(name, Cell::Figure(value, Unit::Seconds))
    }

    /// Adds a number of bytes.
    pub fn bytes(self, name: &str, value: f64) -> Self {
        self.with(name, Cell::Figure(value, Unit::Bytes))
    }

    /// Adds a share, from 0 to 100.
    pub fn percent(self, name: &str, value: f64) -> Self {
        self.with(name, Cell::Figure(value, Unit::Percent))
    }

    /// Adds a number.
    pub fn number(self, name: &str, value: f64) -> Self {
        self.with(name, Cell::Figure(value, Unit::Number))
    }

    /// Adds all of another row.
    pub fn and(mut self, other: Row) -> Self {
        self.0.extend(other.0);
        self
    }

    fn with(mut self, name: &str, cell: Cell) -> Self {
        if !cell.value().is_some_and(f64::is_nan) {
            self.0.push((name.to_owned(), cell));
        }
        self
    }

    /// Returns a figure; NaN if it was not measured.
    pub fn value(&self, name: &str) -> f64 {
        self.cell(name).and_then(Cell::value).unwrap_or(f64::NAN)
    }

    fn cell(&self, name: &str) -> Option<&Cell> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, cell)| cell)
    }

    /// Returns a figure as it is written, `-` if it was not measured.
    pub fn written(&self, name: &str) -> String {
        self.cell(name).map_or_else(|| "-".to_owned(), Cell::to_string)
    }

    /// Returns another value of a figure as it is written, if the figure was measured.
    pub fn written_as(&self, name: &str, value: f64) -> Option<String> {
        self.cell(name).map(|cell| cell.with(value).to_string())
    }

    /// Returns the medians of all figures over the rounds that have them.
    pub fn median(rounds: &[Row]) -> Row {
        let of = |name: &String| {
            let cells = rounds.iter().filter_map(|row| row.cell(name));
            let values = cells.clone().filter_map(Cell::value).collect();
            let first = cells.clone().next();
            first.map(|first| (name.clone(), first.with(median(values))))
        };
        Row(names(rounds).iter().filter_map(of).collect())
    }

    /// Returns an object; the name of a figure has its unit.
    pub fn json(&self) -> Value {
        let entry = |(name, cell): &(String, Cell)| {
            let name = name.replace([' ', '/'], "_");
            match cell {
                Cell::Text(text) => (name, json!(text)),
                Cell::Figure(value, Unit::Seconds) => (name + "_seconds", json!(value)),
                Cell::Figure(value, Unit::Bytes) => (name + "_bytes", json!(value)),
                Cell::Figure(value, Unit::Percent) => (name + "_percent", json!(value)),
                Cell::Figure(value, Unit::Number) if value.fract() == 0.0 => (name, json!(*value as i64)),
                Cell::Figure(value, Unit::Number) => (name, json!(value)),
            }
        };
        Value::Object(self.0.iter().map(entry).collect::<Map<_, _>>())
    }
}

/// Writes one line: the texts, and the figures with their names.
impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |is_text: bool| self.0.iter().filter(move |(_, cell)| cell.value().is_none() == is_text);
        let texts: Vec<String> = of(true).map(|(_, cell)| cell.to_string()).collect();
        let figures: Vec<String> = of(false).map(|(name, cell)| format!("{name} {cell}")).collect();
        let separator = if texts.is_empty() { "" } else { ": " };
        write!(formatter, "{}{separator}{}", texts.join(" "), figures.join(", "))
    }
}

/// Returns the names of all figures of some rows, each once.
pub fn names<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<String> {
    let mut names = Vec::new();
    for (name, _) in rows.into_iter().flat_map(|row| &row.0) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Returns a line for each row, with a column for each name.
pub fn table(rows: &[Row]) -> String {
    let names = names(rows);
    let line = |row: &Row| names.iter().map(|name| row.written(name)).collect();
    aligned(&[vec![names.clone()], rows.iter().map(line).collect()].concat())
}

/// Returns lines whose columns are aligned: to the right where numbers are, without the first line.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let column = |index: usize| lines.iter().filter_map(move |line| line.get(index));
    let is_number = |cell: &String| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let layout: Vec<(usize, bool)> = (0..columns)
        .map(|index| {
            let width = column(index).map(|cell| cell.chars().count()).max().unwrap_or(0);
            (width, column(index).skip(1).all(is_number))
        })
        .collect();
    let line = |cells: &Vec<String>| {
        let cells = cells.iter().zip(&layout).map(|(cell, &(width, is_right))| {
            if is_right {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_that_some_row_has() {
        let rows = [
            Row::default()
                .text("variant", "stage 2, no overlap")
                .seconds("step", 0.3),
            Row::default()
                .text("variant", "stage 3")
                .seconds("step", 1.5)
                .bytes("peak", 1536.0)
                .number("ratio", f64::NAN),
        ];
        assert_eq!(
            table(&rows).lines().collect::<Vec<_>>(),
            [
                "variant                  step     peak",
                "stage 2, no overlap  300.0 ms        -",
                "stage 3               1.500 s  1.5 KiB",
            ]
        );
        assert_eq!(rows[1].json()["peak_bytes"], 1536.0);
        assert_eq!(rows[0].to_string(), "stage 2, no overlap: step 300.0 ms");
    }

    #[test]
    fn medians_are_over_the_rounds_that_have_a_figure() {
        let rounds = [1.0, 3.0, f64::NAN].map(|value| Row::default().text("of", "a").number("b", value));
        let median = Row::median(&rounds);
        assert_eq!(median, Row::default().text("of", "a").number("b", 2.0));
        assert_eq!(Row::median(&[]), Row::default());
    }
}
