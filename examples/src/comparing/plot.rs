//! The picture of all loss curves over each other, and of how far they are from the one-rank run's.
//!
//! Drawn for `report`.

use anyhow::Context as _;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use super::report::{Comparison, Report};
use crate::svg::{Area, drawing, picture};

const SIZE: (u32, u32) = (900, 760);
/// Of the upper panel.
const UPPER_HEIGHT: i32 = 420;
const TEXT_SIZE: i32 = 15;
const MARKER_SIZE: i32 = 5;
/// About how many markers all curves of a panel have together.
const MARKERS: usize = 24;
/// The colours of Okabe and Ito without yellow, which readers with any colour vision tell apart.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];
const GREY: RGBColor = RGBColor(185, 185, 190);
const RED: RGBColor = RGBColor(200, 30, 30);

/// A curve: a point per step.
struct Curve<'a> {
    name: &'a str,
    /// Its number among the layouts; the one-rank run has none.
    index: Option<usize>,
    points: Vec<(f64, f64)>,
}

impl Curve<'_> {
    fn finite_points(&self) -> Vec<(f64, f64)> {
        let points = self.points.iter().copied();
        points.filter(|point| point.1.is_finite()).collect()
    }
}

/// Draws losses above and their relative differences below.
pub fn losses_svg(report: &Report) -> anyhow::Result<String> {
    picture(SIZE, |area| {
        let (upper, lower) = area.split_vertically(UPPER_HEIGHT);
        draw_losses(report, &upper)?;
        draw_differences(report, &lower)
    })
}

fn draw_losses(report: &Report, area: &Area<'_>) -> anyhow::Result<()> {
    let curves = loss_curves(report);
    let values = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
    let (low, high) = bounds(values).context("no finite loss")?;
    let room = ((high - low) * 0.06).max(1e-3 * high.abs()).max(f64::MIN_POSITIVE);
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption("Loss on one rank and in every layout", ("sans-serif", TEXT_SIZE + 4))
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(steps(report), low - room..high + room)
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.1))
        .x_desc("step")
        .y_desc("loss (nats per token)")
        .x_label_formatter(&step_label)
        .label_style(("sans-serif", TEXT_SIZE))
        .draw()
        .map_err(drawing)?;
    draw_curves(&mut chart, &curves)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .margin(8)
        .legend_area_size(44)
        .label_font(("sans-serif", TEXT_SIZE))
        .draw()
        .map_err(drawing)
}

fn draw_differences(report: &Report, area: &Area<'_>) -> anyhow::Result<()> {
    let tolerance = report.tolerance.loss;
    // Far below the rounding of one number: what is drawn here is no difference at all.
    let floor = tolerance * 1e-5;
    let curves: Vec<Curve> = difference_curves(report, floor);
    let values = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
    let top = values.filter(|value| value.is_finite()).fold(tolerance, f64::max) * 10.0;
    // Said here, where no curve runs through it.
    let title =
        format!("Relative difference of the loss from one rank (red: tolerance {tolerance:.0e}; lower edge: none)");
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption(title, ("sans-serif", TEXT_SIZE + 4))
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(steps(report), (floor..top).log_scale())
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.1))
        .x_desc("step")
        .y_desc("|Δ loss| / loss")
        .x_label_formatter(&step_label)
        .y_label_formatter(&|value| format!("{value:.0e}"))
        .y_labels(8)
        .label_style(("sans-serif", TEXT_SIZE))
        .draw()
        .map_err(drawing)?;
    draw_curves(&mut chart, &curves)?;
    let range = steps(report);
    let limit = [(range.start, tolerance), (range.end, tolerance)];
    chart
        .draw_series(DashedLineSeries::new(limit, 8, 5, RED.stroke_width(2)))
        .map_err(drawing)?;
    Ok(())
}

