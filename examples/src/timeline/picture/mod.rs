//! The picture of a recording: what each rank did when, and below it the simulated schedule on the same scale.

mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use anyhow::Context as _;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::recording::Recording;
use crate::svg::{self, Area, TextStyle, drawing};
use rows::{Block, Row, legend, measured_rows, simulated_rows};

const MARGIN: i32 = 16;
const TITLE_SIZE: i32 = 19;
const TEXT_SIZE: i32 = 14;
const NUMBER_SIZE: i32 = 12;
/// A character of a text and of a number in a box, at most.
const CHARACTER_WIDTH: f64 = 0.62;
const LINE_HEIGHT: i32 = 22;
const COMPUTE_HEIGHT: i32 = 24;
/// Of the sends, and of the receives below them.
const TRANSFER_HEIGHT: i32 = 4;
const ROW_GAP: i32 = 9;
const AXIS_HEIGHT: i32 = 26;
/// The least distance of two marks of the axis.
const TICK_DISTANCE: f64 = 70.0;
/// A pass of half the micro-batches is at least this wide: room for a number of two digits.
const PASS_WIDTH: f64 = 20.0;
const LEAST_WIDTH: f64 = 1000.0;
/// Wider pictures can hardly be looked at.
const GREATEST_WIDTH: f64 = 12_000.0;

const LABEL: TextStyle = TextStyle {
    size: TEXT_SIZE,
    color: BLACK,
    align: HPos::Left,
};
const GREY_LABEL: TextStyle = TextStyle {
    color: RGBColor(120, 120, 126),
    ..LABEL
};

const MEASURED: &str = "Measured";
const SIMULATED: &str =
    "Simulated: the same schedule with the measured medians of the passes of each virtual stage and of a transfer";

/// The horizontal position of each time on the picture.
#[derive(Clone, Copy)]
struct Scale {
    left: i32,
    zero_secs: f64,
    end_secs: f64,
    pixels_per_sec: f64,
}

impl Scale {
    fn x(&self, secs: f64) -> i32 {
        self.left + ((secs - self.zero_secs) * self.pixels_per_sec).round() as i32
    }
}

pub(super) fn draw(recording: &Recording) -> anyhow::Result<String> {
    let measured = measured_rows(recording);
    let simulated = simulated_rows(recording);
    let scale = scale(recording, &measured, &simulated);
    let legend = legend(recording.schedule().num_chunks);
    let right = scale.x(scale.end_secs);
    let headings = [recording.title(), recording.bubbles(), recording.makespans()];
    let sizes = [TITLE_SIZE, TEXT_SIZE, TEXT_SIZE];
    let widths = headings.iter().zip(sizes).map(|(text, size)| text_width(text, size));
    let widest = widths.chain([text_width(SIMULATED, TEXT_SIZE)]).max();
    // Room for half of the axis's last number.
    let width = right.max(MARGIN + widest.unwrap_or(0)) + 2 * MARGIN;
    let legend_places = place_legend(&legend, width - 2 * MARGIN);
    let legend_lines = legend_places.last().map_or(0, |place| place.1 + 1);
    let panel_height = |rows: &[Row]| LINE_HEIGHT + rows.iter().map(row_height).sum::<i32>() + AXIS_HEIGHT + MARGIN;
    let head = MARGIN + LINE_HEIGHT * (headings.len() as i32 + legend_lines) + MARGIN;
    let height = head + panel_height(&measured) + panel_height(&simulated);

    let draw = |area: &Area<'_>| {
        let mut y = MARGIN;
        for (heading, size) in headings.iter().zip(sizes) {
            let style = TextStyle { size, ..LABEL };
            svg::write(area, heading, (MARGIN, y + LINE_HEIGHT / 2), style)?;
            y += LINE_HEIGHT;
        }
        y += MARGIN / 2;
        for ((name, color), (x, line)) in legend.iter().zip(legend_places) {
            let middle = y + line * LINE_HEIGHT + LINE_HEIGHT / 2;
            fill(area, (MARGIN + x, middle - 6), (MARGIN + x + 18, middle + 6), color)?;
            svg::write(area, name, (MARGIN + x + 24, middle), LABEL)?;
        }
        y = head;
        for (title, rows) in [(MEASURED, &measured), (SIMULATED, &simulated)] {
            draw_panel(area, (title, rows), scale, y)?;
            if title == MEASURED {
                mark_steps(area, recording, scale, y)?;
            }
            y += panel_height(rows);
        }
        Ok(())
    };
    svg::picture((width as u32, height as u32), draw).context("cannot draw the timeline")
}

