//! Draws a plot with plotters as SVG or as a bitmap. The same code draws both, except for
//! dashes and heat maps: SVG has attributes and images for them.

use super::{
    Line, Plot, Shape,
    heat::{level_start, opacity},
    palette::{Dash, GRID, INK, PAPER, TITLE, colour, corners},
};
use plotters::{
    coord::Shift,
    element::DashedPathElement,
    prelude::*,
    style::{
        FontStyle, RGBColor, ShapeStyle, register_font,
        text_anchor::{HPos, Pos, VPos},
    },
};
use std::{ops::Range, sync::Once};

/// SVG units a pixel, so that lines are smoother than whole pixels allow.
const SVG_SCALE: u32 = 2;
/// PNG pixels a pixel, for high-density screens.
const PNG_SCALE: u32 = 2;
/// Supersampling: drawn pixels for each PNG pixel, in each direction.
const PNG_SAMPLES: u32 = 2;

/// Largest number of legend rows in a file.
const LEGEND_ROWS_MAX: usize = 12;

/// Font size.
const TEXT: u32 = 15;

type DrawFault<DB> = DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>;

/// Registers the embedded font for bitmaps: the system may have none.
fn fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Registering a valid font does not fail; without a font the plot is left out.
        let _ = register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
    });
}

/// The kind of output.
#[derive(Clone, Copy, PartialEq)]
enum Output {
    Svg,
    Bitmap,
}

struct Pen<'p> {
    plot: &'p Plot,
    scale: u32,
    output: Output,
    /// Whether the plot is a file of its own, with title and legend.
    file: bool,
}

/// Returns the plot as SVG, for a page or as a file.
pub(super) fn svg(plot: &Plot, file: bool) -> Option<String> {
    fonts();
    let pen = Pen { plot, scale: SVG_SCALE, output: Output::Svg, file };
    let (width, height) = pen.size();
    let mut svg = String::new();
    let inside = {
        let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        // Writing to a string does not fail; a plot that plotters refuses is left out.
        let inside = Canvas { pen: &pen, area: &area }.draw().ok()?;
        area.present().ok()?;
        inside
    };
    let svg = undashed(svg);
    // Our own element, with a title for screen readers.
    let body = &svg[svg.find('>')? + 1..];
    let title = escape(&plot.title);
    let (w, h) = (width / SVG_SCALE, height / SVG_SCALE);
    let mut out = format!(
        "<svg role=\"img\" aria-label=\"{title}\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n<title>{title}</title>\n"
    );
    let mut rest = body.trim_start();
    if file {
        // The first element is the background.
        let end = rest.find('>')? + 1;
        out.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    out.push_str(&pen.shade(&inside));
    if let Some(image) = pen.image(&inside) {
        out.push_str(&image);
    }
    out.push_str(rest);
    Some(out)
}

/// Returns the plot as PNG.
pub(super) fn png(plot: &Plot) -> Option<Vec<u8>> {
    fonts();
    let pen = Pen { plot, scale: PNG_SCALE * PNG_SAMPLES, output: Output::Bitmap, file: true };
    let (width, height) = pen.size();
    let mut drawn = vec![255u8; (width * height * 3) as usize];
    {
        let area = BitMapBackend::with_buffer(&mut drawn, (width, height)).into_drawing_area();
        Canvas { pen: &pen, area: &area }.draw().ok()?;
        area.present().ok()?;
    }
    let (across, down) = (width / PNG_SAMPLES, height / PNG_SAMPLES);
    let pixels = means(&drawn, width as usize, across as usize, down as usize);
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, across, down);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(&pixels).ok()?;
    writer.finish().ok()?;
    Some(out)
}

