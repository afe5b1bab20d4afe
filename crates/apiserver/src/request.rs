//! The meaning of a request: its path, method and parameters as a value.
//!
//! Requests are only interpreted here. A path without a meaning is [`Route::Unknown`]; parameters that contradict each
//! other are refused, worded like Kubernetes' servers.

use crate::kinds::{GROUP, Served, VERSION};
use crate::selectors::{FieldSelector, LabelSelector};
use crate::status::{Cause, Outcome, Refusal};
use http::Method;
use std::collections::BTreeMap;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/`: the list of paths.
    Paths,
    /// `/healthz`, `/livez` or `/readyz`.
    Health {
        /// True for `/readyz`.
        ready: bool,
    },
    /// `/version`.
    Version,
    /// `/apis`.
    Groups,
    /// `/apis/projectcalico.org`.
    Group,
    /// `/apis/projectcalico.org/v3`.
    Resources,
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`.
    OpenApiV3,
    /// `/openapi/v3/...`: the OpenAPI v3 document of our group.
    OpenApiV3Group,
    /// Objects.
    Objects(Target),
    /// A path that is not served.
    Unknown,
}

/// Which objects a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The resource.
    pub served: &'static Served,
    /// The namespace; empty for all namespaces and for cluster-scoped kinds.
    pub namespace: String,
    /// The name; empty for a collection.
    pub name: String,
    /// Whether the path names the status subresource.
    pub is_status: bool,
}

/// What is to be done, as Kubernetes' authorization calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read one.
    Get,
    /// Read many.
    List,
    /// Follow many.
    Watch,
    /// Store a new one.
    Create,
    /// Replace one.
    Update,
    /// Change a part of one.
    Patch,
    /// Delete one.
    Delete,
    /// Delete many.
    DeleteCollection,
}

impl Verb {
    /// The verb's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// The operation's name in refusals by Kubernetes' servers; `None` for verbs that only read.
    #[must_use]
    pub const fn refused_as(self) -> Option<&'static str> {
        match self {
            Self::Get | Self::List | Self::Watch => None,
            Self::Create => Some("Create"),
            Self::Update | Self::Patch => Some("Update"),
            Self::Delete | Self::DeleteCollection => Some("Delete"),
        }
    }
}

impl Route {
    /// The route of this path.
    #[must_use]
    pub(crate) fn of(path: &str) -> Self {
        let decoded: Option<Vec<String>> =
            path.trim_end_matches('/').split('/').skip(1).map(percent_decoded).collect();
        let Some(parts) = decoded else { return Self::Unknown };
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            [] => Self::Paths,
            ["healthz" | "livez"] | ["healthz" | "livez", _] => Self::Health { ready: false },
            ["readyz"] | ["readyz", _] => Self::Health { ready: true },
            ["version"] => Self::Version,
            ["apis"] => Self::Groups,
            ["apis", GROUP] => Self::Group,
            ["apis", GROUP, VERSION] => Self::Resources,
            ["openapi", "v2"] => Self::OpenApiV2,
            ["openapi", "v3"] => Self::OpenApiV3,
            ["openapi", "v3", "apis", GROUP, VERSION] => Self::OpenApiV3Group,
            ["apis", GROUP, VERSION, "namespaces", namespace, rest @ ..] => objects(namespace, rest),
            ["apis", GROUP, VERSION, rest @ ..] => objects("", rest),
            _ => Self::Unknown,
        }
    }
}

fn objects(namespace: &str, rest: &[&str]) -> Route {
    let (plural, name, is_status) = match rest {
        [plural] => (plural, "", false),
        [plural, name] => (plural, *name, false),
        [plural, name, "status"] => (plural, *name, true),
        _ => return Route::Unknown,
    };
    let Some(served) = Served::from_plural(plural) else { return Route::Unknown };
    let is_namespaced = served.kind.is_namespaced();
    let fits = match (is_namespaced, namespace.is_empty()) {
        (false, true) | (true, false) => true,
        // A collection over all namespaces.
        (true, true) => name.is_empty(),
        (false, false) => false,
    };
    if !fits || (is_status && !served.has_status) || rest.iter().skip(1).any(|part| part.is_empty()) {
        return Route::Unknown;
    }
    Route::Objects(Target { served, namespace: namespace.to_owned(), name: name.to_owned(), is_status })
}

