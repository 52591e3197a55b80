//! `Table`: rows of short texts, as aligned lines or as a picture.

use std::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::svg::{TextStyle, drawing, picture, write};

/// A table. The first column is aligned to the left, the others to the right.
pub struct Table {
    /// Titles over several columns.
    pub groups: Vec<(Range<usize>, &'static str)>,
    pub header: Vec<&'static str>,
    /// The rows, each with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// A text and how it is meant.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

/// How a text is meant: its colour in a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Faint,
    Good,
    Bad,
}

impl Cell {
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }

    /// Returns a cell without a meaning of its own.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Plain)
    }

    pub fn faint(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Faint)
    }
}

/// Spaces between columns of text.
const GAP: usize = 2;

const MARGIN: i32 = 24;
const ROW_HEIGHT: i32 = 27;
const COLUMN_GAP: i32 = 26;
const FONT_SIZE: i32 = 15;
const CAPTION_SIZE: i32 = 13;
/// The width of an average character of a cell over the font's size, on the safe side: fonts differ from reader to
/// reader.
const CELL_CHARACTER_WIDTH: f64 = 0.58;
/// That of running text, which has more narrow letters.
const CAPTION_CHARACTER_WIDTH: f64 = 0.53;

const INK: RGBColor = RGBColor(28, 28, 30);
const GREY: RGBColor = RGBColor(120, 120, 128);

impl Tone {
    fn color(self) -> RGBColor {
        match self {
            Tone::Plain => INK,
            Tone::Faint => GREY,
            Tone::Good => RGBColor(0, 118, 72),
            Tone::Bad => RGBColor(200, 30, 30),
        }
    }
}

impl Table {
    /// The table as aligned lines.
    pub fn to_text(&self) -> String {
        let widths = self.widths();
        let start = |column: usize| widths[..column].iter().sum::<usize>() + GAP * column;
        let mut groups = String::new();
        for (columns, title) in &self.groups {
            let (from, to) = (start(columns.start), start(columns.end) - GAP);
            // Over the right end, as the titles below it; a title that is too long begins where it can.
            let begin = (to.saturating_sub(title.chars().count())).max(from);
            groups.push_str(&" ".repeat(begin.saturating_sub(groups.chars().count())));
            groups.push_str(title);
        }
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded = cells
                .zip(&widths)
                .enumerate()
                .map(|(column, (text, &width))| match column {
                    0 => format!("{text:<width$}"),
                    _ => format!("{text:>width$}"),
                });
            padded.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
        };
        let mut lines = vec![groups, line(&mut self.header.iter().copied())];
        for row in &self.rows {
            lines.push(line(&mut row.iter().map(|cell| cell.text.as_str())));
        }
        lines.join("\n")
    }

    /// The table as a picture, with a line below it.
    pub fn to_svg(&self, caption: &str) -> anyhow::Result<String> {
        let width_of = |characters: usize| (characters as f64 * CELL_CHARACTER_WIDTH * f64::from(FONT_SIZE)) as i32;
        let widths: Vec<i32> = self.widths().into_iter().map(width_of).collect();
        let left = |column: usize| MARGIN + widths[..column].iter().sum::<i32>() + COLUMN_GAP * column as i32;
        let width = left(widths.len()) - COLUMN_GAP + MARGIN;
        let caption_width = f64::from(width - 2 * MARGIN) / (CAPTION_CHARACTER_WIDTH * f64::from(CAPTION_SIZE));
        let captions = wrap(caption, caption_width as usize);
        let header_bottom = MARGIN + 2 * ROW_HEIGHT;
        let rows_bottom = header_bottom + ROW_HEIGHT * self.rows.len() as i32 + 8;
        let height = rows_bottom + 20 * captions.len() as i32 + MARGIN;

        picture((width as u32, height as u32), |area| {
            let text = |text: &str, at: (i32, i32), align: HPos, size: i32, color: RGBColor| {
                write(area, text, at, TextStyle { size, color, align })
            };
            let rule = |y: i32, from: i32, to: i32, stroke: u32| {
                let line = PathElement::new(vec![(from, y), (to, y)], INK.stroke_width(stroke));
                area.draw(&line).map_err(drawing)
            };
            let cell = |value: &str, column: usize, y: i32, color: RGBColor| match column {
                0 => text(value, (left(0), y), HPos::Left, FONT_SIZE, color),
                _ => text(value, (left(column) + widths[column], y), HPos::Right, FONT_SIZE, color),
            };

            rule(MARGIN - 4, MARGIN, width - MARGIN, 2)?;
            for (columns, title) in &self.groups {
                let (from, to) = (left(columns.start), left(columns.end) - COLUMN_GAP);
                text(
                    title,
                    ((from + to) / 2, MARGIN + ROW_HEIGHT / 2 - 2),
                    HPos::Center,
                    FONT_SIZE,
                    INK,
                )?;
                rule(MARGIN + ROW_HEIGHT - 3, from, to, 1)?;
            }
            for (column, title) in self.header.iter().enumerate() {
                cell(title, column, MARGIN + ROW_HEIGHT * 3 / 2, INK)?;
            }
            rule(header_bottom, MARGIN, width - MARGIN, 1)?;
            for (index, row) in self.rows.iter().enumerate() {
                let y = header_bottom + ROW_HEIGHT * index as i32 + ROW_HEIGHT / 2 + 4;
                for (column, Cell { text, tone }) in row.iter().enumerate() {
                    cell(text, column, y, tone.color())?;
                }
            }
            rule(rows_bottom, MARGIN, width - MARGIN, 2)?;
            for (index, line) in captions.iter().enumerate() {
                let y = rows_bottom + 20 * index as i32 + 18;
                text(line, (MARGIN, y), HPos::Left, CAPTION_SIZE, GREY)?;
            }
            Ok(())
        })
    }

    /// The characters of the widest cell of each column.
    fn widths(&self) -> Vec<usize> {
        let count = |text: &str| text.chars().count();
        let columns = self.header.iter().enumerate();
        columns
            .map(|(column, title)| {
                let cells = self.rows.iter().map(|row| count(&row[column].text));
                cells.chain([count(title)]).max().unwrap_or(0)
            })
            .collect()
    }
}

/// Breaks a text at spaces into lines of at most `limit` characters, if its words are short enough.
fn wrap(text: &str, limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= limit => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;

    #[test]
    fn lines_are_aligned() {
        let text = report().table().to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2 + 3 + 1);
        let column = |title: &str| lines[1].find(title).expect(title) + title.len();
        let parity = column("parity");
        assert!(lines[3][..parity].ends_with("holds"), "{text}");
        assert!(lines[4][..parity].ends_with("broken"), "{text}");
        assert!(lines[4][..column("gradient")].ends_with("5.0e-1"), "{text}");
        assert!(lines[5].starts_with("allowed"), "{text}");
    }

    #[test]
    fn the_picture_holds_every_cell() {
        let svg = report().table().to_svg("a caption").expect("drawn");
        for text in ["one rank", "tp2", "holds", "broken", "1.5e-7", "a caption"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
