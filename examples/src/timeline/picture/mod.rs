//! The picture of a recording: what each rank did when, and below it the simulated schedule on the same scale.
//!
//! Drawn for the recorder.

use std::collections::BTreeMap;

use anyhow::anyhow;
use burn_megatron::pipeline_parallel::schedule::Pass;
use burn_megatron::pipeline_parallel::{Activity, TimelineEvent};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::recording::Recording;

#[cfg(test)]
mod tests;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

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

const FORWARD: RGBColor = RGBColor(0, 114, 178);
const BACKWARD: RGBColor = RGBColor(213, 94, 0);
const WAIT: RGBColor = RGBColor(222, 222, 226);
const REDUCTION: RGBColor = RGBColor(150, 90, 160);
const OPTIMIZER: RGBColor = RGBColor(0, 140, 100);
const SEND: RGBColor = RGBColor(86, 180, 233);
const RECEIVE: RGBColor = RGBColor(230, 159, 0);
const GREY: RGBColor = RGBColor(120, 120, 126);

const MEASURED: &str = "Measured";
const SIMULATED: &str =
    "Simulated: the same schedule with the measured medians of the passes of each virtual stage and of a transfer";

/// Something that fills a stretch of time of a row.
struct Block {
    color: RGBColor,
    /// Written inside, where it fits.
    number: Option<usize>,
    start_secs: f64,
    end_secs: f64,
}

/// What one rank or stage does.
struct Row {
    name: String,
    computed: Vec<Block>,
    /// None where transfers are not drawn.
    transfers: Option<[Vec<Block>; 2]>,
}

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

/// Draws a recording.
///
/// # Errors
/// When that fails.
pub(super) fn svg(recording: &Recording) -> anyhow::Result<String> {
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

    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(drawing)?;
        let mut y = MARGIN;
        for (heading, size) in headings.iter().zip(sizes) {
            write(&area, heading, (MARGIN, y + LINE_HEIGHT / 2), size, HPos::Left, &BLACK)?;
            y += LINE_HEIGHT;
        }
        y += MARGIN / 2;
        for ((name, color), (x, line)) in legend.iter().zip(legend_places) {
            let middle = y + line * LINE_HEIGHT + LINE_HEIGHT / 2;
            fill(&area, (MARGIN + x, middle - 6), (MARGIN + x + 18, middle + 6), color)?;
            write(&area, name, (MARGIN + x + 24, middle), TEXT_SIZE, HPos::Left, &BLACK)?;
        }
        y = head;
        for (title, rows) in [(MEASURED, &measured), (SIMULATED, &simulated)] {
            draw_panel(&area, (title, rows), scale, y)?;
            if title == MEASURED {
                mark_steps(&area, recording, scale, y)?;
            }
            y += panel_height(rows);
        }
        area.present().map_err(drawing)?;
    }
    Ok(svg)
}

/// Draws rows with their title above and the axis below.
fn draw_panel(area: &Area<'_>, (title, rows): (&str, &[Row]), scale: Scale, top: i32) -> anyhow::Result<()> {
    write(
        area,
        title,
        (MARGIN, top + LINE_HEIGHT / 2 - 2),
        TEXT_SIZE,
        HPos::Left,
        &BLACK,
    )?;
    let rows_top = top + LINE_HEIGHT;
    let bottom = rows_top + rows.iter().map(row_height).sum::<i32>();
    draw_axis(area, scale, (rows_top, bottom))?;
    let mut y = rows_top;
    for row in rows {
        let middle = y + COMPUTE_HEIGHT / 2;
        write(area, &row.name, (MARGIN, middle), TEXT_SIZE, HPos::Left, &BLACK)?;
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
            write(
                area,
                &name,
                (x, top + LINE_HEIGHT / 2 - 2),
                TEXT_SIZE,
                HPos::Left,
                &GREY,
            )?;
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
        let color = if is_dark(block.color) { WHITE } else { BLACK };
        let middle = ((left + shown) / 2, top + height / 2);
        write(area, &number, middle, NUMBER_SIZE, HPos::Center, &color)?;
    }
    Ok(())
}

