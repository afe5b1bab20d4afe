//! Joins selectors: those of namespaces and service accounts become conditions on labels that endpoints inherit.
//!
//! The texts are Calico's to the letter, because the names of IP sets are computed from them. Every part is parsed on
//! its own before it is joined: text that is a selector only together with its neighbours (`a) || (b`) would escape
//! from its namespace, and is an error.

use api::scalars::SelectorText;
use api::words::{
    LABEL_NAMESPACE, LABEL_SERVICE_ACCOUNT, NAMESPACE_LABEL_PREFIX, SERVICE_ACCOUNT_LABEL_PREFIX,
};
use selector::Selector;

/// Parses a selector, or returns the reason why it cannot be read; `None` for empty text.
pub(super) fn read(text: &str) -> Result<Option<Selector>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    Selector::parse(text).map(Some).map_err(|error| error.to_string())
}

/// The condition that an endpoint is in this namespace.
pub(super) fn in_namespace(namespace: &str) -> String {
    format!("{LABEL_NAMESPACE} == '{namespace}'")
}

/// Whether a text can be put between quotes in a selector.
fn is_quotable(text: &str) -> bool {
    !text.contains(['\'', '"'])
}

/// The selector over the labels that an endpoint inherits from its namespace.
pub(super) fn over_namespace(text: &SelectorText) -> Result<String, String> {
    prefixed(text.as_str(), NAMESPACE_LABEL_PREFIX)
}

/// The selector over the labels that an endpoint inherits from its service account.
pub(super) fn over_service_account(text: &SelectorText) -> Result<String, String> {
    prefixed(text.as_str(), SERVICE_ACCOUNT_LABEL_PREFIX)
}

fn prefixed(text: &str, prefix: &str) -> Result<String, String> {
    let selector = Selector::parse(text).map_err(|error| error.to_string())?;
    Ok(selector.with_key_prefix(prefix).canonical().to_owned())
}

/// The condition that an endpoint runs as one of these service accounts.
pub(super) fn has_service_account_name(names: &[String]) -> Result<String, String> {
    if let Some(name) = names.iter().find(|name| !is_quotable(name)) {
        return Err(format!("'{name}' cannot be the name of a service account"));
    }
    let text = format!("{LABEL_SERVICE_ACCOUNT} in {{ '{}' }}", names.join("', '"));
    Selector::parse(&text).map(|selector| selector.canonical().to_owned()).map_err(|error| error.to_string())
}

/// Allows any namespace, if a selector of namespaces is `all()`.
pub(super) fn all_means_any_namespace(text: &str) -> String {
    text.replace("all()", &format!("has({LABEL_NAMESPACE})"))
}

/// Allows no namespace, if a selector of namespaces is `global()`.
pub(super) fn global_means_no_namespace(text: &str) -> String {
    text.replace("global()", &format!("!has({LABEL_NAMESPACE})"))
}

/// Allows any service account, if a selector of service accounts is `all()`.
pub(super) fn all_means_any_service_account(text: &str) -> String {
    text.replace("all()", &format!("has({LABEL_SERVICE_ACCOUNT})"))
}

/// Joins two conditions; the first may be empty.
pub(super) fn and(current: &str, further: &str) -> String {
    if current.is_empty() { further.to_owned() } else { format!("({current}) && {further}") }
}
