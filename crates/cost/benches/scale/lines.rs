//! Lines on two logarithmic axes as plain SVG: a line at 45 degrees grows with the cluster, a horizontal line does not.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 30.0;
const COLOURS: [&str; 3] = ["#c8702a", "#3a7ca5", "#6a994e"];

/// A line with its points.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A picture of all lines.
pub(crate) fn chart(title: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let ends = |pick: fn(&(f64, f64)) -> f64| {
        let values = points().map(pick).filter(|value| *value > 0.0).map(f64::log10);
        values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (left, right) = ends(|point| point.0);
    let (low, high) = ends(|point| point.1);
    let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
    let x = |value: f64| LEFT + (value.log10() - left) / (right - left) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - (value.log10() - low) / (high - low) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n\
         <style>text{{fill:#222}}.grid{{stroke:#bbb;stroke-width:.5}}@media(prefers-color-scheme:dark){{text{{fill:#ddd}}.grid{{stroke:#555}}}}</style>\n\
         <text x=\"{LEFT}\" y=\"16\">{title}</text>\n"
    );
    let mut power = low;
    while power <= high {
        let (value, place) = (10_f64.powf(power), y(10_f64.powf(power)));
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{place:.1}\" y2=\"{place:.1}\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            place + 4.0
        );
        power += 1.0;
    }
    for (nodes, _) in lines.first().map(|line| &line.points[..]).unwrap_or_default() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{nodes}</text>",
            x(*nodes),
            HEIGHT - 10.0
        );
    }
    let mut names: Vec<(f64, &str, &str)> = Vec::new();
    for (line, colour) in lines.iter().zip(COLOURS) {
        let path: String = line.points.iter().fold(String::new(), |path, (nodes, value)| {
            let command = if path.is_empty() { 'M' } else { 'L' };
            format!("{path}{command}{:.1} {:.1}", x(*nodes), y(value.max(10_f64.powf(low))))
        });
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        let last = line.points.last().map_or(TOP, |(_, value)| y(value.max(10_f64.powf(low))));
        names.push((last, line.name, colour));
    }
    // Labels are kept a line's height apart.
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut lowest = f64::NEG_INFINITY;
    for (place, name, colour) in names {
        lowest = place.max(lowest + 15.0);
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" style=\"fill:{colour}\">{name}</text>",
            WIDTH - RIGHT + 8.0,
            lowest + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}
