//! Evaluates selectors: labels, and the meaning of `all()` and `global()` in selectors of namespaces and service
//! accounts.
//!
//! A selector of namespaces is applied to the labels that an endpoint inherits from its namespace, whose names begin
//! with `pcns.`; a selector of service accounts, to those with `pcsa.`. There, `all()` means any namespace, or any
//! account, and does not match an endpoint without one. `global()` means everything without a namespace.

use api::scalars::SelectorText;
use api::words::{
    KUBERNETES, LABEL_NAMESPACE, LABEL_ORCHESTRATOR, LABEL_SERVICE_ACCOUNT, NAMESPACE_LABEL_PREFIX,
    SERVICE_ACCOUNT_LABEL_PREFIX,
};
use api::{EntityRule, ServiceAccountMatch};
use selector::{Node, Selector};
use std::collections::BTreeMap;

/// Labels of an endpoint, inherited ones included.
pub(crate) type Labels = BTreeMap<String, String>;

/// The meaning of `all()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum All {
    Everybody,
    InNamespace,
    WithAccount,
}

/// One condition on labels.
#[derive(Clone, Debug)]
enum Condition {
    Selector { selector: Selector, all: All, text: String },
    Namespace(String),
    AccountNames(Vec<String>),
}

impl Condition {
    fn holds(&self, labels: &Labels) -> bool {
        match self {
            Self::Selector { selector, all, .. } => holds(selector.root(), *all, labels),
            Self::Namespace(name) => labels.get(LABEL_NAMESPACE) == Some(name),
            Self::AccountNames(names) => {
                labels.get(LABEL_SERVICE_ACCOUNT).is_some_and(|name| names.contains(name))
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Selector { text, .. } => without_orchestrator(text),
            Self::Namespace(name) => format!("namespace {name}"),
            Self::AccountNames(names) => format!("service account {}", names.join(" or ")),
        }
    }
}

fn holds(node: &Node, all: All, labels: &Labels) -> bool {
    match node {
        Node::All => match all {
            All::Everybody => true,
            All::InNamespace => labels.contains_key(LABEL_NAMESPACE),
            All::WithAccount => labels.contains_key(LABEL_SERVICE_ACCOUNT),
        },
        Node::Global if all == All::InNamespace => !labels.contains_key(LABEL_NAMESPACE),
        Node::Not(operand) => !holds(operand, all, labels),
        Node::And(operands) => operands.iter().all(|operand| holds(operand, all, labels)),
        Node::Or(operands) => operands.iter().any(|operand| holds(operand, all, labels)),
        other => other.evaluate(labels),
    }
}

/// Several conditions that must all hold; or the reasons why some cannot be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    conditions: Vec<Condition>,
    /// The unreadable parts.
    pub(crate) faults: Vec<String>,
}

impl Selection {
    /// The selection of a namespaced policy.
    pub(crate) fn of_namespaced(namespace: &str, selector: &SelectorText, accounts: &SelectorText) -> Self {
        let mut selection = Self::default();
        selection.conditions.push(Condition::Namespace(namespace.to_owned()));
        selection.add("selector", selector, "", All::Everybody);
        selection.add("serviceAccountSelector", accounts, SERVICE_ACCOUNT_LABEL_PREFIX, All::Everybody);
        selection
    }

    /// The selection of a global policy.
    pub(crate) fn of_global(
        selector: &SelectorText,
        namespaces: &SelectorText,
        accounts: &SelectorText,
    ) -> Self {
        // Together with a selector of namespaces or accounts, `all()` is treated as one of theirs.
        let all = match (namespaces.is_empty(), accounts.is_empty()) {
            (false, _) => All::InNamespace,
            (true, false) => All::WithAccount,
            (true, true) => All::Everybody,
        };
        let mut selection = Self::default();
        selection.add("selector", selector, "", all);
        selection.add("namespaceSelector", namespaces, NAMESPACE_LABEL_PREFIX, All::InNamespace);
        selection.add("serviceAccountSelector", accounts, SERVICE_ACCOUNT_LABEL_PREFIX, All::WithAccount);
        selection
    }

    /// The selection of one end of a rule; it is empty if the end has no label conditions.
    pub(crate) fn of_end(namespace: &str, end: &EntityRule) -> Self {
        let mut selection = Self::default();
        let accounts = end.service_accounts.as_deref();
        let by_labels = !end.selector.is_empty()
            || !end.not_selector.is_empty()
            || !end.namespace_selector.is_empty()
            || accounts.is_some_and(|accounts| !accounts.names.is_empty() || !accounts.selector.is_empty());
        if !end.namespace_selector.is_empty() {
            selection.add(
                "namespaceSelector",
                &end.namespace_selector,
                NAMESPACE_LABEL_PREFIX,
                All::InNamespace,
            );
        } else if by_labels && !namespace.is_empty() {
            // A rule of a namespaced policy only matches endpoints in its namespace, unless it specifies otherwise.
            selection.conditions.push(Condition::Namespace(namespace.to_owned()));
        }
        if let Some(ServiceAccountMatch { names, selector, .. }) = accounts {
            selection.add("serviceAccounts.selector", selector, SERVICE_ACCOUNT_LABEL_PREFIX, All::Everybody);
            if !names.is_empty() {
                selection.conditions.push(Condition::AccountNames(names.clone()));
            }
        }
        selection.add("selector", &end.selector, "", All::Everybody);
        selection
    }

    /// The selection of a `notSelector`.
    pub(crate) fn of_not_selector(end: &EntityRule) -> Self {
        let mut selection = Self::default();
        selection.add("notSelector", &end.not_selector, "", All::Everybody);
        selection
    }

