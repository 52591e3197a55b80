//! [`aligned`]: a table of text.

use std::fmt::Write as _;

pub(super) const COLUMNS: usize = 10;

/// Returns rows as lines, the first column aligned to the left, the others to the right. A row that is not of
/// [`COLUMNS`] cells has a note after its name.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let whole = rows.iter().filter(|row| row.len() == COLUMNS || column == 0);
        whole.map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut lines = String::new();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (column, cell) in row.iter().enumerate().skip(1) {
            let width = if row.len() == COLUMNS { widths[column] } else { 0 };
            let _ = write!(line, "  {cell:>width$}");
        }
        lines += line.trim_end();
        lines.push('\n');
    }
    lines
}