/// Draws the one-rank run as a broad band, and the layouts' curves, which run along it, thin and dashed, each with its
/// own colour and marker at steps of its own.
fn draw_curves<'a, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedSteps, Y>>,
    curves: &[Curve<'_>],
) -> anyhow::Result<()>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    for curve in curves {
        let points = curve.finite_points();
        let Some(index) = curve.index else {
            let style = GREY.stroke_width(8);
            let series = chart.draw_series(LineSeries::new(points, style)).map_err(drawing)?;
            let legend = move |(x, y)| PathElement::new(vec![(x, y), (x + 36, y)], style);
            series.label(curve.name).legend(legend);
            continue;
        };
        let color = COLORS[index % COLORS.len()];
        let (dash, gap) = (4 + 3 * (index as i32 % 4), 4 + index as i32 % 3);
        let style = color.stroke_width(2);
        let series = chart
            .draw_series(DashedLineSeries::new(points, dash as u32, gap as u32, style))
            .map_err(drawing)?;
        let legend = move |(x, y): (i32, i32)| {
            EmptyElement::at((x, y))
                + PathElement::new(vec![(0, 0), (dash, 0)], style)
                + PathElement::new(vec![(36 - dash, 0), (36, 0)], style)
                + marker(index, (18, 0), color)
        };
        series.label(curve.name).legend(legend);
    }
    // Drawn after all lines, so that no line hides a marker.
    let layouts = curves.iter().filter(|curve| curve.index.is_some()).count().max(1);
    for curve in curves {
        let (Some(index), points) = (curve.index, curve.finite_points()) else {
            continue;
        };
        let color = COLORS[index % COLORS.len()];
        let apart = (points.len() / MARKERS).max(1);
        let own = points.iter().skip(index * apart).step_by(layouts * apart);
        chart
            .draw_series(own.map(|&point| EmptyElement::at(point) + marker(index, (0, 0), color)))
            .map_err(drawing)?;
    }
    Ok(())
}

/// Steps are whole numbers: there is nothing to write between them.
fn step_label(step: &f64) -> String {
    if (step - step.round()).abs() < 1e-6 {
        format!("{step:.0}")
    } else {
        String::new()
    }
}

type RangedSteps = plotters::coord::types::RangedCoordf64;

/// A layout's marker around a point, in pixels: where colours come round again, the shapes are others.
fn marker(index: usize, (x, y): (i32, i32), color: RGBColor) -> Polygon<(i32, i32)> {
    let size = f64::from(MARKER_SIZE) + if index.is_multiple_of(2) { 1.0 } else { 0.0 };
    // Triangle up, square, diamond, triangle down, pentagon, hexagon and, nearly, a circle.
    let (corners, turn) = [
        (3, -0.25),
        (4, 0.125),
        (4, 0.0),
        (3, 0.25),
        (5, -0.25),
        (6, 0.0),
        (16, 0.0),
    ][(index + index / COLORS.len()) % COLORS.len()];
    let corner = |number: usize| {
        let angle = (f64::from(number as u32) / f64::from(corners) + turn) * std::f64::consts::TAU;
        (
            x + (size * angle.cos()).round() as i32,
            y + (size * angle.sin()).round() as i32,
        )
    };
    Polygon::new((0..corners as usize).map(corner).collect::<Vec<_>>(), color.filled())
}

fn loss_curves(report: &Report) -> Vec<Curve<'_>> {
    let layouts = report.comparisons.iter().map(|comparison| &comparison.summary);
    std::iter::once(&report.reference)
        .chain(layouts)
        .enumerate()
        .map(|(number, run)| Curve {
            name: &run.name,
            index: number.checked_sub(1),
            points: run.metrics.iter().map(|step| (step.step as f64, step.loss)).collect(),
        })
        .collect()
}

fn difference_curves(report: &Report, floor: f64) -> Vec<Curve<'_>> {
    let curve = |(index, comparison): (usize, &Comparison)| Curve {
        name: &report.comparisons[index].summary.name,
        index: Some(index),
        points: report
            .loss_differences(comparison)
            .into_iter()
            .zip(&report.reference.metrics)
            .map(|(difference, step)| (step.step as f64, difference.max(floor)))
            .collect(),
    };
    report.comparisons.iter().enumerate().map(curve).collect()
}

/// All steps, with room at both ends.
fn steps(report: &Report) -> std::ops::Range<f64> {
    let last = report.reference.metrics.len() as f64;
    let room = (last * 0.02).max(0.2);
    1.0 - room..last + room
}

/// The smallest and the largest finite value.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.filter(|value| value.is_finite());
    finite.fold(None, |bounds, value| match bounds {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn the_picture_names_every_curve_and_the_tolerance() {
        let svg = losses_svg(&report()).expect("drawn");
        for text in [
            "one rank",
            "tp2",
            "dp2",
            "tolerance 2e-6",
            "loss (nats per token)",
            "step",
        ] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn a_run_of_one_step_can_be_drawn() {
        let mut report = report();
        report.reference.metrics.truncate(1);
        for comparison in &mut report.comparisons {
            comparison.summary.metrics.truncate(1);
            comparison.summary.metrics[0].loss = f64::NAN;
        }
        assert!(losses_svg(&report).is_ok());
    }
}
