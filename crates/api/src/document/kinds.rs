//! The kind of a document, and the objects in it: `kind` and `apiVersion`, lists of objects, typed lists.
//!
//! Refuses kinds that exist only inside the program (derived from Kubernetes' own objects): a user cannot write those.

use crate::document::report::{Diagnostic, Diagnostics};
use crate::document::suggest::nearest;
use crate::document::tree::{Content, Entry, Node};
use crate::errors::FieldPath;
use crate::kind::{API_VERSION, CRD_API_VERSION, Kind};
use std::sync::Arc;

/// One object of a document, before its fields are examined.
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) node: Arc<Node>,
}

/// Finds the objects of a document; mistakes are reported.
pub(super) fn identify(node: &Arc<Node>, diagnostics: &mut Diagnostics) -> Vec<Object> {
    let mut objects = Vec::new();
    collect(node, None, 0, &mut objects, diagnostics);
    objects
}

/// Adds the objects of `node`. `listed` is the kind that a typed list implies for items that do not name their own.
fn collect(
    node: &Arc<Node>,
    listed: Option<Kind>,
    depth: usize,
    objects: &mut Vec<Object>,
    diagnostics: &mut Diagnostics,
) {
    match &node.content {
        Content::Map(_) => {}
        Content::List(items) if depth == 0 => {
            for item in items {
                collect(item, None, depth + 1, objects, diagnostics);
            }
            return;
        }
        _ => {
            let message =
                format!("expected an object with `apiVersion` and `kind`, found {}", node.describe());
            diagnostics.add(Diagnostic::new(node.span, FieldPath::root(), message));
            return;
        }
    }
    let kind_entry = node.get("kind");
    let version_entry = node.get("apiVersion");
    let kind_name = match (kind_entry, listed) {
        (Some(entry), _) => match text(entry) {
            Some(name) => name,
            None => {
                diagnostics.add(not_text(entry, "kind"));
                return;
            }
        },
        (None, Some(kind)) => kind.as_str(),
        (None, None) => {
            diagnostics.add(missing(
                node,
                "kind",
                "every object says what it is, as in `kind: NetworkPolicy`",
            ));
            if version_entry.is_none() {
                let help = format!("write `apiVersion: {API_VERSION}`");
                diagnostics.add(missing(node, "apiVersion", &help));
            }
            return;
        }
    };
    let list_of = match kind_name {
        "List" => Some(None),
        _ => kind_name.strip_suffix("List").and_then(user_kind).map(Some),
    };
    let version_fits = match (version_entry, listed) {
        (Some(entry), _) => check_version(entry, kind_name, diagnostics),
        (None, Some(_)) => true,
        (None, None) => {
            let help = format!("write `apiVersion: {API_VERSION}`");
            diagnostics.add(missing(node, "apiVersion", &help));
            true
        }
    };
    if !version_fits {
        return;
    }
    if let Some(item_kind) = list_of {
        list(node, item_kind, depth, objects, diagnostics);
        return;
    }
    match user_kind(kind_name) {
        Some(kind) if listed.is_some_and(|listed| listed != kind) => {
            let expected = listed.map_or("", Kind::as_str);
            let span = kind_entry.map_or(node.span, |entry| entry.value.span);
            let message = format!("this is a list of {expected} objects, not of {kind}");
            diagnostics.add(Diagnostic::new(span, FieldPath::new("kind"), message));
        }
        Some(kind) => objects.push(Object { kind, node: Arc::clone(node) }),
        None => {
            let span = kind_entry.map_or(node.span, |entry| entry.value.span);
            let message = format!("unknown resource type ({kind_name})");
            let mut diagnostic = Diagnostic::new(span, FieldPath::new("kind"), message);
            let names = user_kinds().map(Kind::as_str);
            if let Some(meant) = nearest(kind_name, names.chain(["List"])) {
                diagnostic = diagnostic.with_help(format!("did you mean `{meant}`?"));
            } else {
                let names: Vec<&str> = user_kinds().map(Kind::as_str).collect();
                diagnostic = diagnostic.with_help(format!("known kinds: {}", names.join(", ")));
            }
            diagnostics.add(diagnostic);
        }
    }
}

