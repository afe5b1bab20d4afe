//! The positions of everything in a picture, in whole pixels; the same lab always gives the same picture.

use crate::called::count;
use crate::state::{PodState, State};
use crate::status::word;
use crate::topology::{Encap, Node, Topology};
use std::net::IpAddr;

/// The margin around everything.
const MARGIN: usize = 20;
/// The gap between boxes.
const GAP: usize = 14;
/// The distance between a box and its contents.
const INSET: usize = 10;
/// The distance between lines of text.
const LINE: usize = 18;
/// The width of a character, rounded up.
const CHARACTER: usize = 8;
/// The space for a wire or a tunnel and its stubs.
const WIRE: usize = 26;
/// The maximum number of nodes side by side.
const MOST_BESIDE: usize = 4;

/// A rectangle.
pub(super) struct Box {
    pub(super) class: &'static str,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

pub(super) struct Line {
    pub(super) class: &'static str,
    pub(super) from: (usize, usize),
    pub(super) to: (usize, usize),
}

/// Text; `y` is its base line.
pub(super) struct Text {
    pub(super) class: &'static str,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) text: String,
}

/// The whole picture.
#[derive(Default)]
pub(super) struct Drawing {
    pub(super) title: String,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) boxes: Vec<Box>,
    pub(super) lines: Vec<Line>,
    pub(super) texts: Vec<Text>,
}

/// The width of a text.
pub(super) fn width_of(text: &str) -> usize {
    text.chars().count() * CHARACTER
}

impl Drawing {
    fn text(&mut self, class: &'static str, x: usize, y: usize, text: &str) {
        self.texts.push(Text { class, x, y, text: text.to_owned() });
        self.width = self.width.max(x + width_of(text) + MARGIN);
    }

    fn line(&mut self, class: &'static str, from: (usize, usize), to: (usize, usize)) {
        self.lines.push(Line { class, from, to });
    }

    fn add_box(&mut self, class: &'static str, x: usize, y: usize, width: usize, height: usize) {
        self.boxes.push(Box { class, x, y, width, height });
        self.width = self.width.max(x + width + MARGIN);
    }
}

/// A node and the lines of text that it and its pods have.
struct Card<'a> {
    node: &'a Node,
    head: Vec<String>,
    pods: Vec<Vec<String>>,
}

impl Card<'_> {
    fn width(&self) -> usize {
        let inner = self.pods.iter().flatten().map(|text| width_of(text) + 2 * INSET).max().unwrap_or(0);
        let own = self.head.iter().map(|text| width_of(text)).max().unwrap_or(0);
        inner.max(own) + 2 * INSET
    }

    fn height(&self) -> usize {
        let pods: usize = self.pods.iter().map(|lines| pod_height(lines) + GAP / 2).sum();
        INSET + self.head.len() * LINE + pods + INSET
    }
}

fn pod_height(lines: &[String]) -> usize {
    lines.len() * LINE + INSET
}

/// Lays out a lab.
pub(super) fn of(state: &State) -> Drawing {
    let topology = &state.topology;
    let cards: Vec<Card<'_>> = topology.nodes.iter().map(|node| card(node, state)).collect();
    let card_width = cards.iter().map(Card::width).max().unwrap_or(0);
    let tunnels = tunnel_name(topology);
    let mut drawing = Drawing { title: title(state), ..Drawing::default() };
    let text = drawing.title.clone();
    drawing.text("title", MARGIN, MARGIN + LINE, &text);
    drawing.text("quiet", MARGIN, MARGIN + 2 * LINE, &ground(topology, tunnels));

    let router_lines = router_lines(topology);
    let router_width =
        router_lines.iter().flatten().map(|text| width_of(text)).max().unwrap_or(0) + 2 * INSET;
    let bands_x = MARGIN + router_width + 2 * GAP;
    let top = MARGIN + 3 * LINE;
    let beside = cards_beside(topology);
    let names = (0..topology.subnets).map(|subnet| width_of(&subnet_name(topology, subnet)));
    let band_width = (INSET + beside * (card_width + GAP) + WIRE).max(names.max().unwrap_or(0) + 2 * INSET);
    let spine = bands_x + band_width - INSET;
    let mut y = top;
    let mut stubs: Vec<usize> = Vec::new();
    for (subnet, lines) in router_lines.iter().enumerate() {
        let band = y;
        let own: Vec<&Card<'_>> = cards.iter().filter(|card| card.node.subnet == subnet).collect();
        drawing.text("quiet", bands_x + INSET, band + LINE, &subnet_name(topology, subnet));
        y += LINE + INSET / 2;
        let first_wire = y + WIRE / 2;
        // The router's wire reaches the first row of a band; later rows are connected by a wire down its left side.
        drawing.line("wire", (MARGIN + router_width, first_wire), (bands_x + INSET / 2, first_wire));
        let mut last_wire = first_wire;
        for row in own.chunks(MOST_BESIDE) {
            let wire = y + WIRE / 2;
            last_wire = wire;
            let right = bands_x + INSET + (row.len() - 1) * (card_width + GAP) + card_width / 2;
            drawing.line("wire", (bands_x + INSET / 2, wire), (right, wire));
            y += WIRE;
            let height = row.iter().map(|card| card.height()).max().unwrap_or(0);
            for (column, card) in row.iter().enumerate() {
                let x = bands_x + INSET + column * (card_width + GAP);
                drawing.line("wire", (x + card_width / 2, wire), (x + card_width / 2, y));
                draw(card, x, y, card_width, height, &mut drawing);
            }
            y += height;
            if tunnels.is_some() {
                let tunnel = y + WIRE / 2;
                for column in 0..row.len() {
                    let x = bands_x + INSET + column * (card_width + GAP) + card_width / 2;
                    drawing.line("tunnel", (x, y), (x, tunnel));
                }
                drawing.line("tunnel", (bands_x + INSET + card_width / 2, tunnel), (spine, tunnel));
                stubs.push(tunnel);
                y += WIRE;
            }
            y += INSET / 2;
        }
        if last_wire > first_wire {
            drawing.line("wire", (bands_x + INSET / 2, first_wire), (bands_x + INSET / 2, last_wire));
        }
        drawing.add_box("subnet", bands_x, band, band_width, y - band);
        for (number, text) in lines.iter().enumerate() {
            drawing.text("quiet", MARGIN + INSET, first_wire + LINE * (number + 1), text);
        }
        y += GAP;
    }
    let bottom = y - GAP;
    drawing.add_box("router", MARGIN, top, router_width, bottom - top);
    drawing.text("", MARGIN + INSET, top + LINE, "router");
    if let (Some(first), Some(last)) = (stubs.first(), stubs.last()) {
        drawing.line("tunnel", (spine, *first), (spine, *last));
    }
    drawing.height = bottom + MARGIN;
    // Outer shapes are drawn before inner ones.
    drawing
        .boxes
        .sort_by_key(|it| ["router", "subnet", "node", "pod"].iter().position(|class| *class == it.class));
    drawing
}

