//! Parts of pages: tables, figures, tiles, warnings.

use crate::{
    notes::Warning,
    plot::{LegendEntry, Plot, Shape, opacity, palette},
    text::{escape, quoted},
};
use std::fmt::{Display, Write as _};

/// Style sheet of the pages.
const STYLE: &str = include_str!("style.css");

/// A page with a title, a line below it, and the contents that `fill` writes.
pub(crate) fn page(title: &str, below: &str, fill: impl FnOnce(&mut String)) -> String {
    let title = escape(title);
    let mut page = String::new();
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         img-src data:\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    );
    explained(&mut page, below);
    fill(&mut page);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// The section of warnings.
pub(crate) fn warnings_section(page: &mut String, warnings: &[Warning]) {
    if warnings.is_empty() {
        return;
    }
    page.push_str("<section class=\"card notes\">\n<h2>Before quoting a number</h2>\n<ul>\n");
    for warning in warnings {
        let _ = write!(page, "<li>{}", escape(&warning.text));
        if !warning.details.is_empty() {
            page.push_str("<ul>");
            for detail in &warning.details {
                let _ = write!(page, "<li>{}</li>", escape(detail));
            }
            page.push_str("</ul>");
        }
        page.push_str("</li>\n");
    }
    page.push_str("</ul>\n</section>\n");
}

/// A tile: a number and its meaning.
pub(crate) fn tile(page: &mut String, value: &str, what: &str) {
    // More than nine characters do not fit in the large font.
    let class = if value.chars().count() > 9 { " class=\"long\"" } else { "" };
    let _ = writeln!(
        page,
        "<div class=\"card tile\"><b{class}>{}</b><span>{}</span></div>",
        escape(value),
        escape(what)
    );
}

/// Width in pixels from which a plot scrolls sideways on a narrow screen.
const WIDE_FROM: u32 = 600;

/// A plot with its title, and with its legend unless it shares one.
pub(crate) fn figure(page: &mut String, plot: &Plot, legend: bool) {
    let Some(svg) = plot.inline_svg() else { return };
    let wide = if plot.size.0 > WIDE_FROM { " wide" } else { "" };
    let _ = write!(page, "<figure class=\"card{wide}\"><figcaption><h3>{}</h3>", escape(&plot.title));
    if legend {
        keys(page, &plot.legend);
    }
    let _ = writeln!(page, "</figcaption>\n{svg}</figure>");
}

/// A legend.
pub(crate) fn keys(page: &mut String, keys: &[LegendEntry]) {
    page.push_str("<span class=\"legend\">");
    for key in keys {
        let _ = write!(page, "<span>{}{}</span>", sample(key), escape(&key.label));
    }
    page.push_str("</span>");
}

/// The sample of a key: a small picture.
fn sample(key: &LegendEntry) -> String {
    let colour = palette::number(key.style);
    let shape = match key.shape {
        Shape::Line(dash) => {
            let dash =
                dash.map_or(String::new(), |(stroke, gap)| format!(" stroke-dasharray=\"{stroke} {gap}\""));
            format!("<line x1=\"0\" y1=\"6\" x2=\"22\" y2=\"6\" stroke-width=\"2.5\"{dash}/>")
        }
        Shape::Dot => match palette::corners(key.style) {
            [] => "<circle cx=\"11\" cy=\"6\" r=\"4\"/>".to_owned(),
            corners => {
                let points: Vec<String> =
                    corners.iter().map(|(x, y)| format!("{},{}", 11.0 + 4.0 * x, 6.0 + 4.0 * y)).collect();
                format!("<polygon points=\"{}\"/>", points.join(" "))
            }
        },
        Shape::Cell(shade) => {
            return format!(
                "<svg class=\"key cell\" aria-hidden=\"true\" viewBox=\"0 0 22 12\"><rect x=\"2\" y=\"0\" width=\"18\" \
                 height=\"12\" opacity=\"{:.2}\"/></svg>",
                opacity(shade)
            );
        }
        Shape::Bar => "<rect x=\"6\" y=\"1\" width=\"10\" height=\"10\"/>".to_owned(),
    };
    format!(
        "<svg class=\"key\" aria-hidden=\"true\" viewBox=\"0 0 22 12\" style=\"stroke:var(--c{colour});fill:var(--c{colour})\">{shape}</svg>"
    )
}

/// A table with a head, as HTML.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) class: &'static str,
    heads: String,
    /// For each column, whether it holds text and not numbers.
    is_text: Vec<bool>,
    rows: String,
}

