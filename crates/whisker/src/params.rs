//! The parameters of a request: Whisker's query strings, parsed as its backend does.
//!
//! `filters` is JSON that was URL-encoded before it became a parameter, so it is decoded twice; JSON that was encoded
//! only once is accepted, too. Unknown parameters are ignored, invalid ones refused.

use crate::source::{HintsQuery, ListQuery, SortBy, StreamQuery};
use flows::query::{Filter, HintType, Page, PolicyMatch, StringMatch};
use flows::{Action, PolicyKind, Reporter};
use serde::Deserialize;
use std::fmt::Display;

/// Why a request is refused; the text is sent to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadParameter(pub String);

/// The decoded parameters of a query string, in order.
pub(crate) struct Parameters(Vec<(String, String)>);

/// Decodes `%xx` and `+`.
///
/// # Errors
/// When a `%` is not followed by two hexadecimal digits, or the bytes are not UTF-8.
fn decoded(text: &str) -> Result<String, BadParameter> {
    let refuse = || BadParameter(format!("invalid URL escape in '{text}'"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
                rest = rest.get(2..).unwrap_or_default();
                digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(refuse)?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).map_err(|_| refuse())
}

impl Parameters {
    /// Parses a query string.
    ///
    /// # Errors
    /// When it cannot be decoded.
    pub(crate) fn read(query: Option<&str>) -> Result<Self, BadParameter> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let read = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(name)?, decoded(value)?))
        };
        Ok(Self(pairs.map(read).collect::<Result<_, _>>()?))
    }

    /// All values of a parameter.
    pub(crate) fn every<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a parameter, unless it is empty.
    #[must_use]
    pub(crate) fn first<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.every(name).next().filter(|value| !value.is_empty())
    }

    /// A number; the default if the parameter is missing.
    ///
    /// # Errors
    /// When the value is not a number.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T, BadParameter> {
        match self.first(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| bad(name, text, "is not a number in its range")),
        }
    }

    /// Whether a stream is requested.
    ///
    /// # Errors
    /// When the value is not a boolean.
    pub(crate) fn watch(&self) -> Result<bool, BadParameter> {
        match self.first("watch") {
            None => Ok(false),
            Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(text) => settings::kinds::go_bool(text).map_err(|reason| bad("watch", text, reason)),
        }
    }

    /// Parses a request for a list.
    ///
    /// # Errors
    /// When a parameter is invalid.
    pub(crate) fn list(&self) -> Result<ListQuery, BadParameter> {
        let sort = self.every("sortBy").map(sort_by).collect::<Result<_, _>>()?;
        Ok(ListQuery {
            gte: self.number("startTimeGte", 0)?,
            lt: self.number("startTimeLt", 0)?,
            sort,
            filter: self.filter()?,
        })
    }

    /// Parses a request for a stream. `resume` is the header `Last-Event-ID`.
    ///
    /// # Errors
    /// When a parameter is invalid.
    pub(crate) fn stream(&self, resume: Option<&str>) -> Result<StreamQuery, BadParameter> {
        let resume = resume.filter(|place| !place.is_empty()).map(str::to_owned);
        Ok(StreamQuery { gte: self.number("startTimeGte", 0)?, resume, filter: self.filter()? })
    }

    /// Parses a request for hints.
    ///
    /// # Errors
    /// When a parameter is missing or invalid.
    pub(crate) fn hints(&self) -> Result<HintsQuery, BadParameter> {
        let text = self.first("type").ok_or_else(|| BadParameter("type is required".to_owned()))?;
        let known = HINTS.iter().find(|(name, _)| *name == text).map(|(_, of)| *of);
        let allowed = || HINTS.map(|(name, _)| name).join("', '");
        let of = known.ok_or_else(|| {
            BadParameter(format!("unknown filter type value {text}; allowed values are '{}'", allowed()))
        })?;
        let page = Page { number: self.number("page", 0)?, size: self.number("pageSize", 0)? };
        Ok(HintsQuery { of, filter: self.filter()?, page })
    }

    /// Parses the filter.
    ///
    /// # Errors
    /// When it is not valid JSON for a filter.
    pub(crate) fn filter(&self) -> Result<Filter, BadParameter> {
        let Some(text) = self.first("filters") else { return Ok(Filter::default()) };
        // JSON that was encoded once has no escapes left, or only escapes of its own.
        let json = match text.trim_start().starts_with('{') {
            true => text.to_owned(),
            false => decoded(text)?,
        };
        let filters: Filters =
            serde_json::from_str(&json).map_err(|error| BadParameter(format!("filters: {error}")))?;
        filters.into_filter()
    }
}

