//! Pictures as SVG: an area to draw in, and text.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Where a picture is drawn, in pixels.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Returns a picture of `size` pixels, white where `draw` draws nothing.
pub fn picture(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(drawing)?;
        draw(&area)?;
        area.present().map_err(drawing)?;
    }
    Ok(svg)
}

/// How a text looks, and which of its ends is at its place.
#[derive(Clone, Copy)]
pub struct TextStyle {
    /// In pixels.
    pub size: i32,
    /// Of the letters.
    pub color: RGBColor,
    /// The end.
    pub align: HPos,
}

/// Writes a text whose vertical middle is at a place.
pub fn write(area: &Area<'_>, text: &str, place: (i32, i32), style: TextStyle) -> anyhow::Result<()> {
    let TextStyle { size, color, align } = style;
    let style = ("sans-serif", size).into_font().color(&color);
    let style = style.pos(Pos::new(align, VPos::Center));
    area.draw_text(text, &style, place).map_err(drawing)
}

/// An error of plotters, without what it borrows.
pub fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}