impl Table {
    /// A table of numbers.
    pub(crate) fn numbers(heads: &str) -> Table {
        let mut table = Table { class: "numbers", ..Table::default() };
        table.heads(heads);
        table
    }

    /// Adds columns whose heads are separated by `|`; see [`Table::head`].
    pub(crate) fn heads(&mut self, heads: &str) {
        heads.split('|').for_each(|head| self.head(head.trim()));
    }

    /// Adds a column. `<` before a head aligns the column left, as in format strings: it holds text.
    pub(crate) fn head(&mut self, head: &str) {
        let text = head.strip_prefix('<');
        let class = if text.is_some() { " class=\"text\"" } else { "" };
        let _ = write!(self.heads, "<th{class}>{}</th>", text.unwrap_or(head));
        self.is_text.push(text.is_some());
    }

    /// Adds a row of cells, which are HTML; the first is the row's head.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.row_of("", cells);
    }

    /// Adds a row with a class.
    pub(crate) fn row_of(&mut self, class: &str, cells: impl IntoIterator<Item = String>) {
        self.rows += &if class.is_empty() { "<tr>".to_owned() } else { format!("<tr class=\"{class}\">") };
        for (nth, cell) in cells.into_iter().enumerate() {
            let _ = match self.is_text.get(nth) {
                _ if nth == 0 => write!(self.rows, "<th>{cell}</th>"),
                Some(true) => write!(self.rows, "<td class=\"text\">{cell}</td>"),
                _ => write!(self.rows, "<td>{cell}</td>"),
            };
        }
        self.rows += "</tr>\n";
    }

    pub(crate) fn write(self, page: &mut String) {
        let Table { class, heads, rows, .. } = self;
        let _ = write!(
            page,
            "<div class=\"card scroll\">\n<table class=\"{class}\">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n\
             </table>\n</div>\n"
        );
    }
}

/// The heading of a table.
pub(crate) fn heading(page: &mut String, title: &str) {
    let _ = writeln!(page, "<h3 class=\"above\">{}</h3>", escape(title));
}

/// A small second line in a cell.
pub(crate) fn small(text: &str) -> String {
    format!("<small>{}</small>", escape(text))
}

/// Preformatted text.
pub(crate) fn preformatted(page: &mut String, text: &str) {
    let _ = writeln!(page, "<div class=\"card\"><pre>{}</pre></div>", escape(text));
}

/// A paragraph that explains the element above it; nothing if `words` is empty.
pub(crate) fn explained(page: &mut String, words: &str) {
    if !words.is_empty() {
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(words));
    }
}

/// A table of names and values; nothing if there are no rows.
pub(crate) fn facts<N: Display, V: Display>(
    page: &mut String,
    title: &str,
    rows: impl IntoIterator<Item = (N, V)>,
) {
    let row = |(name, value)| format!("<tr><th>{}</th><td>{}</td></tr>\n", escape(name), escape(value));
    let rows: String = rows.into_iter().map(row).collect();
    if !rows.is_empty() {
        let _ = write!(
            page,
            "<h2>{title}</h2>\n<div class=\"card scroll\"><table class=\"facts\"><tbody>\n{rows}</tbody></table></div>\n"
        );
    }
}

/// A command line, quoted for a shell.
pub(crate) fn command_line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub(crate) mod checks {
    /// Elements without an end tag.
    const VOID: [&str; 7] = ["meta", "rect", "line", "polyline", "circle", "polygon", "image"];

    /// Checks that elements nest, and that the page loads nothing and has no scripts.
    pub(crate) fn check(page: &str) {
        let mut open: Vec<String> = vec!["html".to_owned(), "head".to_owned()];
        let body = page.split_once("</style>").unwrap().1;
        for part in body.split('<').skip(1) {
            let (tag, _) = part.split_once('>').expect("a tag ends");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
                continue;
            }
            let name = tag.split([' ', '\n', '/']).next().unwrap();
            assert!(!matches!(name, "script" | "img" | "link" | "iframe" | "object" | "base"), "{tag}");
            let tag = tag.replace(" href=\"data:image/png;base64,", "");
            for attribute in ["href", "src=", "onload", "onerror", "url("] {
                assert!(!tag.contains(attribute), "{tag}");
            }
            if !tag.ends_with('/') && !VOID.contains(&name) {
                open.push(name.to_owned());
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }
}