/// Draws the marks of time through the rows and their milliseconds below.
fn draw_axis(area: &Area<'_>, scale: Scale, (top, bottom): (i32, i32)) -> anyhow::Result<()> {
    let step_secs = tick_secs(TICK_DISTANCE / scale.pixels_per_sec);
    let ticks = ((scale.end_secs - scale.zero_secs) / step_secs).floor() as u32;
    for tick in 0..=ticks {
        let secs = f64::from(tick) * step_secs;
        let x = scale.x(scale.zero_secs + secs);
        fill(area, (x, top), (x + 1, bottom), &RGBColor(236, 236, 238))?;
        let decimals = (-(step_secs * 1e3).log10()).ceil().max(0.0) as usize;
        let text = format!("{:.decimals$}", secs * 1e3);
        write(
            area,
            &text,
            (x, bottom + AXIS_HEIGHT / 2 - 2),
            TEXT_SIZE,
            HPos::Center,
            &GREY,
        )?;
    }
    let y = bottom + AXIS_HEIGHT / 2 - 2;
    write(area, "milliseconds", (MARGIN, y), TEXT_SIZE, HPos::Left, &GREY)
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

fn measured_rows(recording: &Recording) -> Vec<Row> {
    let num_chunks = recording.schedule().num_chunks;
    let block = |event: &TimelineEvent| Block {
        color: color(event.activity, event.chunk.unwrap_or(0), num_chunks),
        number: match event.activity {
            Activity::Forward | Activity::Backward => event.micro_batch,
            _ => None,
        },
        start_secs: event.start,
        end_secs: event.end,
    };
    let only = |events: &[TimelineEvent], activity: Activity| -> Vec<Block> {
        let events = events.iter().filter(|event| event.activity == activity);
        events.map(block).collect()
    };
    let has_transfers = recording.schedule().num_stages() > 1;
    let rows = recording.ranks().iter().enumerate().map(|(rank, events)| Row {
        name: recording.rank_name(rank),
        computed: events
            .iter()
            .filter(|event| !event.activity.is_transfer())
            .map(block)
            .collect(),
        transfers: has_transfers.then(|| [only(events, Activity::Send), only(events, Activity::Receive)]),
    });
    rows.collect()
}

/// The simulated step, from the moment at which the first measured one began.
fn simulated_rows(recording: &Recording) -> Vec<Row> {
    let start = recording.profile().start_secs();
    let end = start + recording.simulation().makespan_secs();
    let num_chunks = recording.schedule().num_chunks;
    let rows = recording.simulation().stages.iter().enumerate().map(|(stage, spans)| {
        let mut computed = Vec::new();
        let mut now = start;
        let wait = |from: f64, to: f64| {
            (to - from > 1e-9).then_some(Block {
                color: WAIT,
                number: None,
                start_secs: from,
                end_secs: to,
            })
        };
        for span in spans {
            let activity = match span.pass {
                Pass::Forward => Activity::Forward,
                Pass::Backward => Activity::Backward,
            };
            computed.extend(wait(now, start + span.start_secs));
            now = start + span.end_secs;
            computed.push(Block {
                color: color(activity, span.task.chunk, num_chunks),
                number: Some(span.task.micro_batch),
                start_secs: start + span.start_secs,
                end_secs: now,
            });
        }
        computed.extend(wait(now, end));
        Row {
            name: format!("stage {stage}"),
            computed,
            transfers: None,
        }
    });
    rows.collect()
}

fn row_height(row: &Row) -> i32 {
    let transfers = if row.transfers.is_some() {
        2 * TRANSFER_HEIGHT + 3
    } else {
        0
    };
    COMPUTE_HEIGHT + transfers + ROW_GAP
}

fn color(activity: Activity, chunk: usize, num_chunks: usize) -> RGBColor {
    match activity {
        Activity::Forward => shade(FORWARD, chunk, num_chunks),
        Activity::Backward => shade(BACKWARD, chunk, num_chunks),
        Activity::Wait => WAIT,
        Activity::Reduction => REDUCTION,
        Activity::Optimizer => OPTIMIZER,
        Activity::Send => SEND,
        Activity::Receive => RECEIVE,
    }
}

/// A colour as it is for the first chunk, and paler for later ones.
fn shade(RGBColor(red, green, blue): RGBColor, chunk: usize, num_chunks: usize) -> RGBColor {
    let white = 0.65 * chunk as f64 / num_chunks.max(2).saturating_sub(1) as f64;
    let mix = |part: u8| (f64::from(part) + (255.0 - f64::from(part)) * white).round() as u8;
    RGBColor(mix(red), mix(green), mix(blue))
}

fn is_dark(RGBColor(red, green, blue): RGBColor) -> bool {
    0.3 * f64::from(red) + 0.6 * f64::from(green) + 0.1 * f64::from(blue) < 150.0
}

fn legend(num_chunks: usize) -> Vec<(String, RGBColor)> {
    let passes = [Activity::Forward, Activity::Backward]
        .into_iter()
        .flat_map(|activity| {
            (0..num_chunks).map(move |chunk| {
                let name = match num_chunks {
                    1 => activity.name().to_owned(),
                    _ => format!("{}, chunk {chunk}", activity.name()),
                };
                (name, color(activity, chunk, num_chunks))
            })
        });
    let others = Activity::ALL.into_iter().skip(2);
    let others = others.map(|activity| (activity.name().to_owned(), color(activity, 0, 1)));
    passes.chain(others).collect()
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

/// Writes a text whose vertical middle is at a place.
fn write(
    area: &Area<'_>,
    text: &str,
    place: (i32, i32),
    size: i32,
    align: HPos,
    color: &RGBColor,
) -> anyhow::Result<()> {
    let style = ("sans-serif", size).into_font().color(color);
    let style = style.pos(Pos::new(align, VPos::Center));
    area.draw_text(text, &style, place).map_err(drawing)
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw the timeline: {error}")
}
