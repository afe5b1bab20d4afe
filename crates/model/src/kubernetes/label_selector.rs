//! Converts Kubernetes label selectors into the text of Calico's.
//!
//! The text is exactly Calico's, because other components compare and hash it.

use api::kubernetes::LabelSelector;
use api::scalars::SelectorText;
use api::words::{KUBERNETES, LABEL_ORCHESTRATOR};

/// A selector over pods. It only ever selects what comes from Kubernetes, so that host endpoints are unaffected.
pub(super) fn pod_selector(selector: Option<&LabelSelector>) -> SelectorText {
    let mut terms = vec![format!("{LABEL_ORCHESTRATOR} == '{KUBERNETES}'")];
    if let Some(selector) = selector {
        push_terms(selector, &mut terms);
    }
    SelectorText::new(terms.join(" && "))
}

/// A selector over namespaces: empty if there is none, `all()` if there is one without terms.
pub(super) fn namespace_selector(selector: Option<&LabelSelector>) -> SelectorText {
    let Some(selector) = selector else {
        return SelectorText::default();
    };
    let mut terms = Vec::new();
    push_terms(selector, &mut terms);
    let has_terms = !selector.match_labels.is_empty() || !selector.match_expressions.is_empty();
    SelectorText::new(if has_terms { terms.join(" && ") } else { "all()".to_owned() })
}

fn push_terms(selector: &LabelSelector, terms: &mut Vec<String>) {
    for (label, value) in &selector.match_labels {
        terms.push(format!("{label} == '{value}'"));
    }
    for expression in &selector.match_expressions {
        let label = &expression.key;
        let values = expression.values.join("', '");
        match expression.operator.as_str() {
            "In" => terms.push(format!("{label} in {{ '{values}' }}")),
            "NotIn" => terms.push(format!("{label} not in {{ '{values}' }}")),
            "Exists" => terms.push(format!("has({label})")),
            "DoesNotExist" => terms.push(format!("! has({label})")),
            // Kubernetes rejects other operators.
            _ => {}
        }
    }
}