/// Scales down: each pixel is the mean of a square of [`PNG_SAMPLES`].
fn means(drawn: &[u8], width: usize, across: usize, down: usize) -> Vec<u8> {
    let n = PNG_SAMPLES as usize;
    let mut pixels = Vec::with_capacity(across * down * 3);
    for y in 0..down {
        for x in 0..across {
            for part in 0..3 {
                let samples = (0..n * n).map(|i| ((y * n + i / n) * width + x * n + i % n) * 3 + part);
                let sum: usize = samples.map(|at| usize::from(drawn[at])).sum();
                pixels.push((sum / (n * n)) as u8);
            }
        }
    }
    pixels
}

/// Text of an attribute or element.
fn escape(text: &str) -> String {
    crate::text::escape(text)
}

/// A colour that encodes style and dash for [`undashed`]: plotters' SVG has no dashes. No style
/// has such a dark blue.
fn dash_colour(style: usize, dash: Dash) -> RGBColor {
    RGBColor(super::palette::number(style) as u8, dash.0 as u8, dash.1 as u8)
}

/// Replaces colours of [`dash_colour`] by the style's colour and a dash attribute.
fn undashed(svg: String) -> String {
    const MARK: &str = " stroke=\"#0";
    let mut out = String::with_capacity(svg.len());
    let mut rest = svg.as_str();
    while let Some(at) = rest.find(MARK) {
        let start = at + MARK.len() - 2;
        let parts = rest.get(start + 1..start + 7).unwrap_or_default();
        let number = |from: usize| u8::from_str_radix(parts.get(from..from + 2)?, 16).ok();
        out.push_str(&rest[..start]);
        match (number(0), number(2), number(4)) {
            (Some(style @ 1..=6), Some(stroke @ 1..=40), Some(gap @ 1..=40)) => {
                let RGBColor(r, g, b) = colour(usize::from(style));
                let (stroke, gap) = (u32::from(stroke) * SVG_SCALE, u32::from(gap) * SVG_SCALE);
                out.push_str(&format!("#{r:02X}{g:02X}{b:02X}\" stroke-dasharray=\"{stroke} {gap}"));
            }
            _ => out.push_str(&rest[start..start + 7]),
        }
        rest = &rest[start + 7..];
    }
    out.push_str(rest);
    out
}

/// The plotting area in pixels.
struct Inside {
    x: Range<i32>,
    y: Range<i32>,
}

impl Pen<'_> {
    fn px(&self, pixels: u32) -> u32 {
        pixels * self.scale
    }

    /// As [`Pen::px`], for fractions of pixels.
    fn part(&self, pixels: f64) -> i32 {
        (pixels * f64::from(self.scale)).round() as i32
    }

    fn font(&self, size: u32) -> FontDesc<'static> {
        ("sans-serif", self.px(size)).into_font()
    }

    /// The legend of a file in rows, with the x position of each key.
    fn legend(&self) -> Vec<Vec<(u32, &super::LegendEntry)>> {
        let mut rows: Vec<Vec<(u32, &super::LegendEntry)>> = Vec::new();
        let mut x = u32::MAX;
        for key in self.plot.legend.iter().filter(|_| self.file) {
            let width = self.font(TEXT).layout_box(&key.label).map_or(0, |(_, (w, _))| w.max(0) as u32);
            let width = width / self.scale + 26 + 16;
            if x.saturating_add(width) > self.plot.size.0 - 24 {
                rows.push(Vec::new());
                x = 16;
            }
            if let Some(row) = rows.last_mut() {
                row.push((x, key));
            }
            x += width;
        }
        rows.truncate(LEGEND_ROWS_MAX);
        rows
    }

    /// Height of title and legend of a file, in pixels.
    fn head(&self) -> u32 {
        if self.file { 34 + 20 * self.legend().len() as u32 } else { 0 }
    }

    /// Size of the whole image.
    fn size(&self) -> (u32, u32) {
        let (width, height) = self.plot.size;
        (self.px(width), self.px(height + self.head()))
    }

    /// The shaded range as SVG.
    fn shade(&self, inside: &Inside) -> String {
        let Some(shade) = &self.plot.shade else { return String::new() };
        let Range { start, end } = &self.plot.x.range;
        let place = |x: f64| {
            let part = ((x - start) / (end - start)).clamp(0.0, 1.0);
            f64::from(inside.x.start) + part * f64::from(inside.x.end - inside.x.start)
        };
        let (left, right) = (place(shade.start), place(shade.end));
        let RGBColor(r, g, b) = GRID;
        format!(
            "<rect x=\"{left:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" opacity=\"0.45\" fill=\"#{r:02X}{g:02X}{b:02X}\"/>\n",
            inside.y.start,
            right - left,
            inside.y.end - inside.y.start
        )
    }

    /// The heat map as an SVG image.
    fn image(&self, inside: &Inside) -> Option<String> {
        let heat = self.plot.heat.as_ref()?;
        let address = heat.address(&self.plot.x.range)?;
        let (Range { start: x, end: right }, Range { start: y, end: bottom }) = (&inside.x, &inside.y);
        // The image has rows for the levels in use only; the axis may be longer.
        let times = heat.times()?;
        let axis = &self.plot.y.range;
        let place = |ns: f64| {
            let part = (ns / axis.start).ln() / (axis.end / axis.start).ln();
            f64::from(*bottom) - part * f64::from(bottom - y)
        };
        let (top, low) = (place(times.end), place(times.start));
        Some(format!(
            "<image x=\"{x}\" y=\"{top:.1}\" width=\"{}\" height=\"{:.1}\" preserveAspectRatio=\"none\" href=\"{address}\"/>\n",
            right - x,
            low - top
        ))
    }
}

