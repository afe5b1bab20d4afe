//! Prints flows: one line each, in columns, or every field on a line.

use crate::args::Format;
use crate::flow::{self, Flow};
use crate::text::{bytes, clean, count, table};
use crate::{json, time};
use flows::{Action, Counters, PolicyHit};

/// How to print.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The output format.
    pub format: Format,
    /// Whether to print every policy that was evaluated.
    pub all_policies: bool,
    /// Whether to use colours.
    pub colours: bool,
}

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const RESET: &str = "\u{1b}[0m";

/// The columns of a table.
const HEADER: [&str; 7] = ["TIME", "REPORTER", "FLOW", "VERDICT", "DECIDED BY", "PACKETS", "BYTES"];

/// A list of flows.
#[must_use]
pub fn list(flows: &[Flow], style: Style) -> String {
    if style.format == Format::Table {
        let rows: Vec<Vec<String>> = flows.iter().map(|flow| row(flow, style)).collect();
        return paint_table(&table(&HEADER, &rows), style);
    }
    flows.iter().map(|flow| one(flow, style, false)).collect()
}

/// One flow of a stream.
#[must_use]
pub fn one(flow: &Flow, style: Style, corrects: bool) -> String {
    match style.format {
        Format::Json => format!("{}\n", json::write(flow, corrects)),
        Format::Dict => dict(flow, style),
        // The final widths are unknown here: a row has widths that fit most lines.
        Format::Table => {
            let cells = row(flow, style);
            let widths = [20, 3, 50, 7, 60, 8, 8];
            let line: Vec<String> =
                cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            paint_table(&format!("{}\n", line.join("   ").trim_end()), style)
        }
        Format::Compact => compact(flow, style, corrects),
    }
}

fn compact(flow: &Flow, style: Style, corrects: bool) -> String {
    let mut line = format!(
        "{} {} {}: {} {}",
        time::show(flow.start),
        flow.key.reporter.as_str().to_lowercase(),
        clean(&flow::connection_text(flow)),
        verdict(flow.key.action, style),
        clean(&decided_by(flow)),
    );
    if let Some(would) = flow::would(flow) {
        let by = flow.key.trace.pending.last().map(flow::hit_text).unwrap_or_default();
        line.push_str(&format!("; would be {} by {}", verdict(would, style), clean(&by)));
    }
    line.push_str(&format!("; {}", figures(&flow.counters)));
    if style.all_policies {
        line.push_str(&format!(" [{}]", clean(&policies(flow).join(", "))));
    }
    if corrects {
        line.push_str(" (again, with later figures)");
    }
    line.push('\n');
    line
}

fn row(flow: &Flow, style: Style) -> Vec<String> {
    let plain = Style { colours: false, ..style };
    let mut decided = flow.key.trace.enforced.last().map(flow::hit_text).unwrap_or_default();
    if let Some(would) = flow::would(flow) {
        let by = flow.key.trace.pending.last().map(flow::hit_text).unwrap_or_default();
        decided.push_str(&format!("; would be {} by {by}", verdict(would, plain)));
    }
    if style.all_policies {
        decided.push_str(&format!(" [{}]", policies(flow).join(", ")));
    }
    vec![
        time::show(flow.start),
        flow.key.reporter.as_str().to_lowercase(),
        clean(&flow::connection_text(flow)),
        verdict(flow.key.action, plain),
        clean(&decided),
        flow::packets(&flow.counters).to_string(),
        bytes(flow::bytes(&flow.counters)),
    ]
}

fn dict(flow: &Flow, style: Style) -> String {
    let key = &flow.key;
    let labels = |labels: &flows::Labels| labels.texts().join(", ");
    let mut out = "------------\n".to_owned();
    let mut field = |name: &str, value: String| {
        if !value.is_empty() {
            out.push_str(&format!("{name:>12}: {value}\n"));
        }
    };
    field("TIME", format!("{} to {}", time::show(flow.start), time::show(flow.end)));
    field("REPORTER", key.reporter.as_str().to_lowercase());
    field("SOURCE", clean(&flow::peer_text(&key.source)));
    field("LABELS", clean(&labels(&flow.source_labels)));
    field("DESTINATION", clean(&flow::peer_text(&key.dest)));
    field("LABELS", clean(&labels(&flow.dest_labels)));
    if !matches!(&*key.service.name, "" | "-") {
        field(
            "SERVICE",
            clean(&format!("{}/{} {}", key.service.namespace, key.service.name, key.service.port_name)),
        );
    }
    let port =
        if flow::has_ports(&key.protocol) { format!(" port {}", key.dest_port) } else { String::new() };
    field("TRAFFIC", clean(&format!("{}{port}", key.protocol)));
    field("VERDICT", verdict(key.action, style));
    for hit in &key.trace.enforced {
        field("ENFORCED", clean(&format!("{} by {}", verb(hit), flow::hit_text(hit))));
    }
    if key.trace.pending != key.trace.enforced {
        for hit in &key.trace.pending {
            field("PENDING", clean(&format!("{} by {}", verb(hit), flow::hit_text(hit))));
        }
    }
    let counters = &flow.counters;
    field("PACKETS", format!("{} in, {} out", counters.packets_in, counters.packets_out));
    field("BYTES", format!("{} in, {} out", counters.bytes_in, counters.bytes_out));
    field(
        "CONNECTIONS",
        format!("{} started, {} ended, {} live", counters.started, counters.completed, counters.live),
    );
    out
}

fn verb(hit: &PolicyHit) -> &'static str {
    match hit.action {
        Action::Allow => "allowed",
        Action::Deny => "denied",
        Action::Pass => "passed on",
        Action::Unspecified => "seen",
    }
}

fn policies(flow: &Flow) -> Vec<String> {
    flow.key.trace.enforced.iter().map(|hit| format!("{} {}", verb(hit), flow::hit_text(hit))).collect()
}

fn decided_by(flow: &Flow) -> String {
    flow.key.trace.enforced.last().map(|hit| format!("by {}", flow::hit_text(hit))).unwrap_or_default()
}

fn figures(counters: &Counters) -> String {
    format!("{}, {}", count(flow::packets(counters), "packet"), bytes(flow::bytes(counters)))
}

fn verdict(action: Action, style: Style) -> String {
    let (word, colour) = match action {
        Action::Allow => ("ALLOWED", GREEN),
        Action::Deny => ("DENIED", RED),
        Action::Pass => ("PASSED", YELLOW),
        Action::Unspecified => ("UNKNOWN", YELLOW),
    };
    if style.colours { format!("{colour}{word}{RESET}") } else { word.to_owned() }
}

/// Colours are added afterwards, so that columns stay aligned.
fn paint_table(text: &str, style: Style) -> String {
    if !style.colours {
        return text.to_owned();
    }
    text.replace(" ALLOWED ", &format!(" {GREEN}ALLOWED{RESET} "))
        .replace(" DENIED ", &format!(" {RED}DENIED{RESET} "))
}
