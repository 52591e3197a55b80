//! A table of text: the first column to the left, the others to the right.

use std::fmt;

const COLUMNS: usize = 10;

/// Rows of cells, and rows of a name and a note.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(head: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned).to_vec()],
        }
    }

    /// Adds a row of a cell for each column.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a row that has a note after its name.
    pub(super) fn note(&mut self, name: String, note: &str) {
        self.rows.push(vec![name, note.to_owned()]);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let whole = self.rows.iter().filter(|row| row.len() == COLUMNS || column == 0);
            whole.map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        for row in &self.rows {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for (column, cell) in row.iter().enumerate().skip(1) {
                match row.len() {
                    COLUMNS => line.push_str(&format!("  {cell:>0$}", widths[column])),
                    _ => line.push_str(&format!("  {cell}")),
                }
            }
            writeln!(formatter, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