/// A plot while it is drawn.
struct Canvas<'a, DB: DrawingBackend> {
    pen: &'a Pen<'a>,
    area: &'a DrawingArea<DB, Shift>,
}

impl<DB: DrawingBackend> Canvas<'_, DB>
where
    DB::ErrorType: 'static,
{
    fn draw(&self) -> Result<Inside, DrawFault<DB>> {
        if self.pen.file {
            self.area.fill(&PAPER)?;
            self.draw_head()?;
        }
        let plot = self.pen.plot;
        let mut chart = ChartBuilder::on(self.area)
            .margin_top(self.pen.px(8 + self.pen.head()))
            .margin_right(self.pen.px(24))
            .x_label_area_size(self.pen.px(if plot.x.label.is_empty() { 28 } else { 46 }))
            .y_label_area_size(self.pen.px(66))
            .build_cartesian_2d(plot.x.clone(), plot.y.clone())?;
        let at = |x: f64, y: f64| (x, y);
        let (bottom, top) = (plot.y.range.start, plot.y.range.end);
        let (left, right) = (plot.x.range.start, plot.x.range.end);
        let corner = |x, y| chart.plotting_area().map_coordinate(&at(x, y));
        let ((x0, y1), (x1, y0)) = (corner(left, bottom), corner(right, top));
        let inside = Inside { x: x0..x1, y: y0..y1 };
        // In SVG the shade lies below the image of a heat map.
        if let Some(shade) = plot.shade.as_ref().filter(|_| self.pen.output == Output::Bitmap) {
            let box_of = [corner(shade.start, top), corner(shade.end, bottom)];
            self.area.draw(&Rectangle::new(box_of, GRID.mix(0.45).filled()))?;
        }
        if self.pen.output == Output::Bitmap {
            self.heat(&corner)?;
        }
        let text = self.pen.font(TEXT).color(&INK);
        let grid = GRID.stroke_width(self.pen.scale);
        let mut mesh = chart.configure_mesh();
        mesh.axis_style(grid)
            .bold_line_style(grid)
            .max_light_lines(0)
            .set_all_tick_mark_size(self.pen.px(5))
            .label_style(text.clone())
            .axis_desc_style(text)
            .x_desc(plot.x.label.clone());
        if !plot.x.lined {
            mesh.disable_x_mesh();
        }
        mesh.draw()?;
        let corner = |x, y| chart.plotting_area().map_coordinate(&at(x, y));
        for upright in &plot.uprights {
            self.upright(upright, corner(upright.x, bottom), &inside)?;
        }
        for bar in &plot.bars {
            let box_of = [corner(bar.x.start, bar.y.0), corner(bar.x.end, bar.y.1)];
            self.area.draw(&Rectangle::new(box_of, colour(bar.style).filled()))?;
            let (low, high) = bar.spread;
            if low < high {
                let middle = (bar.x.start + bar.x.end) / 2.0;
                self.whisker(corner(middle, low), corner(middle, high), INK)?;
            }
        }
        for line in &plot.lines {
            self.line(line, &corner)?;
        }
        Ok(inside)
    }

    fn draw_head(&self) -> Result<(), DrawFault<DB>> {
        let title = self.pen.font(16).color(&TITLE);
        self.area.draw_text(&self.pen.plot.title, &title, (self.pen.part(16.0), self.pen.part(12.0)))?;
        for (row, keys) in self.pen.legend().into_iter().enumerate() {
            let y = self.pen.part(44.0 + 20.0 * row as f64);
            for (x, key) in keys {
                let x = self.pen.part(f64::from(x));
                let paint = colour(key.style);
                match key.shape {
                    Shape::Line(dash) => {
                        let ends = vec![(x, y), (x + self.pen.part(20.0), y)];
                        self.path(ends, key.style, dash, 2)?;
                    }
                    Shape::Dot => self.mark((x + self.pen.part(10.0), y), key.style, false)?,
                    Shape::Bar => {
                        let r = self.pen.part(5.0);
                        let box_of = [(x + r, y - r), (x + 3 * r, y + r)];
                        self.area.draw(&Rectangle::new(box_of, paint.filled()))?;
                    }
                    Shape::Cell(shade) => {
                        let r = self.pen.part(6.0);
                        let box_of = [(x + self.pen.part(4.0), y - r), (x + self.pen.part(20.0), y + r)];
                        self.area.draw(&Rectangle::new(box_of, BLACK.mix(opacity(shade)).filled()))?;
                    }
                }
                let text = self.pen.font(TEXT).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
                // Bitmaps need a small shift to centre letters without descenders.
                let lower = if self.pen.output == Output::Bitmap { self.pen.part(1.5) } else { 0 };
                self.area.draw_text(&key.label, &text, (x + self.pen.part(26.0), y + lower))?;
            }
        }
        Ok(())
    }

    fn upright(
        &self,
        upright: &super::Upright,
        (x, bottom): (i32, i32),
        inside: &Inside,
    ) -> Result<(), DrawFault<DB>> {
        let ends = vec![(x, bottom), (x, inside.y.start)];
        match upright.style {
            Some(style) => self.path(ends, style, Some((2, 3)), 1)?,
            None => self.area.draw(&PathElement::new(ends, INK.mix(0.5).stroke_width(self.pen.scale)))?,
        }
        if !upright.label.is_empty() {
            let text = self.pen.font(13).color(&INK).pos(Pos::new(HPos::Left, VPos::Top));
            self.area.draw_text(
                &upright.label,
                &text,
                (x + self.pen.part(4.0), inside.y.start + self.pen.part(1.0)),
            )?;
        }
        Ok(())
    }

    fn line(&self, line: &Line, corner: &dyn Fn(f64, f64) -> (i32, i32)) -> Result<(), DrawFault<DB>> {
        let paint = colour(line.style);
        for piece in &line.pieces {
            let mut points: Vec<(i32, i32)> = piece.iter().map(|(x, y)| corner(*x, *y)).collect();
            points.dedup();
            // A single point is drawn as a dot.
            if let [only] = points[..] {
                if line.dots.is_empty() {
                    self.area.draw(&Circle::new(only, self.pen.px(1), paint.filled()))?;
                }
            } else {
                self.path(points, line.style, line.dash, 2)?;
            }
        }
        for dot in &line.dots {
            let (x, y) = dot.at;
            let place = corner(x, y);
            if dot.spread.0 < dot.spread.1 {
                self.whisker(corner(x, dot.spread.0), corner(x, dot.spread.1), paint)?;
            }
            if dot.spread_x.0 < dot.spread_x.1 {
                let ends = vec![corner(dot.spread_x.0, y), corner(dot.spread_x.1, y)];
                self.area.draw(&PathElement::new(ends, paint.stroke_width(self.pen.scale)))?;
            }
            if let Some(wanted) = dot.wanted_x {
                let end = corner(wanted, y);
                self.path(vec![place, end], line.style, Some((2, 2)), 1)?;
                let up = self.pen.part(4.0);
                let tick = vec![(end.0, end.1 - up), (end.0, end.1 + up)];
                self.area.draw(&PathElement::new(tick, paint.stroke_width(self.pen.scale)))?;
            }
            self.mark(place, line.style, dot.hollow)?;
        }
        Ok(())
    }

    /// A whisker from minimum to maximum.
    fn whisker(&self, low: (i32, i32), high: (i32, i32), paint: RGBColor) -> Result<(), DrawFault<DB>> {
        let style = paint.stroke_width(self.pen.scale);
        self.area.draw(&PathElement::new(vec![low, high], style))?;
        let r = self.pen.part(3.0);
        for (x, y) in [low, high] {
            self.area.draw(&PathElement::new(vec![(x - r, y), (x + r, y)], style))?;
        }
        Ok(())
    }

    /// The mark of a style.
    fn mark(&self, (x, y): (i32, i32), style: usize, hollow: bool) -> Result<(), DrawFault<DB>> {
        const RADIUS: f64 = 4.0;
        let paint = colour(style);
        let inner: ShapeStyle = if hollow { PAPER.filled() } else { paint.filled() };
        let outline = paint.stroke_width((3 * self.pen.scale).div_ceil(2));
        let corners = corners(style);
        if corners.is_empty() {
            let radius = self.pen.part(RADIUS);
            self.area.draw(&Circle::new((x, y), radius, inner))?;
            return self.area.draw(&Circle::new((x, y), radius, outline));
        }
        let place = |(dx, dy): &(f64, f64)| (x + self.pen.part(dx * RADIUS), y + self.pen.part(dy * RADIUS));
        let mut points: Vec<(i32, i32)> = corners.iter().map(place).collect();
        self.area.draw(&Polygon::new(points.clone(), inner))?;
        // Close the outline once: bitmaps leave a hole where it is drawn twice.
        points.push(points[0]);
        self.area.draw(&PathElement::new(points, outline))
    }

    fn path(
        &self,
        points: Vec<(i32, i32)>,
        style: usize,
        dash: Option<Dash>,
        width: u32,
    ) -> Result<(), DrawFault<DB>> {
        let width = self.pen.px(width);
        match (dash, self.pen.output) {
            (None, _) => self.area.draw(&PathElement::new(points, colour(style).stroke_width(width))),
            (Some(dash), Output::Svg) => {
                self.area.draw(&PathElement::new(points, dash_colour(style, dash).stroke_width(width)))
            }
            (Some((stroke, gap)), Output::Bitmap) => {
                let (stroke, gap) = (self.pen.px(stroke), self.pen.px(gap));
                let style = colour(style).stroke_width(width);
                self.area.draw(&DashedPathElement::new(points, stroke, gap, style))
            }
        }
    }

    fn heat(&self, corner: &dyn Fn(f64, f64) -> (i32, i32)) -> Result<(), DrawFault<DB>> {
        let Some(heat) = &self.pen.plot.heat else { return Ok(()) };
        for (column, level, shade) in heat.cells() {
            let box_of =
                [corner(column.x.start, level_start(level + 1)), corner(column.x.end, level_start(level))];
            self.area.draw(&Rectangle::new(box_of, BLACK.mix(opacity(shade)).filled()))?;
        }
        Ok(())
    }
}