fn list(
    node: &Arc<Node>,
    item_kind: Option<Kind>,
    depth: usize,
    objects: &mut Vec<Object>,
    diagnostics: &mut Diagnostics,
) {
    // A list inside a list would need a name for its place, and does not occur in practice.
    if depth > 1 {
        let message = "a list of objects cannot be inside another one".to_owned();
        diagnostics.add(Diagnostic::new(node.first_span(), FieldPath::root(), message));
        return;
    }
    let mut misspelt = false;
    if let Content::Map(entries) = &node.content {
        for entry in entries.iter().filter(|entry| !matches!(&*entry.key.text, "kind" | "apiVersion")).filter(
            |entry| !["metadata", "items"].iter().any(|name| entry.key.text.eq_ignore_ascii_case(name)),
        ) {
            let message = format!("unknown field `{}`", entry.key.text);
            let diagnostic =
                Diagnostic::new(entry.key_span, FieldPath::root().child(&entry.key.text), message);
            diagnostics.add(match nearest(&entry.key.text, ["items"]) {
                Some(meant) => {
                    misspelt = true;
                    diagnostic.with_help(format!("did you mean `{meant}`?"))
                }
                None => diagnostic.with_help("a list has only `items`".to_owned()),
            });
        }
    }
    match node.field("items") {
        None if misspelt => {}
        None => diagnostics.add(missing(node, "items", "a list holds its objects in `items`")),
        Some(entry) => match &entry.value.content {
            Content::List(items) => {
                for item in items {
                    collect(item, item_kind, depth + 2, objects, diagnostics);
                }
            }
            Content::Scalar(scalar) if scalar.plain && scalar.text.is_empty() => {}
            _ => {
                let message = format!("expected a list, found {}", entry.value.describe());
                diagnostics.add(Diagnostic::new(entry.value.span, FieldPath::new("items"), message));
            }
        },
    }
}

/// Kinds that a user may write.
fn user_kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| kind.info().stored)
}

fn user_kind(name: &str) -> Option<Kind> {
    Kind::from_name(name).filter(|kind| kind.info().stored)
}

fn text(entry: &Entry) -> Option<&str> {
    match &entry.value.content {
        Content::Scalar(scalar) if !(scalar.plain && scalar.text.is_empty()) => Some(&scalar.text),
        _ => None,
    }
}

fn not_text(entry: &Entry, name: &str) -> Diagnostic {
    let message = format!("expected text, found {}", entry.value.describe());
    Diagnostic::new(entry.key_span, FieldPath::new(name), message)
}

fn missing(node: &Node, name: &str, help: &str) -> Diagnostic {
    let message = format!("missing field `{name}`");
    // Calico's tool accepts other fields in any case, but not these two.
    if let Some(entry) = node.field(name) {
        let help = format!("write `{name}`: only in this case is it recognised");
        return Diagnostic::new(entry.key_span, FieldPath::new(name), message).with_help(help);
    }
    Diagnostic::new(node.first_span(), FieldPath::new(name), message).with_help(help.to_owned())
}

/// The plural of a kind's name, in English.
fn plural(kind: &str) -> String {
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if kind.ends_with(['s', 'x']) => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

/// Checks that the kind can have this version; reports it if not.
fn check_version(entry: &Entry, kind_name: &str, diagnostics: &mut Diagnostics) -> bool {
    let Some(version) = text(entry) else {
        diagnostics.add(not_text(entry, "apiVersion"));
        return false;
    };
    if version == API_VERSION || (kind_name == "List" && version == "v1") {
        return true;
    }
    let message = format!("unknown resource type ({kind_name}) and/or version ({version})");
    let is_ours = Kind::from_name(kind_name).is_some()
        || kind_name.strip_suffix("List").is_some_and(|name| Kind::from_name(name).is_some());
    let help = if !is_ours && !version.contains("projectcalico.org") {
        format!("{} are for kubectl; Calico's objects have `apiVersion: {API_VERSION}`", plural(kind_name))
    } else if version == CRD_API_VERSION {
        format!("that is how the objects are stored; write `apiVersion: {API_VERSION}`")
    } else if Kind::from_name(kind_name).is_some()
        && !version.starts_with("projectcalico.org")
        && version.contains('.')
    {
        format!("objects of other groups are for kubectl; Calico's have `apiVersion: {API_VERSION}`")
    } else {
        format!("write `apiVersion: {API_VERSION}`")
    };
    diagnostics.add(Diagnostic::new(entry.value.span, FieldPath::new("apiVersion"), message).with_help(help));
    false
}
