//! Plots for the benchmarks page: one picture per section, drawn from its table.
//!
//! Each row with a ratio becomes a bar on a logarithmic axis with a line at 1, where we are level with the floor or the
//! peer, and the goal beside it in its own words. Plain SVG that follows the reader's light or dark mode. Does not
//! judge: which side of 1 is better depends on the row, and the page explains it.

use std::fmt::Write as _;

/// A bar: what was measured, the ratio, the goal in words.
#[derive(Debug, PartialEq)]
struct Bar {
    figure: String,
    ratio: f64,
    goal: String,
}

const WIDTH: f64 = 920.0;
const LABELS: f64 = 400.0;
const GOALS: f64 = 210.0;
const ROW: f64 = 22.0;
const TOP: f64 = 34.0;

/// A picture of the section's tables; `None` where no row has a ratio.
pub(crate) fn section(heading: &str, markdown: &str) -> Option<String> {
    let bars = bars(markdown);
    if bars.is_empty() {
        return None;
    }
    let ends = bars
        .iter()
        .map(|bar| bar.ratio.log10())
        .fold((-0.31_f64, 0.31_f64), |(low, high), value| (low.min(value), high.max(value)));
    let room = WIDTH - LABELS - GOALS;
    let at = |ratio: f64| LABELS + (ratio.log10() - ends.0) / (ends.1 - ends.0) * room;
    let height = TOP + ROW * (bars.len() as f64) + 14.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <title>{}: ratios</title>\n\
         <style>text{{fill:#222}}.dim{{fill:#777}}.bar{{fill:#c8702a}}.one{{stroke:#777;stroke-dasharray:3 3}}@media(prefers-color-scheme:dark){{text{{fill:#ddd}}.dim{{fill:#999}}.bar{{fill:#e08b45}}.one{{stroke:#999}}}}</style>\n",
        escaped(heading)
    );
    let one = at(1.0);
    let _ = writeln!(
        svg,
        "<text class=\"dim\" x=\"{one:.1}\" y=\"14\" text-anchor=\"middle\">1 = level with floor or peer</text>\n<line class=\"one\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"20\" y2=\"{:.0}\"/>",
        height - 8.0
    );
    for (row, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let (from, to) = (one.min(at(bar.ratio)), one.max(at(bar.ratio)));
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text><rect class=\"bar\" x=\"{from:.1}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"14\" rx=\"2\"/><text x=\"{:.0}\" y=\"{:.0}\">{}x</text><text class=\"dim\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
            LABELS - 8.0,
            y + 11.0,
            escaped(&shortened(&bar.figure, 62)),
            (to - from).max(1.0),
            WIDTH - GOALS + 6.0,
            y + 11.0,
            bar.ratio,
            WIDTH - GOALS + 56.0,
            y + 11.0,
            escaped(&shortened(&bar.goal, 28)),
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn bars(markdown: &str) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut columns: Option<(usize, Option<usize>)> = None;
    for line in markdown.lines() {
        if !line.starts_with('|') {
            columns = None;
            continue;
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let Some((ratio, goal)) = columns else {
            let place = |names: &[&str]| cells.iter().position(|cell| names.contains(cell));
            columns = place(&["ratio", "better by"]).map(|ratio| (ratio, place(&["goal"])));
            continue;
        };
        let value = cells.get(ratio).and_then(|cell| cell.trim_end_matches('x').parse::<f64>().ok());
        if let (Some(ratio), Some(figure)) = (value.filter(|value| *value > 0.0), cells.first()) {
            let goal = goal.and_then(|goal| cells.get(goal)).map(|goal| format!("goal: {goal}"));
            bars.push(Bar {
                figure: (*figure).to_owned(),
                ratio,
                goal: goal.filter(|goal| goal != "goal: ").unwrap_or_default(),
            });
        }
    }
    bars
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most - 1).collect();
    format!("{}…", kept.trim_end())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Bar, bars, section};

    const TABLE: &str = "| figure | ours | compared with | ratio | goal |\n| --- | --- | --- | --- | --- |\n| a <b> | 1 | 2 | 0.5 | at most 1 |\n| memory | 15 MiB |  |  | under 20 |\n";

    #[test]
    fn rows_with_a_ratio_become_bars() {
        let bar = Bar { figure: "a <b>".to_owned(), ratio: 0.5, goal: "goal: at most 1".to_owned() };
        assert_eq!(bars(TABLE), [bar]);
        assert_eq!(bars("| figure | better by |\n|---|---|\n| puts | 1.37x |\n").len(), 1);
    }

    #[test]
    fn names_never_become_markup() {
        let svg = section("Puts & gets", TABLE).expect("a picture");
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("Puts &amp; gets"));
        assert_eq!(section("none", "no table"), None);
    }
}