/// What is to be done to a target; `None` where the target does not support the method.
#[must_use]
pub(crate) fn verb(method: &Method, target: &Target, options: &Options) -> Option<Verb> {
    let is_collection = target.name.is_empty();
    Some(match (method, is_collection) {
        (&Method::GET | &Method::HEAD, true) if options.watch => Verb::Watch,
        (&Method::GET | &Method::HEAD, true) => Verb::List,
        (&Method::GET | &Method::HEAD, false) => Verb::Get,
        (&Method::POST, true) => Verb::Create,
        (&Method::PUT, false) => Verb::Update,
        (&Method::PATCH, false) => Verb::Patch,
        (&Method::DELETE, false) if !target.is_status => Verb::Delete,
        (&Method::DELETE, true) => Verb::DeleteCollection,
        _ => return None,
    })
}

/// How unknown and duplicate fields of a body are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Dropped silently.
    Ignore,
    /// Dropped with a warning.
    #[default]
    Warn,
    /// Refused.
    Strict,
}

/// Which revision a list is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// The newest.
    #[default]
    Newest,
    /// Any revision that is available.
    Any,
    /// This revision or a later one.
    NotOlderThan(u64),
    /// Exactly this revision.
    Exact(String),
}

/// The known parameters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to watch rather than list.
    pub watch: bool,
    /// Only objects with such labels.
    pub labels: LabelSelector,
    /// Only objects with such fields.
    pub fields: FieldSelector,
    /// The maximum number of objects in one answer.
    pub limit: usize,
    /// Where the previous page ended.
    pub continuation: String,
    /// The revision, as given.
    pub resource_version: String,
    /// What the revision means for a list.
    pub moment: Moment,
    /// Whether to send bookmarks that report progress.
    pub bookmarks: bool,
    /// Whether a watch begins with the existing objects.
    pub initial_events: bool,
    /// After how many seconds a watch ends.
    pub timeout: Option<u64>,
    /// Whether to do everything except store the result.
    pub dry_run: bool,
    /// The owner of the fields that this request writes.
    pub field_manager: String,
    /// Whether to take fields from other owners.
    pub force: bool,
    /// How unknown and duplicate fields are treated.
    pub field_validation: FieldValidation,
}

impl Options {
    /// Reads a query.
    ///
    /// # Errors
    /// When a parameter cannot be read, or two contradict each other.
    pub fn parse(query: &str) -> Outcome<Self> {
        let given = parameters(query);
        let text = |name: &str| given.get(name).map(String::as_str).unwrap_or_default();
        let flag = |name: &str| matches!(text(name), "1" | "t" | "T" | "true" | "TRUE" | "True");
        let mut options = Self {
            watch: flag("watch"),
            labels: LabelSelector::parse(text("labelSelector")).map_err(Refusal::bad_request)?,
            fields: FieldSelector::parse(text("fieldSelector")).map_err(Refusal::bad_request)?,
            continuation: text("continue").to_owned(),
            resource_version: text("resourceVersion").to_owned(),
            bookmarks: flag("allowWatchBookmarks"),
            initial_events: flag("sendInitialEvents"),
            field_manager: text("fieldManager").to_owned(),
            force: flag("force"),
            ..Self::default()
        };
        options.limit = number(text("limit"), "limit")?.unwrap_or_default();
        options.timeout = number(text("timeoutSeconds"), "timeoutSeconds")?;
        options.dry_run = match text("dryRun") {
            "" => false,
            "All" => true,
            other => {
                let message = format!("Unsupported value: {other:?}: supported values: \"All\"");
                return Err(bad_options("dryRun", "FieldValueNotSupported", message));
            }
        };
        options.field_validation = match text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let message = format!(
                    "Unsupported value: {other:?}: supported values: \"Ignore\", \"Warn\", \"Strict\""
                );
                return Err(bad_options("fieldValidation", "FieldValueNotSupported", message));
            }
        };
        if options.field_manager.len() > 128 {
            let message = "Too long: may not be more than 128 bytes".to_owned();
            return Err(bad_options("fieldManager", "FieldValueTooLong", message));
        }
        options.moment =
            moment(&options, given.contains_key("sendInitialEvents"), text("resourceVersionMatch"))?;
        Ok(options)
    }
}

