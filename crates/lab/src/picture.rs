//! A lab as a picture: one self-contained SVG file, readable on light and dark backgrounds. Pure.
//!
//! ```text
//!   router │── subnet 0 ──┬─────────┬──      each subnet is a band, its nodes side by side, their pods inside
//!          │            node1     node2
//!          │              ┊─────────┊──┊     below them, dashed, the tunnels
//!          │── subnet 1 ──┬──          ┊
//!          │            node3          ┊
//!          │              ┊────────────┊
//! ```
//!
//! [`layout`] computes all positions, so that tests can check that nothing overlaps; this module turns them into text.
//! The font has a fixed width, and boxes are as wide as their contents.

mod layout;

#[cfg(test)]
mod tests;

use crate::state::State;
use layout::{Box, Drawing, Line, Text};
use std::fmt::Write as _;

const STYLE: &str = "
  svg { color-scheme: light dark; font: 13px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; }
  .ground { fill: #ffffff; } text { fill: #1c2430; }
  .title { font-weight: 700; } .quiet { fill: #5b6675; }
  .router { fill: #eef1f5; stroke: #5b6675; } .subnet { fill: #f6f8fa; stroke: #c3cad3; }
  .node { fill: #e3effb; stroke: #2f6db0; } .pod { fill: #ffffff; stroke: #8aa9c9; }
  .wire { stroke: #5b6675; stroke-width: 2; } .tunnel { stroke: #b3541e; stroke-width: 2; stroke-dasharray: 6 4; }
  text.tunnel { fill: #b3541e; stroke: none; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #14181f; } text { fill: #e6ebf2; } .quiet { fill: #9aa6b5; }
    .router { fill: #232a34; stroke: #9aa6b5; } .subnet { fill: #1a2029; stroke: #3a4452; }
    .node { fill: #1d3148; stroke: #6fa8e0; } .pod { fill: #14181f; stroke: #4d6a88; }
    .wire { stroke: #9aa6b5; } .tunnel { stroke: #f0975c; } text.tunnel { fill: #f0975c; }
  }
";

/// The picture of a lab.
#[must_use]
pub(crate) fn svg(state: &State) -> String {
    let drawing = layout::of(state);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n\
         <title>{2}</title>\n<style>{STYLE}</style>\n<rect class=\"ground\" width=\"{0}\" height=\"{1}\"/>\n",
        drawing.width,
        drawing.height,
        escape(&drawing.title)
    );
    let Drawing { boxes, lines, texts, .. } = &drawing;
    for Box { class, x, y, width, height } in boxes {
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>"
        );
    }
    for Line { class, from, to } in lines {
        let _ = writeln!(
            out,
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            from.0, from.1, to.0, to.1
        );
    }
    for Text { class, x, y, text } in texts {
        let _ = writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(text));
    }
    out.push_str("</svg>\n");
    out
}

/// The text with all markup escaped.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
