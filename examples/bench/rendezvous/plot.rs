//! The curves: the times of all sizes on logarithmic axes, with the law of each.

use anyhow::Context as _;
use examples::svg::{drawing, picture};
use plotters::prelude::*;

use crate::rendezvous::size::{Law, Size};
use crate::table::seconds;

/// Figures that are drawn, in colours that readers with any colour vision tell apart.
const CURVES: [(&str, RGBColor); 5] = [
    ("all groups", RGBColor(213, 94, 0)),
    ("join", RGBColor(0, 114, 178)),
    ("barrier of the world, p50", RGBColor(0, 158, 115)),
    ("all-reduce of 8 bytes, p50", RGBColor(230, 159, 0)),
    ("a death: all know the first cause", RGBColor(204, 121, 167)),
];

/// Draws the times against the ranks.
///
/// # Errors
/// When no size has a time, or drawing fails.
pub fn draw(sizes: &[Size]) -> anyhow::Result<String> {
    let all = sizes.iter().map(|size| size.ranks);
    let [least, most] = [all.clone().min(), all.max()].map(Option::unwrap_or_default);
    let curves = CURVES.map(|(name, color)| {
        let points = sizes.iter().map(|size| (size.ranks as f64, size.row.value(name)));
        let points = points.filter(|(_, value)| *value > 0.0).collect::<Vec<_>>();
        let law = Law::of(sizes, name);
        let line = law.map(|law| [least, most].map(|ranks| (ranks as f64, law.at(ranks))));
        let title = law.map_or(name.to_owned(), |law| format!("{name}, N^{:.2}", law.exponent));
        (title, color, points, line.into_iter().flatten().collect::<Vec<_>>())
    });
    let drawn = curves.iter().flat_map(|(_, _, points, line)| points.iter().chain(line));
    let values = drawn.map(|(_, value)| *value).filter(|value| *value > 0.0);
    let low = values
        .clone()
        .reduce(f64::min)
        .context("nothing was measured that could be drawn")?;
    let high = values.fold(low, f64::max);
    // Room at both ends; one size alone is in the middle.
    let (ranks, times) = (0.8 * least as f64..1.25 * most as f64, 0.5 * low..2.0 * high);
    picture((860, 480), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .caption(
                "Time against ranks; the lines are power laws fitted to the points",
                ("sans-serif", 16),
            )
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(
                ranks
                    .log_scale()
                    .with_key_points(sizes.iter().map(|size| size.ranks as f64).collect()),
                times.log_scale(),
            )
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.1))
            .x_desc("ranks")
            .x_label_formatter(&|ranks| format!("{ranks:.0}"))
            .y_label_formatter(&|value| seconds(*value))
            .label_style(("sans-serif", 14))
            .draw()
            .map_err(drawing)?;
        for (title, color, points, line) in curves {
            let line = LineSeries::new(line, color);
            let legend = move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], color);
            chart.draw_series(line).map_err(drawing)?.label(title).legend(legend);
            let dots = points.into_iter().map(|point| Circle::new(point, 4, color.filled()));
            chart.draw_series(dots).map_err(drawing)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .label_font(("sans-serif", 14))
            .draw()
            .map_err(drawing)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::size::tests::size;

    #[test]
    fn every_point_and_every_law_is_drawn() {
        let sizes = [(16, 0.01), (64, 0.2), (256, 3.7)].map(|(ranks, join)| size(ranks, Some(join)));
        let svg = draw(&sizes).unwrap();
        assert_eq!(svg.matches("<circle").count(), sizes.len());
        assert!(svg.contains("join, N^"), "{svg}");
        assert!(draw(&[]).is_err());
    }
}