fn bad(name: &str, value: &str, reason: impl Display) -> BadParameter {
    BadParameter(format!("{name}: '{value}' {reason}"))
}

const HINTS: [(&str, HintType); 8] = [
    ("DestName", HintType::DestName),
    ("SourceName", HintType::SourceName),
    ("DestNamespace", HintType::DestNamespace),
    ("SourceNamespace", HintType::SourceNamespace),
    ("PolicyTier", HintType::PolicyTier),
    ("PolicyName", HintType::PolicyName),
    ("PolicyKind", HintType::PolicyKind),
    ("PolicyNamespace", HintType::PolicyNamespace),
];

fn sort_by(text: &str) -> Result<SortBy, BadParameter> {
    Ok(match text {
        "Time" => SortBy::Time,
        "DestName" => SortBy::DestName,
        "DestNamespace" => SortBy::DestNamespace,
        "DestType" => SortBy::DestType,
        "SourceName" => SortBy::SourceName,
        "SourceNamespace" => SortBy::SourceNamespace,
        "SourceType" => SortBy::SourceType,
        _ => return Err(BadParameter(format!("unknown sortBy value: {text}"))),
    })
}

/// Whisker's filters. A field that is missing or null does not filter.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Filters {
    source_names: Option<Vec<Match<String>>>,
    source_namespaces: Option<Vec<Match<String>>>,
    dest_names: Option<Vec<Match<String>>>,
    dest_namespaces: Option<Vec<Match<String>>>,
    protocols: Option<Vec<Match<String>>>,
    dest_ports: Option<Vec<Match<i64>>>,
    actions: Option<Vec<String>>,
    pending_actions: Option<Vec<String>>,
    policies: Option<Vec<Policy>>,
    reporter: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Match<T> {
    value: T,
    r#type: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Policy {
    kind: Option<String>,
    tier: Option<Match<String>>,
    name: Option<Match<String>>,
    namespace: Option<Match<String>>,
    action: Option<String>,
}

impl Filters {
    fn into_filter(self) -> Result<Filter, BadParameter> {
        // The highest numbers of the enums.
        let actions = |texts: Option<Vec<String>>| -> Result<Vec<Action>, BadParameter> {
            let texts = texts.unwrap_or_default();
            texts.iter().map(|text| named(text, 3, Action::from_number, Action::as_str)).collect()
        };
        Ok(Filter {
            source_names: matches(self.source_names, network_name)?,
            source_namespaces: matches(self.source_namespaces, no_namespace)?,
            dest_names: matches(self.dest_names, network_name)?,
            dest_namespaces: matches(self.dest_namespaces, no_namespace)?,
            protocols: matches(self.protocols, |text| text)?,
            dest_ports: self.dest_ports.unwrap_or_default().into_iter().map(|port| port.value).collect(),
            actions: actions(self.actions)?,
            pending_actions: actions(self.pending_actions)?,
            policies: self
                .policies
                .unwrap_or_default()
                .into_iter()
                .map(Policy::into_match)
                .collect::<Result<_, _>>()?,
            reporter: match self.reporter {
                None => Reporter::Unspecified,
                Some(text) => named(&text, 2, Reporter::from_number, Reporter::as_str)?,
            },
        })
    }
}

impl Policy {
    fn into_match(self) -> Result<PolicyMatch, BadParameter> {
        let text = |part: Option<Match<String>>| part.map(|part| part.into_match(|text| text)).transpose();
        Ok(PolicyMatch {
            kind: match self.kind {
                None => PolicyKind::Unspecified,
                Some(text) => named(&text, 11, PolicyKind::from_number, PolicyKind::as_str)?,
            },
            tier: text(self.tier)?,
            namespace: text(self.namespace)?,
            name: text(self.name)?,
            action: match self.action {
                None => Action::Unspecified,
                Some(text) => named(&text, 3, Action::from_number, Action::as_str)?,
            },
        })
    }
}

impl Match<String> {
    fn into_match(self, convert: fn(String) -> String) -> Result<StringMatch, BadParameter> {
        let is_fuzzy = match self.r#type.as_deref() {
            None | Some("Exact") => false,
            Some("Fuzzy") => true,
            Some(other) => return Err(unknown(other)),
        };
        Ok(StringMatch { value: convert(self.value), is_fuzzy })
    }
}

fn matches(
    texts: Option<Vec<Match<String>>>,
    convert: fn(String) -> String,
) -> Result<Vec<StringMatch>, BadParameter> {
    texts.unwrap_or_default().into_iter().map(|text| text.into_match(convert)).collect()
}