fn draw(card: &Card<'_>, x: usize, y: usize, width: usize, height: usize, drawing: &mut Drawing) {
    drawing.add_box("node", x, y, width, height);
    let mut line = y + INSET / 2;
    for (number, text) in card.head.iter().enumerate() {
        line += LINE;
        drawing.text(if number == 0 { "title" } else { "quiet" }, x + INSET, line - 2, text);
    }
    let mut top = line + INSET / 2;
    for lines in &card.pods {
        drawing.add_box("pod", x + INSET, top, width - 2 * INSET, pod_height(lines));
        for (number, text) in lines.iter().enumerate() {
            let class = if number == 0 { "" } else { "quiet" };
            drawing.text(class, x + 2 * INSET, top + LINE * (number + 1) - 2, text);
        }
        top += pod_height(lines) + GAP / 2;
    }
}

fn card<'a>(node: &'a Node, state: &State) -> Card<'a> {
    let mut head = vec![node.name.clone()];
    head.extend([node.v4, node.v6].into_iter().flatten().map(|address| address.to_string()));
    let pods: Vec<&PodState> = state.pods.values().filter(|pod| pod.pod.node == node.name).collect();
    let lines = |pod: &&PodState| {
        let ports: Vec<String> = pod.pod.ports.iter().map(ToString::to_string).collect();
        let mut lines = vec![format!("{} :{}", pod.pod.full_name(), ports.join(","))];
        lines.extend(pod.addresses.iter().map(IpAddr::to_string));
        lines
    };
    Card { node, head, pods: pods.iter().map(lines).collect() }
}

fn cards_beside(topology: &Topology) -> usize {
    let in_subnet = |subnet: usize| topology.nodes.iter().filter(|node| node.subnet == subnet).count();
    (0..topology.subnets).map(in_subnet).max().unwrap_or(1).clamp(1, MOST_BESIDE)
}

fn title(state: &State) -> String {
    let topology = &state.topology;
    format!(
        "lab '{}': {} in {}, {}",
        topology.name,
        count(topology.nodes.len(), "node"),
        count(topology.subnets, "subnet"),
        count(state.pods.len(), "pod")
    )
}

/// The kind of tunnel between nodes, if there is one.
fn tunnel_name(topology: &Topology) -> Option<&'static str> {
    match topology.encap {
        _ if topology.nodes.len() < 2 => None,
        Encap::Vxlan => Some("VXLAN between all nodes"),
        Encap::Ipip => Some("IP in IP between all nodes"),
        Encap::CrossSubnet if topology.subnets > 1 => Some("VXLAN between subnets"),
        Encap::CrossSubnet | Encap::None => None,
    }
}

fn ground(topology: &Topology, tunnels: Option<&str>) -> String {
    let travel = tunnels.map_or("no tunnels".to_owned(), |name| format!("- - {name}"));
    format!(
        "{travel}; pods {}; dataplane {}; datastore {}",
        pod_ranges(topology),
        word(&topology.dataplane),
        word(&topology.datastore)
    )
}

fn pod_ranges(topology: &Topology) -> String {
    let mut ranges = Vec::new();
    if topology.families.has_v4() {
        ranges.push(topology.pod_cidr.to_string());
    }
    if topology.families.has_v6() {
        ranges.push(crate::settings::POD_RANGE_V6.to_owned());
    }
    ranges.join(", ")
}

fn subnet_name(topology: &Topology, subnet: usize) -> String {
    let ranges: Vec<String> =
        topology.router_addresses(subnet).iter().map(|address| address.trunc().to_string()).collect();
    format!("subnet {subnet}: {}", ranges.join(", "))
}

/// The router's addresses in each subnet.
fn router_lines(topology: &Topology) -> Vec<Vec<String>> {
    (0..topology.subnets)
        .map(|subnet| {
            topology.router_addresses(subnet).iter().map(|address| address.addr().to_string()).collect()
        })
        .collect()
}
