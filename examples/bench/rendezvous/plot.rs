//! The curve: the times of all sizes on logarithmic axes, with the law of each.

use anyhow::Context as _;
use examples::svg::{self, Area, TextStyle, drawing};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::rendezvous::figures::{Figure, Law, Row, seconds};

const SIZE: (u32, u32) = (860, 480);
/// The area of the axes: left, top, right, bottom.
const FRAME: (i32, i32, i32, i32) = (70, 40, 560, 430);
const LINE_HEIGHT: i32 = 22;

const TEXT: TextStyle = TextStyle {
    size: 14,
    color: BLACK,
    align: HPos::Left,
};
const GREY: RGBColor = RGBColor(205, 205, 210);

/// What is drawn.
const CURVES: [(Figure, RGBColor); 5] = [
    (Figure::Connect, RGBColor(178, 34, 52)),
    (Figure::Join, RGBColor(31, 98, 168)),
    (Figure::BarrierMedian, RGBColor(34, 120, 60)),
    (Figure::AllReduceMedian, RGBColor(190, 120, 20)),
    (Figure::Cause, RGBColor(110, 60, 150)),
];

/// Draws the times against the ranks.
///
/// # Errors
/// When no size has a time, or drawing fails.
pub fn draw(rows: &[Row]) -> anyhow::Result<String> {
    let scale = Scale::new(rows).context("nothing was measured that could be drawn")?;
    svg::picture(SIZE, |area| {
        let title = "Time against ranks; the lines are power laws fitted to the points";
        svg::write(area, title, (FRAME.0, FRAME.1 - 20), TEXT)?;
        scale.draw_axes(area, rows)?;
        for (number, (figure, color)) in CURVES.into_iter().enumerate() {
            draw_curve(area, &scale, rows, (figure, color))?;
            let law = Law::of(rows, figure).map_or_else(String::new, |law| format!(", N^{:.2}", law.exponent));
            let place = (FRAME.2 + 20, FRAME.1 + 10 + number as i32 * LINE_HEIGHT);
            svg::write(
                area,
                &format!("{}{law}", figure.name()),
                place,
                TextStyle { color, ..TEXT },
            )?;
        }
        Ok(())
    })
}

fn draw_curve(area: &Area<'_>, scale: &Scale, rows: &[Row], (figure, color): (Figure, RGBColor)) -> anyhow::Result<()> {
    for row in rows {
        if let Some(value) = row.value(figure) {
            let dot = Circle::new(scale.place(row.ranks as f64, value), 4, color.filled());
            area.draw(&dot).map_err(drawing)?;
        }
    }
    if let Some(law) = Law::of(rows, figure) {
        let ends = [scale.ranks.0, scale.ranks.1].map(|ranks| scale.place(ranks, law.at(ranks)));
        area.draw(&PathElement::new(ends.to_vec(), color)).map_err(drawing)?;
    }
    Ok(())
}

/// Where ranks and seconds are on the picture.
struct Scale {
    ranks: (f64, f64),
    secs: (f64, f64),
}

impl Scale {
    /// Returns the scale of whole powers of ten around all that is drawn.
    fn new(rows: &[Row]) -> Option<Self> {
        let ranks = rows.iter().map(|row| row.ranks as f64);
        let ranks = (ranks.clone().reduce(f64::min)?, ranks.reduce(f64::max)?);
        let measured = rows.iter().flat_map(|row| CURVES.map(|(figure, _)| row.value(figure)));
        let laws = CURVES.iter().filter_map(|(figure, _)| Law::of(rows, *figure));
        let ends = laws.flat_map(|law| [law.at(ranks.0), law.at(ranks.1)]);
        let values = measured.flatten().chain(ends).filter(|value| *value > 0.0);
        let values: Vec<f64> = values.collect();
        let least = values.iter().copied().reduce(f64::min)?;
        let greatest = values.iter().copied().reduce(f64::max)?;
        let power = |value: f64| 10.0_f64.powf(value);
        Some(Self {
            // One size alone is in the middle.
            ranks: if ranks.0 < ranks.1 {
                ranks
            } else {
                (ranks.0 / 2.0, ranks.1 * 2.0)
            },
            secs: (
                power(least.log10().floor()),
                power((greatest.log10().floor() + 1.0).max(0.0)),
            ),
        })
    }

    fn place(&self, ranks: f64, secs: f64) -> (i32, i32) {
        let part = |value: f64, (least, greatest): (f64, f64)| (value / least).ln() / (greatest / least).ln();
        let (left, top, right, bottom) = FRAME;
        let x = f64::from(left) + part(ranks, self.ranks) * f64::from(right - left);
        let y = f64::from(bottom) - part(secs, self.secs) * f64::from(bottom - top);
        (x.round() as i32, y.round() as i32)
    }

    fn draw_axes(&self, area: &Area<'_>, rows: &[Row]) -> anyhow::Result<()> {
        let (left, top, right, bottom) = FRAME;
        let line = |ends: [(i32, i32); 2]| area.draw(&PathElement::new(ends.to_vec(), GREY)).map_err(drawing);
        let style = |align| TextStyle { align, ..TEXT };
        let mut mark = self.secs.0;
        while mark <= self.secs.1 * 1.001 {
            let (_, y) = self.place(self.ranks.0, mark);
            line([(left, y), (right, y)])?;
            svg::write(area, &seconds(mark), (left - 8, y), style(HPos::Right))?;
            mark *= 10.0;
        }
        for row in rows {
            let (x, _) = self.place(row.ranks as f64, self.secs.0);
            line([(x, top), (x, bottom)])?;
            svg::write(area, &row.ranks.to_string(), (x, bottom + 14), style(HPos::Center))?;
        }
        svg::write(area, "ranks", (right + 20, bottom + 14), TEXT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::figures::Figures;
    use crate::rendezvous::layout::Layout;

    #[test]
    fn every_point_and_every_law_is_in_the_frame() {
        let rows = [(16, 0.01), (64, 0.2), (256, 3.7)].map(|(ranks, join)| {
            let mut figures = Figures::default();
            figures.set(Figure::Join, join);
            Row::new(ranks, Layout::new(ranks, None, None).unwrap(), &[figures], None)
        });
        let scale = Scale::new(&rows).unwrap();
        for row in &rows {
            let (x, y) = scale.place(row.ranks as f64, row.value(Figure::Join).unwrap());
            assert!(
                (FRAME.0..=FRAME.2).contains(&x) && (FRAME.1..=FRAME.3).contains(&y),
                "{x} {y}"
            );
        }
        let svg = draw(&rows).unwrap();
        assert_eq!(svg.matches("<circle").count(), rows.len());
        assert!(svg.contains("join, N^"), "{svg}");
        assert!(draw(&[]).is_err());
    }
}