    fn add(&mut self, field: &str, text: &SelectorText, prefix: &str, all: All) {
        if text.is_empty() {
            return;
        }
        match text.parse() {
            Ok(selector) => {
                let selector = if prefix.is_empty() { selector } else { selector.with_key_prefix(prefix) };
                let text = match prefix {
                    "" => text.to_string(),
                    NAMESPACE_LABEL_PREFIX => format!("namespace {text}"),
                    _ => format!("service account {text}"),
                };
                self.conditions.push(Condition::Selector { selector, all, text });
            }
            Err(reason) => self.faults.push(format!("{field}: {reason}")),
        }
    }

    /// Whether there are no conditions.
    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether an endpoint with these labels is selected.
    pub(crate) fn selects(&self, labels: &Labels) -> bool {
        self.conditions.iter().all(|condition| condition.holds(labels))
    }

    /// The conditions that do not hold for these labels.
    pub(crate) fn failing(&self, labels: &Labels) -> Vec<String> {
        self.conditions.iter().filter(|condition| !condition.holds(labels)).map(Condition::text).collect()
    }

    /// The labels that the failing conditions depend on, with their values.
    pub(crate) fn looked_at(&self, labels: &Labels) -> String {
        let mut found = BTreeMap::new();
        for condition in self.conditions.iter().filter(|condition| !condition.holds(labels)) {
            match condition {
                Condition::Selector { selector, .. } => {
                    let labels_of_user = selector.nodes().filter_map(Node::label);
                    for label in labels_of_user.filter(|label| *label != LABEL_ORCHESTRATOR) {
                        found.insert(label, labels.get(label));
                    }
                }
                Condition::Namespace(_) => _ = found.insert(LABEL_NAMESPACE, labels.get(LABEL_NAMESPACE)),
                Condition::AccountNames(_) => {
                    found.insert(LABEL_SERVICE_ACCOUNT, labels.get(LABEL_SERVICE_ACCOUNT));
                }
            }
        }
        let texts: Vec<String> = found
            .into_iter()
            .map(|(label, value)| match value {
                Some(value) => format!("{} is '{value}'", label_text(label)),
                None => format!("it has no {}", label_text(label)),
            })
            .collect();
        texts.join(", ")
    }

    /// The conditions as text.
    pub(crate) fn text(&self) -> String {
        let texts: Vec<String> = self.conditions.iter().map(Condition::text).collect();
        texts.join(" and ")
    }
}

/// A selector as the user wrote it: the conversion adds the part that limits Kubernetes' policies to Kubernetes' pods.
fn without_orchestrator(text: &str) -> String {
    let added = format!("{LABEL_ORCHESTRATOR} == '{KUBERNETES}'");
    match text.strip_prefix(&added) {
        Some("") => "all pods".to_owned(),
        Some(rest) => rest.strip_prefix(" && ").unwrap_or(text).to_owned(),
        None => text.to_owned(),
    }
}

/// A label's name without Calico's prefix.
fn label_text(label: &str) -> String {
    if let Some(rest) = label.strip_prefix(NAMESPACE_LABEL_PREFIX) {
        return format!("its namespace's {rest}");
    }
    if let Some(rest) = label.strip_prefix(SERVICE_ACCOUNT_LABEL_PREFIX) {
        return format!("its service account's {rest}");
    }
    match label {
        LABEL_NAMESPACE => "namespace".to_owned(),
        LABEL_SERVICE_ACCOUNT => "service account".to_owned(),
        other => format!("label {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn all_depends_on_the_kind_of_selector() {
        let pod = labels(&[(LABEL_NAMESPACE, "shop"), ("pcns.team", "a"), (LABEL_SERVICE_ACCOUNT, "web")]);
        let host = labels(&[("role", "node")]);
        let (none, all) = (SelectorText::default(), SelectorText::from("all()"));
        // Selector, namespaces, accounts; whether pod and host are selected.
        for (selector, namespaces, accounts, expected) in [
            (&all, &none, &none, [true, true]),
            (&none, &all, &none, [true, false]),
            (&all, &SelectorText::from("!has(x)"), &none, [true, false]),
            (&none, &SelectorText::from("!has(x)"), &none, [true, true]),
            (&all, &none, &SelectorText::from("!has(x)"), [true, false]),
            (&none, &SelectorText::from("team == 'b'"), &none, [false, false]),
        ] {
            let selection = Selection::of_global(selector, namespaces, accounts);
            let found = [selection.selects(&pod), selection.selects(&host)];
            assert_eq!(found, expected, "{selector} / {namespaces} / {accounts}");
        }
    }

    #[test]
    fn a_rule_of_a_namespace_stays_in_it() {
        let end = |selector: &str, namespaces: &str, not: &str| EntityRule {
            selector: selector.into(),
            namespace_selector: namespaces.into(),
            not_selector: not.into(),
            ..EntityRule::default()
        };
        let here = labels(&[(LABEL_NAMESPACE, "shop"), ("app", "web")]);
        let there = labels(&[(LABEL_NAMESPACE, "other"), ("app", "web")]);
        let nowhere = labels(&[("app", "web")]);
        for (end, expected) in [
            (end("app == 'web'", "", ""), [true, false, false]),
            (end("app == 'web'", "all()", ""), [true, true, false]),
            (end("app == 'web'", "global()", ""), [false, false, true]),
            (end("", "", "app == 'db'"), [true, false, false]),
        ] {
            let selection = Selection::of_end("shop", &end);
            assert_eq!(
                [&here, &there, &nowhere].map(|labels| selection.selects(labels)),
                expected,
                "{end:?}"
            );
        }
        assert!(Selection::of_end("shop", &end("", "", "")).is_empty());
    }
}
