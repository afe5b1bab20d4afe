//! The matrix as a grid for a terminal: `+` reached, a number refused (and the reason below the grid), `!` not as
//! expected.
//!
//! A grid that is wider than the terminal is folded: the receivers are split into several bands, one below the other,
//! that end with a namespace if that wastes little, and otherwise with a pod.

use super::{Cell, Matrix, Receiver, letter};
use crate::called::count;
use crate::probe::Protocol;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

/// The width before a sender's name.
const MARGIN: usize = 5;
/// The width between the last cell and the node's name.
const GAP: usize = 3;

impl Matrix {
    /// The grid, however wide it becomes.
    #[must_use]
    pub(crate) fn to_text(&self, colours: bool) -> String {
        self.to_text_within(colours, None)
    }

    /// The grid, in lines of at most this many characters if cells fit at all.
    #[must_use]
    pub(crate) fn to_text_within(&self, colours: bool, width: Option<usize>) -> String {
        if self.receivers.is_empty() {
            return "no pods\n".to_owned();
        }
        let reasons = self.reasons();
        let grid = Grid::of(self, &reasons, colours);
        let mut out = String::new();
        for (number, band) in grid.bands(width).into_iter().enumerate() {
            if number > 0 {
                out.push('\n');
            }
            grid.write(band, &mut out);
        }
        self.write_legend(&reasons, &mut out);
        out
    }

    fn write_legend(&self, reasons: &[String], out: &mut String) {
        let (reached, refused, wrong) = self.counts();
        let because = if refused > 0 { ", because:" } else { "" };
        // Writing to a string cannot fail.
        let _ =
            write!(out, "\n     + reached ({reached})   . itself   number: refused ({refused}){because}\n");
        for (index, reason) in reasons.iter().enumerate() {
            let _ = writeln!(out, "{:>3}  {reason}", index + 1);
        }
        let mut signs = Vec::new();
        if self.has_both_protocols() {
            signs.push("u: UDP, others TCP");
        }
        if self.has_both_versions() {
            signs.push("v4, v6: the version of IP");
        }
        if !signs.is_empty() {
            let _ = writeln!(out, "     {}", signs.join("   "));
        }
        if wrong > 0 {
            let verb = if wrong == 1 { "is" } else { "are" };
            let _ = writeln!(out, "\n     {} {verb} not as expected (!):", count(wrong, "cell"));
            for pod in &self.ended {
                let _ = writeln!(out, "     the responder of {pod} ended: it cannot be reached");
            }
            for line in self.disagreements() {
                let _ = writeln!(out, "     {line}");
            }
        }
    }

    fn has_both_protocols(&self) -> bool {
        self.receivers.iter().any(|other| other.protocol != self.receivers[0].protocol)
    }

    fn has_both_versions(&self) -> bool {
        self.receivers.iter().any(|other| other.address.is_ipv4() != self.receivers[0].address.is_ipv4())
    }

    /// The heading of a column.
    fn head(&self, receiver: &Receiver) -> String {
        let protocol = if self.has_both_protocols() && receiver.protocol == Protocol::Udp { "u" } else { "" };
        let version = match (self.has_both_versions(), receiver.address.is_ipv4()) {
            (false, _) => "",
            (true, true) => "v4",
            (true, false) => "v6",
        };
        format!(":{}{protocol}{version}", receiver.port)
    }
}

/// The parts of the lines.
struct Grid<'a> {
    matrix: &'a Matrix,
    heads: Vec<String>,
    letters: Vec<String>,
    numbers: BTreeMap<&'a str, usize>,
    name_width: usize,
    cell_width: usize,
    node_width: usize,
    colours: bool,
}

impl<'a> Grid<'a> {
    fn of(matrix: &'a Matrix, reasons: &'a [String], colours: bool) -> Self {
        let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
        let heads: Vec<String> = matrix.receivers.iter().map(|receiver| matrix.head(receiver)).collect();
        Self {
            name_width: longest(&mut matrix.senders.iter().map(|sender| sender.pod.chars().count())).max(4),
            cell_width: longest(&mut heads.iter().map(String::len)).max(3),
            node_width: longest(&mut matrix.senders.iter().map(|sender| sender.node.chars().count())),
            numbers: reasons.iter().enumerate().map(|(index, reason)| (reason.as_str(), index + 1)).collect(),
            letters: matrix.letters(),
            heads,
            matrix,
            colours,
        }
    }

    /// The columns of each band.
    fn bands(&self, width: Option<usize>) -> Vec<Range<usize>> {
        let receivers = &self.matrix.receivers;
        let room = width.map_or(usize::MAX, |width| {
            width.saturating_sub(MARGIN + self.name_width + GAP + self.node_width) / (self.cell_width + 1)
        });
        let namespace = |index: usize| receivers[index].pod.split('/').next();
        let mut bands = Vec::new();
        let mut start = 0;
        while start < receivers.len() {
            let most = start.saturating_add(room.max(1));
            if most >= receivers.len() {
                bands.push(start..receivers.len());
                break;
            }
            // The possible ends of this band: before a column of another pod, preferably of another namespace.
            let last = |fits: &dyn Fn(usize) -> bool| (start + 1..=most).rev().find(|end| fits(*end));
            let pod = last(&|end| receivers[end].pod != receivers[end - 1].pod);
            let other = last(&|end| namespace(end) != namespace(end - 1));
            let end = match (other, pod) {
                (Some(other), _) if (other - start) * 2 >= room => other,
                (_, Some(pod)) => pod,
                // A single pod has more columns than fit into a line.
                _ => most,
            };
            bands.push(start..end);
            start = end;
        }
        bands
    }

    fn write(&self, band: Range<usize>, out: &mut String) {
        let (name_width, cell_width) = (self.name_width, self.cell_width);
        // Writing to a string cannot fail.
        let _ = write!(out, "{:MARGIN$}{:name_width$}", "", "to");
        for letter in &self.letters[band.clone()] {
            let _ = write!(out, " {letter:>cell_width$}");
        }
        let _ = write!(out, "\n{:MARGIN$}{:name_width$}", "", "from");
        for head in &self.heads[band.clone()] {
            let _ = write!(out, " {head:>cell_width$}");
        }
        out.push('\n');
        for (index, (sender, row)) in self.matrix.senders.iter().zip(&self.matrix.cells).enumerate() {
            let _ = write!(out, "{:>3}  {:name_width$}", letter(index), sender.pod);
            for cell in &row[band.clone()] {
                let padded = format!("{:>cell_width$}", self.sign(cell));
                let _ = write!(out, " {}", self.paint(&padded, colour(cell)));
            }
            let _ = writeln!(out, "{:GAP$}{}", "", self.paint(&sender.node, "90"));
        }
    }

    fn sign(&self, cell: &Cell) -> String {
        match cell.reached {
            None => ".".to_owned(),
            Some(true) if cell.agrees() => "+".to_owned(),
            Some(true) => "+!".to_owned(),
            Some(false) if cell.agrees() => {
                self.numbers.get(cell.reason().as_str()).copied().unwrap_or_default().to_string()
            }
            Some(false) => "-!".to_owned(),
        }
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn colour(cell: &Cell) -> &'static str {
    match cell.reached {
        _ if !cell.agrees() => "1;35",
        None => "90",
        Some(true) => "32",
        Some(false) => "31",
    }
}
