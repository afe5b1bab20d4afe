//! Questions of clients: lines of text, parsed according to BIRD's grammar.
//!
//! Clients expand abbreviations before sending, so words are complete here. Filters in questions are a language of
//! their own, which none of Calico's tools uses; they are refused by name.

use ipnet::IpNet;
use std::net::IpAddr;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// An empty line, or a setting of the client's own display.
    Nothing,
    /// `restrict`: only allows queries from here on, which is all there is anyway.
    Restrict,
    /// `show status`
    Status,
    /// `show memory`
    Memory,
    /// `show interfaces [summary]`
    Interfaces {
        /// One line per interface.
        summary: bool,
    },
    /// `show protocols [all] [NAME]`
    Protocols {
        /// With details.
        all: bool,
        /// Only this one, or those that match a pattern with `*` and `?`.
        name: Option<String>,
    },
    /// `show route ...`
    Routes(RouteQuestion),
}

/// A selection of routes, and the level of detail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteQuestion {
    /// Only to this destination.
    pub destination: Option<Destination>,
    /// Only from this protocol.
    pub protocol: Option<String>,
    /// As announced to this protocol.
    pub export: Option<String>,
    /// Best routes that are not announced to this protocol.
    pub noexport: Option<String>,
    /// Only the best route to each destination.
    pub primary: bool,
    /// With attributes.
    pub all: bool,
    /// Only the number of routes.
    pub count: bool,
}

/// How destinations are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// This network itself.
    Exact(IpNet),
    /// The most specific network that contains this one.
    For(IpNet),
    /// Networks inside this one.
    In(IpNet),
}

/// Why a line is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// BIRD's code: 8xxx for runtime errors, 9xxx for invalid lines.
    pub code: u16,
    /// The text.
    pub message: String,
}

impl Refusal {
    fn syntax(problem: &str) -> Self {
        Self { code: 9001, message: format!("syntax error, {problem}") }
    }

    fn not_here(word: &str) -> Self {
        let message = format!("{word}: not available, this speaker is configured by the datastore");
        Self { code: 8002, message }
    }
}

impl Question {
    /// Parses a line.
    ///
    /// # Errors
    /// When it is not a question, or one that is not answered here.
    pub fn parse(line: &str) -> Result<Self, Refusal> {
        let mut words = line.split_whitespace();
        match words.next() {
            None => Ok(Self::Nothing),
            Some("echo") => Ok(Self::Nothing),
            Some("restrict") => end(words, Self::Restrict),
            Some("show") => Self::show(words),
            Some(
                word @ ("configure" | "enable" | "disable" | "restart" | "reload" | "down" | "debug" | "dump"
                | "mrtdump" | "timeformat" | "graceful" | "eval" | "create" | "delete" | "add"),
            ) => Err(Refusal::not_here(word)),
            Some(word) => Err(Refusal::syntax(&format!("unexpected '{word}'"))),
        }
    }

    fn show<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Self, Refusal> {
        match words.next() {
            Some("status") => end(words, Self::Status),
            Some("memory") => end(words, Self::Memory),
            Some("interfaces") => match words.next() {
                None => Ok(Self::Interfaces { summary: false }),
                Some("summary") => end(words, Self::Interfaces { summary: true }),
                Some(word) => Err(Refusal::syntax(&format!("unexpected '{word}'"))),
            },
            Some("protocols") => {
                let (mut all, mut name) = (false, None);
                for word in words {
                    match word {
                        "all" if !all => all = true,
                        word if name.is_none() => name = Some(unquoted(word)),
                        word => return Err(Refusal::syntax(&format!("unexpected '{word}'"))),
                    }
                }
                Ok(Self::Protocols { all, name })
            }
            Some("route") => RouteQuestion::parse(words).map(Self::Routes),
            Some(word @ ("symbols" | "static" | "bfd" | "ospf" | "rip" | "roa" | "babel")) => {
                Err(Refusal { code: 8003, message: format!("show {word}: no such protocol runs here") })
            }
            Some(word) => Err(Refusal::syntax(&format!("unexpected '{word}'"))),
            None => Err(Refusal::syntax("unexpected end")),
        }
    }
}

impl RouteQuestion {
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, Refusal> {
        let mut question = Self::default();
        let mut words = words;
        while let Some(word) = words.next() {
            let mut name = |of: &str| {
                let found = words.next().map(unquoted);
                found.ok_or_else(|| Refusal::syntax(&format!("'{of}' needs a name")))
            };
            match word {
                "all" => question.all = true,
                "primary" => question.primary = true,
                "count" | "stats" => question.count = true,
                "protocol" => question.protocol = Some(name(word)?),
                "export" | "preexport" => question.export = Some(name(word)?),
                "noexport" => question.noexport = Some(name(word)?),
                "table" => {
                    let table = name(word)?;
                    if !matches!(table.as_str(), "master" | "master4" | "master6") {
                        return Err(Refusal { code: 9002, message: format!("{table} is not a table") });
                    }
                }
                "for" => question.destination = Some(Destination::For(network(&name(word)?)?)),
                "in" => question.destination = Some(Destination::In(network(&name(word)?)?)),
                "where" | "filter" | "filtered" => {
                    let message = format!("'{word}' is not available here");
                    return Err(Refusal { code: 9001, message });
                }
                word if question.destination.is_none()
                    && word.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':') =>
                {
                    question.destination = Some(Destination::Exact(network(word)?));
                }
                word => return Err(Refusal::syntax(&format!("unexpected '{word}'"))),
            }
        }
        Ok(question)
    }
}

fn end<'a>(mut words: impl Iterator<Item = &'a str>, question: Question) -> Result<Question, Refusal> {
    match words.next() {
        None => Ok(question),
        Some(word) => Err(Refusal::syntax(&format!("unexpected '{word}'"))),
    }
}

fn unquoted(word: &str) -> String {
    word.trim_matches(['\'', '"']).to_owned()
}

fn network(word: &str) -> Result<IpNet, Refusal> {
    let address = || word.parse::<IpAddr>().map(IpNet::from).ok();
    let network = word.parse::<IpNet>().ok().or_else(address);
    network.map(|net| net.trunc()).ok_or_else(|| Refusal::syntax(&format!("unexpected '{word}'")))
}