/// Determines what the revision of a list or watch means.
fn moment(options: &Options, says_initial: bool, matching: &str) -> Outcome<Moment> {
    let revision = options.resource_version.as_str();
    let forbidden =
        |field: &str, why: &str| Err(bad_options(field, "FieldValueForbidden", format!("Forbidden: {why}")));
    if options.watch {
        if says_initial && matching != "NotOlderThan" {
            return forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        if !says_initial && !matching.is_empty() {
            return forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        return Ok(Moment::Newest);
    }
    if says_initial {
        return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    if !options.continuation.is_empty() {
        if !matching.is_empty() {
            return forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            );
        }
        if !revision.is_empty() && revision != "0" {
            return Err(Refusal::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        return Ok(Moment::Newest);
    }
    if !matching.is_empty() && revision.is_empty() {
        return forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
    }
    match (matching, revision) {
        ("", "") => Ok(Moment::Newest),
        ("Exact", "0") => forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        ("Exact", _) => Ok(Moment::Exact(revision.to_owned())),
        ("" | "NotOlderThan", "0") => Ok(Moment::Any),
        ("" | "NotOlderThan", _) => match revision.parse() {
            Ok(number) => Ok(Moment::NotOlderThan(number)),
            // Profiles have the revisions of several kinds of objects, which cannot be compared.
            Err(_) if revision.contains('/') => Ok(Moment::Newest),
            Err(_) => {
                let message = format!(
                    "Invalid value: {revision:?}: strconv.ParseUint: parsing {revision:?}: invalid syntax"
                );
                Err(bad_options("resourceVersion", "FieldValueInvalid", message))
            }
        },
        _ => {
            let message =
                format!("Unsupported value: {matching:?}: supported values: \"Exact\", \"NotOlderThan\"");
            Err(bad_options("resourceVersionMatch", "FieldValueNotSupported", message))
        }
    }
}

fn bad_options(field: &str, reason: &'static str, message: String) -> Box<Refusal> {
    let cause = Cause { reason, message, field: field.to_owned() };
    Refusal::invalid("ListOptions", "meta.k8s.io", "", vec![cause])
}

fn number<T: std::str::FromStr>(text: &str, name: &str) -> Outcome<Option<T>> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| Refusal::bad_request(format!("{name} is not a number: {text:?}")))
}

/// The parameters of a query; of several with the same name, the first counts.
fn parameters(query: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let decode = |text: &str| percent_decoded(&text.replace('+', " "));
        if let (Some(name), Some(value)) = (decode(name), decode(value)) {
            found.entry(name).or_insert(value);
        }
    }
    found
}

/// Decodes `%41` and the like; `None` if the result is not text.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        if *first == b'%' {
            let [high, low, others @ ..] = rest else { return None };
            let digits = [*high, *low];
            let number = u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?;
            bytes.push(number);
            rest = others;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Option<(&'static str, String, String, bool)> {
        match Route::of(path) {
            Route::Objects(t) => Some((t.served.plural(), t.namespace, t.name, t.is_status)),
            _ => None,
        }
    }

    #[test]
    fn paths_are_routed() {
        let own = |p, n: &str, m: &str, s| Some((p, n.to_owned(), m.to_owned(), s));
        for (path, expected) in [
            ("/apis/projectcalico.org/v3/tiers", own("tiers", "", "", false)),
            ("/apis/projectcalico.org/v3/tiers/", own("tiers", "", "", false)),
            ("/apis/projectcalico.org/v3/tiers/a%2Eb", own("tiers", "", "a.b", false)),
            ("/apis/projectcalico.org/v3/tiers/a/status", own("tiers", "", "a", true)),
            ("/apis/projectcalico.org/v3/bgppeers/a/status", None),
            ("/apis/projectcalico.org/v3/networkpolicies", own("networkpolicies", "", "", false)),
            ("/apis/projectcalico.org/v3/networkpolicies/a", None),
            (
                "/apis/projectcalico.org/v3/namespaces/n/networkpolicies/a",
                own("networkpolicies", "n", "a", false),
            ),
            ("/apis/projectcalico.org/v3/namespaces/n/tiers", None),
            ("/apis/projectcalico.org/v3/nodes", None),
            ("/apis/projectcalico.org/v3/tiers/a/b/c", None),
            ("/apis/projectcalico.org/v3/tiers/%zz", None),
        ] {
            assert_eq!(target(path), expected, "{path}");
        }
        for (path, expected) in [
            ("/", Route::Paths),
            ("/readyz", Route::Health { ready: true }),
            ("/livez/ping", Route::Health { ready: false }),
            ("/apis/", Route::Groups),
            ("/apis/other.org", Route::Unknown),
            ("/openapi/v3/apis/projectcalico.org/v3", Route::OpenApiV3Group),
        ] {
            assert_eq!(Route::of(path), expected, "{path}");
        }
    }

    #[test]
    fn methods_become_verbs() {
        let Route::Objects(many) = Route::of("/apis/projectcalico.org/v3/tiers") else { panic!() };
        let one = Target { name: "a".into(), ..many.clone() };
        let plain = Options::default();
        let watch = Options { watch: true, ..Options::default() };
        for (method, target, options, expected) in [
            (Method::GET, &many, &plain, Some(Verb::List)),
            (Method::GET, &many, &watch, Some(Verb::Watch)),
            (Method::GET, &one, &plain, Some(Verb::Get)),
            (Method::POST, &many, &plain, Some(Verb::Create)),
            (Method::POST, &one, &plain, None),
            (Method::PUT, &many, &plain, None),
            (Method::DELETE, &many, &plain, Some(Verb::DeleteCollection)),
            (Method::OPTIONS, &one, &plain, None),
        ] {
            assert_eq!(verb(&method, target, options), expected, "{method}");
        }
    }

    #[test]
    fn revisions_have_the_same_meaning_as_in_kubernetes() {
        for (query, expected) in [
            ("", Ok(Moment::Newest)),
            ("resourceVersion=0", Ok(Moment::Any)),
            ("resourceVersion=7", Ok(Moment::NotOlderThan(7))),
            ("resourceVersion=7&resourceVersionMatch=Exact", Ok(Moment::Exact("7".into()))),
            ("resourceVersion=0&resourceVersionMatch=Exact", Err(422)),
            ("resourceVersionMatch=Exact", Err(422)),
            ("resourceVersion=x", Err(422)),
            ("continue=abc&resourceVersion=5", Err(400)),
            ("sendInitialEvents=true", Err(422)),
            ("watch=1&sendInitialEvents=true", Err(422)),
            ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", Ok(Moment::Newest)),
            ("watch=1&resourceVersionMatch=NotOlderThan", Err(422)),
            ("dryRun=Some", Err(422)),
            ("fieldValidation=Never", Err(422)),
            ("limit=many", Err(400)),
        ] {
            let found = Options::parse(query).map(|options| options.moment).map_err(|refusal| refusal.code);
            assert_eq!(found, expected, "{query}");
        }
        let options = Options::parse("labelSelector=a%20in%20(b%2Cc)&limit=5&dryRun=All").expect("good");
        assert!(options.dry_run && options.limit == 5 && !options.labels.is_empty());
    }
}
