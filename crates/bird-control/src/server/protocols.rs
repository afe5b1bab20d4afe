//! `show protocols`, in the columns of BIRD 1.6.

use super::facts::{BgpFacts, ProtocolFacts, RouteCounts, Timer};
use super::text::Text;
use jiff::{SignedDuration, Timestamp};

/// From this age on the date is shown instead of the time.
const A_DAY: SignedDuration = SignedDuration::from_hours(20);

/// A time in the format of tables.
pub(super) fn since(now: Timestamp, at: Timestamp) -> String {
    let format = if now.duration_since(at) < A_DAY { "%H:%M:%S" } else { "%Y-%m-%d" };
    at.strftime(format).to_string()
}

pub(super) fn show(
    text: &mut Text,
    now: Timestamp,
    protocols: &[ProtocolFacts],
    all: bool,
    name: Option<&str>,
) {
    let is_pattern = name.is_some_and(|name| name.contains(['*', '?']));
    let wanted: Vec<&ProtocolFacts> = protocols
        .iter()
        .filter(|protocol| name.is_none_or(|name| matches(name.as_bytes(), protocol.name.as_bytes())))
        .collect();
    if let (Some(name), true) = (name, wanted.is_empty()) {
        return if is_pattern {
            text.end(8003, format_args!("No protocols match"));
        } else {
            text.end(9002, format_args!("{name} is not a protocol"));
        };
    }
    text.line(2002, format_args!("name     proto    table    state  since       info"));
    for protocol in wanted {
        let info = protocol.bgp.as_ref().map(info).unwrap_or_default();
        text.line(
            1002,
            format_args!(
                "{:<8} {:<8} {:<8} {:<5}  {:<10}  {info}",
                protocol.name,
                protocol.kind,
                "master",
                protocol.state,
                since(now, protocol.since)
            ),
        );
        if all {
            details(text, protocol);
        }
    }
    text.end(0, format_args!(""));
}

fn info(bgp: &BgpFacts) -> String {
    let error = bgp.last_error.as_deref().unwrap_or_default();
    format!("{:<14}{error}", bgp.state)
}

fn details(text: &mut Text, protocol: &ProtocolFacts) {
    text.line(1006, format_args!("  Preference:     {}", protocol.preference));
    text.line(1006, format_args!("  Input filter:   {}", protocol.input_filter));
    text.line(1006, format_args!("  Output filter:  {}", protocol.output_filter));
    if protocol.state != "down" {
        counts(text, &protocol.counts);
    }
    if let Some(bgp) = &protocol.bgp {
        session(text, bgp);
    }
    text.line(1006, format_args!(""));
}

fn counts(text: &mut Text, counts: &RouteCounts) {
    text.line(
        1006,
        format_args!(
            "  Routes:         {} imported, {} exported, {} preferred",
            counts.imported, counts.exported, counts.preferred
        ),
    );
    text.line(
        1006,
        format_args!("  Route change stats:     received   rejected   filtered    ignored   accepted"),
    );
    let [received, rejected, filtered, ignored, accepted] = counts.import_updates;
    text.line(
        1006,
        format_args!(
            "    Import updates:     {received:>10} {rejected:>10} {filtered:>10} {ignored:>10} {accepted:>10}"
        ),
    );
    let [received, rejected, ignored, accepted] = counts.import_withdraws;
    text.line(
        1006,
        format_args!(
            "    Import withdraws:   {received:>10} {rejected:>10}        --- {ignored:>10} {accepted:>10}"
        ),
    );
    let [received, rejected, filtered, accepted] = counts.export_updates;
    text.line(
        1006,
        format_args!(
            "    Export updates:     {received:>10} {rejected:>10} {filtered:>10}        --- {accepted:>10}"
        ),
    );
    let [received, accepted] = counts.export_withdraws;
    text.line(
        1006,
        format_args!(
            "    Export withdraws:   {received:>10}        ---        ---        --- {accepted:>10}"
        ),
    );
}

fn session(text: &mut Text, bgp: &BgpFacts) {
    text.line(1006, format_args!("  BGP state:          {}", bgp.state));
    let interface = bgp.interface.as_ref().map(|name| format!("%{name}")).unwrap_or_default();
    let timer = |timer: Timer| format!("{}/{}", timer.left, timer.total);
    let mut rows: Vec<(&str, String)> = vec![
        ("Neighbor address:", format!("{}{interface}", bgp.neighbor)),
        ("Neighbor AS:", bgp.neighbor_as.to_string()),
    ];
    if bgp.restarting {
        rows.push(("Neighbor graceful restart active", String::new()));
    }
    match &bgp.session {
        None => {
            rows.extend(bgp.error_wait.map(|wait| ("Error wait:", timer(wait))));
            rows.extend(bgp.connect_delay.map(|wait| ("Connect delay:", timer(wait))));
        }
        Some(up) => {
            rows.push(("Neighbor ID:", up.neighbor_id.to_string()));
            rows.push(("Neighbor caps:", up.neighbor_capabilities.join(" ")));
            rows.push(("Session:", up.properties.join(" ")));
            rows.push(("Source address:", up.source.to_string()));
            rows.extend(up.limit.map(|(most, now)| ("Route limit:", format!("{now}/{most}"))));
            rows.push(("Hold timer:", timer(up.hold)));
            rows.push(("Keepalive timer:", timer(up.keepalive)));
        }
    }
    rows.extend(bgp.last_error.clone().map(|error| ("Last error:", error)));
    for (title, value) in rows {
        let line = format!("    {title:<18}{value}");
        text.line(1006, format_args!("{}", line.trim_end()));
    }
}

/// Whether a name matches a pattern of `*` and `?`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches(rest, name) || name.split_first().is_some_and(|(_, shorter)| matches(pattern, shorter))
        }
        (Some((b'?', rest)), Some((_, shorter))) => matches(rest, shorter),
        (Some((one, rest)), Some((other, shorter))) if one == other => matches(rest, shorter),
        _ => false,
    }
}
