//! Colours, marks and dashes of lines. A line without marks has a dash of its own: readers need
//! not tell colours apart.

use plotters::style::RGBColor;

/// Colour of text at axes.
pub(super) const INK: RGBColor = RGBColor(0x5d, 0x66, 0x75);
/// Colour of lines of axes.
pub(super) const GRID: RGBColor = RGBColor(0xd3, 0xd8, 0xe0);
/// Colour of the inside of hollow marks, and of the background in files.
pub(super) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// Colour of titles in files.
pub(super) const TITLE: RGBColor = RGBColor(0x1b, 0x1f, 0x27);

/// Number of colours of lines.
pub(crate) const STYLES: usize = 6;

/// Colours of lines, in the order of the style sheet's `--c1` to `--c6`.
const COLOURS: [RGBColor; STYLES] = [
    RGBColor(0x1f, 0x5f, 0xd0),
    RGBColor(0xc9, 0x6f, 0x00),
    RGBColor(0x00, 0x80, 0x6a),
    RGBColor(0xb3, 0x12, 0x4f),
    RGBColor(0x9d, 0x86, 0xd9),
    RGBColor(0x30, 0x34, 0x3b),
];

/// Lengths of strokes and gaps of a dashed line, in pixels.
pub(crate) type Dash = (u32, u32);

/// The colour of a style, from 1; they repeat after the last.
pub(super) fn colour(style: usize) -> RGBColor {
    COLOURS[place(style)]
}

/// The number of a style in the style sheet, from 1.
pub(crate) fn number(style: usize) -> usize {
    place(style) + 1
}

fn place(style: usize) -> usize {
    style.saturating_sub(1) % STYLES
}

/// The number of a style's dash or mark. It advances each time the colours repeat, so that 36
/// styles differ.
fn form(style: usize) -> usize {
    (place(style) + style.saturating_sub(1) / STYLES) % STYLES
}

/// The dash of a style's lines without marks.
pub(crate) fn dash(style: usize) -> Option<Dash> {
    [None, Some((9, 4)), Some((3, 3)), Some((14, 4)), Some((6, 2)), Some((2, 5))][form(style)]
}

/// The corners of a style's mark around its centre, scaled to about the area of a circle of
/// radius 1; no corners mean a circle.
pub(crate) fn corners(style: usize) -> &'static [(f64, f64)] {
    const CORNERS: [&[(f64, f64)]; STYLES] = [
        &[],
        &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        &[(0.0, -1.25), (1.15, 0.8), (-1.15, 0.8)],
        &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        &[(0.0, 1.25), (1.15, -0.8), (-1.15, -0.8)],
        &[(-0.5, -1.1), (0.5, -1.1), (1.1, 0.0), (0.5, 1.1), (-0.5, 1.1), (-1.1, 0.0)],
    ];
    CORNERS[form(style)]
}

#[cfg(test)]
mod tests {
    use super::*;

    type Linear = [f64; 3];

    /// Matrices of Machado, Oliveira and Fernandes (2009) for protanopia and deuteranopia.
    const BLIND: [[Linear; 3]; 2] = [
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ];

    fn linear(hex: &str) -> Linear {
        [0, 2, 4].map(|at| {
            let part = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn luminance([r, g, b]: Linear) -> f64 {
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    fn contrast(a: Linear, b: Linear) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn lab(colour: Linear) -> Linear {
        let [r, g, b] = colour.map(|part| part.clamp(0.0, 1.0));
        let f = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
        let y = f(luminance([r, g, b]));
        let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// The value of a variable in the nth block of variables of the style sheet.
    fn variable(name: &str, block: usize) -> String {
        let sheet = include_str!("../html/style.css");
        let found = sheet.match_indices(&format!("{name}: #")).nth(block).unwrap().0;
        sheet[found + name.len() + 3..][..6].to_owned()
    }

    #[test]
    fn colours_stand_out_and_apart() {
        for (theme, block) in [("light", 0), ("dark", 1), ("paper", 2)] {
            let card =
                linear(&if theme == "paper" { "ffffff".to_owned() } else { variable("--card", block) });
            let colours: Vec<Linear> =
                (1..=STYLES).map(|i| linear(&variable(&format!("--c{i}"), block))).collect();
            for (i, colour) in colours.iter().enumerate() {
                // WCAG 2: contrast of graphics.
                assert!(contrast(*colour, card) >= 3.0, "{theme}: {} on its card", i + 1);
            }
            for (i, a) in colours.iter().enumerate() {
                for (j, b) in colours.iter().enumerate().take(i) {
                    for matrix in BLIND {
                        let seen = |c: &Linear| {
                            lab(matrix.map(|row| row.iter().zip(c).map(|(m, part)| m * part).sum()))
                        };
                        let (a, b) = (seen(a), seen(b));
                        let distance = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                        // The first three must differ by colour alone, the others have shapes too.
                        let least = if i < 3 { 20.0 } else { 8.0 };
                        assert!(distance >= least, "{theme}: {} and {}: {distance:.0}", i + 1, j + 1);
                    }
                }
            }
        }
    }

    #[test]
    fn thirty_six_styles_differ() {
        let looks = |look: &dyn Fn(usize) -> String| {
            (1..=STYLES * STYLES).map(look).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(looks(&|style| format!("{} {:?}", number(style), dash(style))), 36);
        assert_eq!(looks(&|style| format!("{} {:?}", number(style), corners(style))), 36);
    }

    #[test]
    fn plots_have_the_colours_of_the_light_theme() {
        for style in 1..=STYLES {
            let RGBColor(r, g, b) = colour(style);
            assert_eq!(variable(&format!("--c{style}"), 0), format!("{r:02x}{g:02x}{b:02x}"));
        }
        assert_eq!(number(STYLES + 1), 1);
    }
}