/// Draws rows with their title above and the axis below.
fn draw_panel(area: &Area<'_>, (title, rows): (&str, &[Row]), scale: Scale, top: i32) -> anyhow::Result<()> {
    svg::write(area, title, (MARGIN, top + LINE_HEIGHT / 2 - 2), LABEL)?;
    let rows_top = top + LINE_HEIGHT;
    let bottom = rows_top + rows.iter().map(row_height).sum::<i32>();
    draw_axis(area, scale, (rows_top, bottom))?;
    let mut y = rows_top;
    for row in rows {
        let middle = y + COMPUTE_HEIGHT / 2;
        svg::write(area, &row.name, (MARGIN, middle), LABEL)?;
        for block in &row.computed {
            draw_block(area, block, scale, (y, COMPUTE_HEIGHT))?;
        }
        let transfers = row.transfers.iter().flatten();
        for (number, blocks) in transfers.enumerate() {
            let track = y + COMPUTE_HEIGHT + 2 + number as i32 * (TRANSFER_HEIGHT + 1);
            for block in blocks {
                draw_block(area, block, scale, (track, TRANSFER_HEIGHT))?;
            }
        }
        y += row_height(row);
    }
    Ok(())
}

/// Names the steps above the measured rows, where there are several and room.
fn mark_steps(area: &Area<'_>, recording: &Recording, scale: Scale, top: i32) -> anyhow::Result<()> {
    let mut starts: BTreeMap<u64, f64> = BTreeMap::new();
    for step in &recording.profile().steps {
        let start = starts.entry(step.step).or_insert(step.start_secs);
        *start = start.min(step.start_secs);
    }
    if starts.len() < 2 {
        return Ok(());
    }
    // Right of the title.
    let mut free = MARGIN + text_width(MEASURED, TEXT_SIZE);
    for (step, start_secs) in starts {
        let (x, name) = (scale.x(start_secs), format!("step {step}"));
        if x > free {
            svg::write(area, &name, (x, top + LINE_HEIGHT / 2 - 2), GREY_LABEL)?;
            free = x + text_width(&name, TEXT_SIZE) + 8;
        }
    }
    Ok(())
}

fn draw_block(area: &Area<'_>, block: &Block, scale: Scale, (top, height): (i32, i32)) -> anyhow::Result<()> {
    let (left, right) = (scale.x(block.start_secs), scale.x(block.end_secs));
    // A hair between neighbours; what is shorter than a pixel is still seen.
    let shown = if right - left > 2 {
        right - 1
    } else {
        right.max(left + 1)
    };
    fill(area, (left, top), (shown, top + height), &block.color)?;
    let Some(number) = block.number.map(|number| number.to_string()) else {
        return Ok(());
    };
    if text_width(&number, NUMBER_SIZE) + 2 <= shown - left {
        let style = TextStyle {
            size: NUMBER_SIZE,
            color: if is_dark(block.color) { WHITE } else { BLACK },
            align: HPos::Center,
        };
        svg::write(area, &number, ((left + shown) / 2, top + height / 2), style)?;
    }
    Ok(())
}

fn row_height(row: &Row) -> i32 {
    let transfers = if row.transfers.is_some() {
        2 * TRANSFER_HEIGHT + 3
    } else {
        0
    };
    COMPUTE_HEIGHT + transfers + ROW_GAP
}

