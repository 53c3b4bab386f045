//! Heat maps: the distribution of times over time. A column is an interval and a cell a tenth of
//! a decade; its opacity grows with the share of the interval's operations.

use super::{LegendEntry, Shape};
use crate::sums::sum;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::ops::Range;

/// Number of shades. Few shades make small files.
const SHADES: u8 = 15;

/// Opacity of a cell with a single operation, which must be visible.
const FAINTEST: f64 = 0.13;

/// Largest width in pixels: a page shows no more.
const ACROSS_MAX: usize = 900;

/// Smallest width in pixels, so that wide columns end where their intervals do.
const ACROSS_MIN: usize = 400;

/// Largest number of levels: from a nanosecond to beyond an hour.
const LEVELS_MAX: usize = 130;

/// The cells of a heat map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heat {
    /// The columns, from left to right.
    pub(crate) columns: Vec<Column>,
}

/// An interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    /// Start and end on the x axis.
    pub(crate) x: Range<f64>,
    /// Non-empty levels (ten a decade of ns) with their counts.
    pub(crate) levels: Vec<(u32, u64)>,
}

/// The lower end of a level, ns.
pub(super) fn level_start(level: u32) -> f64 {
    10f64.powf(f64::from(level) / 10.0)
}

/// The shade of a cell, from 1; 0 for an empty cell.
fn shade(count: u64, all: u64) -> u8 {
    if count == 0 || all == 0 {
        return 0;
    }
    // An exponent between 0.5 and 1 keeps both the bulk and the tail visible.
    let strength = (count as f64 / all as f64).powf(0.55).clamp(0.0, 1.0);
    let strength = FAINTEST + (1.0 - FAINTEST) * strength;
    ((strength * f64::from(SHADES)).round() as u8).clamp(1, SHADES)
}

/// The opacity of a shade, from 0 to 1.
pub(crate) fn opacity(shade: u8) -> f64 {
    f64::from(shade) / f64::from(SHADES)
}

/// Shares of an interval's operations that the legend shows, in thousandths.
const TOLD: [(u64, &str); 4] =
    [(1, "0.1 %"), (10, "1 %"), (100, "10 %"), (1000, "100 % of the interval's operations")];

/// The legend of shades.
pub(super) fn keys() -> impl Iterator<Item = LegendEntry> {
    TOLD.into_iter().map(|(thousandths, label)| LegendEntry {
        label: label.to_owned(),
        style: 1,
        shape: Shape::Cell(shade(thousandths, 1000)),
    })
}

impl Heat {
    /// The lowest and the highest level in use.
    fn bounds(&self) -> Option<(u32, u32)> {
        let levels = || self.columns.iter().flat_map(|column| &column.levels).filter(|(_, n)| *n > 0);
        let bounds = levels().map(|(level, _)| *level).min()?..=levels().map(|(level, _)| *level).max()?;
        let most = *bounds.start() + LEVELS_MAX as u32 - 1;
        Some((*bounds.start(), (*bounds.end()).min(most)))
    }

    /// The range of all times, in ns.
    pub(crate) fn times(&self) -> Option<Range<f64>> {
        let (low, high) = self.bounds()?;
        Some(level_start(low)..level_start(high + 1))
    }

    /// The non-empty cells: column, level, shade.
    pub(super) fn cells(&self) -> impl Iterator<Item = (&Column, u32, u8)> {
        let bounds = self.bounds();
        self.columns.iter().flat_map(move |column| {
            let all = sum(column.levels.iter().map(|(_, n)| *n));
            let inside = move |level: u32| bounds.is_some_and(|(low, high)| (low..=high).contains(&level));
            let cells = column.levels.iter().filter(move |(level, n)| *n > 0 && inside(*level));
            cells.map(move |(level, n)| (column, *level, shade(*n, all)))
        })
    }