/// Looks up an enum value by its name.
fn named<T: Copy>(
    text: &str,
    last: i32,
    from_number: fn(i32) -> T,
    name: fn(T) -> &'static str,
) -> Result<T, BadParameter> {
    // The names for "unspecified" mean the same as an empty string here.
    if ["", "ActionUnspecified", "KindUnspecified", "ReporterUnspecified"].contains(&text) {
        return Ok(from_number(0));
    }
    (1..=last).map(from_number).find(|value| name(*value) == text).ok_or_else(|| unknown(text))
}

fn unknown(text: &str) -> BadParameter {
    BadParameter(format!("filters: unknown value: {text}"))
}

/// Converts the name that pages show for a network to the name in flows.
fn network_name(name: String) -> String {
    match name.as_str() {
        crate::wire::PUBLIC_NETWORK => "pub".to_owned(),
        crate::wire::PRIVATE_NETWORK => "pvt".to_owned(),
        _ => name,
    }
}

/// Converts what pages show for no namespace to the value in flows.
fn no_namespace(namespace: String) -> String {
    if namespace == crate::wire::GLOBAL { "-".to_owned() } else { namespace }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<ListQuery, BadParameter> {
        Parameters::read(Some(query))?.list()
    }

    #[test]
    fn requests_of_calicos_page() {
        // Encoded once more than the query string, as Calico's backend requires.
        let twice = "filters=%257B%2522dest_names%2522%253A%255B%257B%2522value%2522%253A%2522a%2526b%2522%257D%255D%257D";
        let once = "filters=%7B%22dest_names%22%3A%5B%7B%22value%22%3A%22a%26b%22%7D%5D%7D";
        let found = read(twice).unwrap();
        assert_eq!(found, read(once).unwrap());
        assert_eq!(found.filter.dest_names, [StringMatch { value: "a&b".to_owned(), is_fuzzy: false }]);
        let found =
            read("startTimeGte=-60&startTimeLt=99&sortBy=DestName&sortBy=Time&page=3&no=such").unwrap();
        assert_eq!((found.gte, found.lt), (-60, 99));
        assert_eq!(found.sort, [SortBy::DestName, SortBy::Time]);
        assert!(read("").unwrap().filter.is_empty());
    }

    #[test]
    fn every_part_of_a_filter() {
        let json = r#"{"source_names":[{"value":"PUBLIC NETWORK","type":"Exact"},{"value":"web","type":"Fuzzy"}],
            "source_namespaces":[{"value":"Global"}],"dest_ports":[{"value":80,"type":"Exact"}],"actions":["Deny","Pass"],
            "pending_actions":["Allow"],"reporter":"Dst","protocols":null,
            "policies":[{"kind":"Profile"},{"tier":{"value":"t","type":"Exact"},"name":{"value":"n","type":"Fuzzy"},
            "namespace":{"value":"-","type":"Exact"},"action":"Deny"}]}"#;
        let query: String = json.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let filter = read(&format!("filters={query}")).unwrap().filter;
        assert_eq!(filter.source_names[0].value, "pub");
        assert!(filter.source_names[1].is_fuzzy);
        assert_eq!(filter.source_namespaces[0].value, "-");
        assert_eq!(filter.dest_ports, [80]);
        assert_eq!(filter.actions, [Action::Deny, Action::Pass]);
        assert_eq!((filter.pending_actions, filter.reporter), (vec![Action::Allow], Reporter::Dst));
        assert_eq!(filter.policies[0].kind, PolicyKind::Profile);
        assert_eq!(filter.policies[1].tier.as_ref().map(|tier| tier.value.as_str()), Some("t"));
        assert!(filter.policies[1].name.as_ref().is_some_and(|name| name.is_fuzzy));
    }

    #[test]
    fn invalid_parameters_are_refused_with_a_reason() {
        for (query, reason) in [
            ("startTimeGte=soon", "startTimeGte: 'soon' is not a number"),
            ("sortBy=Size", "unknown sortBy value: Size"),
            ("filters=%7B", "filters: EOF"),
            ("filters=%7B%22actions%22%3A%5B%22Drop%22%5D%7D", "unknown value: Drop"),
            ("a=%zz", "invalid URL escape"),
            ("a=%ff", "invalid URL escape"),
            ("a=%4", "invalid URL escape"),
        ] {
            let error = read(query).unwrap_err().0;
            assert!(error.contains(reason), "{query}: {error}");
        }
        let hints = |query| Parameters::read(Some(query)).unwrap().hints();
        assert!(hints("page=1").unwrap_err().0.contains("type is required"));
        assert!(hints("type=Size").unwrap_err().0.contains("'PolicyNamespace'"));
        assert_eq!(hints("type=PolicyTier&page=2&pageSize=20").unwrap().page, Page { number: 2, size: 20 });
    }
}