/// Draws the marks of time through the rows and their milliseconds below.
fn draw_axis(area: &Area<'_>, scale: Scale, (top, bottom): (i32, i32)) -> anyhow::Result<()> {
    let y = bottom + AXIS_HEIGHT / 2 - 2;
    let step_secs = tick_secs(TICK_DISTANCE / scale.pixels_per_sec);
    let ticks = ((scale.end_secs - scale.zero_secs) / step_secs).floor() as u32;
    for tick in 0..=ticks {
        let secs = f64::from(tick) * step_secs;
        let x = scale.x(scale.zero_secs + secs);
        fill(area, (x, top), (x + 1, bottom), &RGBColor(236, 236, 238))?;
        let decimals = (-(step_secs * 1e3).log10()).ceil().max(0.0) as usize;
        let text = format!("{:.decimals$}", secs * 1e3);
        let style = TextStyle {
            align: HPos::Center,
            ..GREY_LABEL
        };
        svg::write(area, &text, (x, y), style)?;
    }
    svg::write(area, "milliseconds", (MARGIN, y), GREY_LABEL)
}

/// The least of 1, 2, 5, 10, … in any power of ten that is at least `secs`.
fn tick_secs(secs: f64) -> f64 {
    let power = 10f64.powf(secs.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= secs);
    factor.unwrap_or(10.0) * power
}

fn scale(recording: &Recording, measured: &[Row], simulated: &[Row]) -> Scale {
    let names = measured
        .iter()
        .chain(simulated)
        .map(|row| text_width(&row.name, TEXT_SIZE));
    let left = MARGIN + names.max().unwrap_or(0).max(text_width("milliseconds", TEXT_SIZE)) + 12;
    let tracks = |row: &'_ Row| -> Vec<(f64, f64)> {
        let transfers = row.transfers.iter().flatten().flatten();
        let blocks = row.computed.iter().chain(transfers);
        blocks.map(|block| (block.start_secs, block.end_secs)).collect()
    };
    let ends: Vec<(f64, f64)> = measured.iter().chain(simulated).flat_map(tracks).collect();
    let zero_secs = ends.iter().map(|ends| ends.0).fold(f64::INFINITY, f64::min);
    let end_secs = ends.iter().map(|ends| ends.1).fold(0.0, f64::max);
    let duration_secs = (end_secs - zero_secs).max(1e-6);
    let costs = &recording.profile().costs;
    let passes = costs.forward_secs.iter().chain(&costs.backward_secs);
    let pass_secs = passes.copied().fold(f64::INFINITY, f64::min).max(1e-9);
    let width = (PASS_WIDTH * duration_secs / pass_secs).clamp(LEAST_WIDTH, GREATEST_WIDTH);
    Scale {
        left,
        zero_secs,
        end_secs: zero_secs + duration_secs,
        pixels_per_sec: width / duration_secs,
    }
}

fn is_dark(RGBColor(red, green, blue): RGBColor) -> bool {
    0.3 * f64::from(red) + 0.6 * f64::from(green) + 0.1 * f64::from(blue) < 150.0
}

/// The horizontal place and the line of each entry.
fn place_legend(legend: &[(String, RGBColor)], width: i32) -> Vec<(i32, i32)> {
    let (mut x, mut line) = (0, 0);
    let places = legend.iter().map(|(name, _)| {
        let entry = 24 + text_width(name, TEXT_SIZE) + 16;
        if x > 0 && x + entry > width {
            (x, line) = (0, line + 1);
        }
        let place = (x, line);
        x += entry;
        place
    });
    places.collect()
}

fn text_width(text: &str, size: i32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * CHARACTER_WIDTH).ceil() as i32
}

fn fill(area: &Area<'_>, from: (i32, i32), to: (i32, i32), color: &RGBColor) -> anyhow::Result<()> {
    area.draw(&Rectangle::new([from, to], color.filled())).map_err(drawing)
}