    /// The cells over the range `x` of the axis as a `data:` URL of a PNG, black on transparent.
    pub(super) fn address(&self, x: &Range<f64>) -> Option<String> {
        let (low, high) = self.bounds()?;
        let height = (high - low + 1) as usize;
        let narrowest = self.columns.iter().map(|c| c.x.end - c.x.start).filter(|w| *w > 0.0);
        let narrowest = narrowest.fold(f64::INFINITY, f64::min);
        let whole = x.end - x.start;
        let across = if narrowest.is_finite() { (2.0 * whole / narrowest).ceil() as usize } else { 1 };
        let across = across.clamp(ACROSS_MIN, ACROSS_MAX);
        let mut picture = vec![0u8; across * height];
        for (column, level, shade) in self.cells() {
            let place = |value: f64| ((value - x.start) / whole * across as f64).round() as usize;
            let (from, to) = (place(column.x.start).min(across - 1), place(column.x.end).min(across));
            let row = (high - level) as usize;
            for cell in &mut picture[row * across + from..row * across + to.max(from + 1)] {
                *cell = (*cell).max(shade);
            }
        }
        let png = encode(&picture, across as u32, height as u32)?;
        Some(format!("data:image/png;base64,{}", STANDARD.encode(png)))
    }
}

/// Encodes shades as a PNG with a palette, two pixels a byte.
fn encode(picture: &[u8], width: u32, height: u32) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Four);
    encoder.set_palette(vec![0; 3 * (usize::from(SHADES) + 1)]);
    let opacities = (0..=SHADES).map(|shade| (255.0 * opacity(shade)).round() as u8);
    encoder.set_trns(opacities.collect::<Vec<_>>());
    encoder.set_compression(png::Compression::High);
    // Adjacent rows are not alike: a filter would not help.
    encoder.set_filter(png::Filter::NoFilter);
    let rows = picture.chunks(width as usize);
    let packed: Vec<u8> = rows
        .flat_map(|row| row.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0)))
        .collect();
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(&packed).ok()?;
    writer.finish().ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(address: &str) -> (u32, u32, Vec<u8>) {
        let png = STANDARD.decode(address.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
        let mut decoder = png::Decoder::new(std::io::Cursor::new(png));
        decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::ALPHA);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (info.width, info.height, pixels.chunks(4).map(|pixel| pixel[3]).collect())
    }

    #[test]
    fn cells_have_the_place_of_their_time_and_the_shade_of_their_share() {
        let columns = vec![
            Column { x: 0.0..1.0, levels: vec![(50, 100)] },
            Column { x: 2.0..4.0, levels: vec![(50, 9_999), (53, 1)] },
        ];
        let heat = Heat { columns };
        assert_eq!(heat.times().unwrap(), level_start(50)..level_start(54));
        let (width, height, alpha) = decoded(&heat.address(&(0.0..4.0)).unwrap());
        // The narrowest column is 100 pixels wide.
        assert_eq!((width, height), (400, 4));
        let row = |level: usize| &alpha[(53 - level) * 400..][..400];
        assert!(row(50)[..100].iter().all(|a| *a == 255) && row(50)[100..200].iter().all(|a| *a == 0));
        assert!(row(50)[200..].iter().all(|a| *a > 240), "{:?}", row(50));
        assert!(
            row(53)[200..].iter().all(|a| *a > 20 && *a < 50),
            "one of ten thousand is seen: {:?}",
            row(53)
        );
        assert!(row(51).iter().chain(row(52)).all(|a| *a == 0));
    }

    #[test]
    fn empty_and_invalid_columns_do_not_panic() {
        assert_eq!(Heat { columns: vec![] }.address(&(0.0..1.0)), None);
        let far = vec![(3, u64::MAX), (4_000_000_000, u64::MAX)];
        let heat = Heat { columns: vec![Column { x: 0.0..0.0, levels: far }] };
        let (_, height, _) = decoded(&heat.address(&(0.0..1.0)).unwrap());
        assert_eq!(height as usize, LEVELS_MAX);
    }

    #[test]
    fn an_hour_of_seconds_is_a_small_picture() {
        // The worst case for compression: all cells differ.
        let columns = (0..600u32).map(|i| Column {
            x: f64::from(i)..f64::from(i + 1),
            levels: (40..60).map(|level| (level, u64::from((i * 7919 + level * 104_729) % 1000))).collect(),
        });
        let address = Heat { columns: columns.collect() }.address(&(0.0..600.0)).unwrap();
        assert!(address.len() < 20_000, "{}", address.len());
    }
}
