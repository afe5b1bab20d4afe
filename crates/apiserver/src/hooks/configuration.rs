//! The cluster's webhook configurations as values, and the writes they apply to.
//!
//! Conditions in CEL (`matchConditions`) are not evaluated: such a webhook is called as if they held. It may therefore
//! be called, and deny, more often than intended, but never less.

use crate::kinds::{GROUP, Served, VERSION};
use crate::selectors::{LabelSelector, Operator, Requirement};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is created.
    Create,
    /// It is updated.
    Update,
    /// It is deleted.
    Delete,
}

impl Operation {
    /// Kubernetes' name for the operation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A webhook of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hook {
    /// Its name.
    pub name: String,
    /// The server: `https://HOST:PORT`.
    pub server: String,
    /// The path on the server, including a query if there is one.
    pub path: String,
    /// PEM of the authorities of its certificate; empty for those of this machine.
    pub authorities: Vec<u8>,
    /// Whether a write proceeds when the call fails.
    pub ignores_failures: bool,
    /// How long a call may take.
    pub timeout: Duration,
    /// Whether it may be called for a dry run.
    pub allows_dry_run: bool,
    /// Whether it is called again if other webhooks change the object after it.
    pub is_asked_again: bool,
    /// Whether it supports reviews of `admission.k8s.io/v1`.
    pub reads_v1: bool,
    /// Whether it has conditions that are not evaluated here.
    pub has_conditions: bool,
    /// Selects the namespaces that it applies to.
    pub namespaces: LabelSelector,
    objects: LabelSelector,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    scope: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Configuration {
    webhooks: Vec<Webhook>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Webhook {
    name: String,
    client_config: ClientConfig,
    rules: Vec<Rule>,
    failure_policy: Option<String>,
    namespace_selector: Selector,
    object_selector: Selector,
    side_effects: Option<String>,
    timeout_seconds: Option<u64>,
    admission_review_versions: Vec<String>,
    match_conditions: Vec<Value>,
    reinvocation_policy: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClientConfig {
    url: Option<String>,
    service: Option<Service>,
    ca_bundle: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Service {
    namespace: String,
    name: String,
    path: Option<String>,
    port: Option<u16>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    values: BTreeSet<String>,
}

impl Selector {
    fn read(self) -> Result<LabelSelector, String> {
        let mut found = LabelSelector::default();
        for (key, value) in self.match_labels {
            found.add(Requirement { key, operator: Operator::Equals(value) });
        }
        for Expression { key, operator, values } in self.match_expressions {
            let operator = match operator.as_str() {
                "In" => Operator::In(values),
                "NotIn" => Operator::NotIn(values),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("unknown operator {other:?} of a selector")),
            };
            found.add(Requirement { key, operator });
        }
        Ok(found)
    }
}

/// Reads the webhooks of a configuration of either flavour.
///
/// # Errors
/// When something cannot be read.
pub(crate) fn read(configuration: &Value) -> Result<Vec<Hook>, String> {
    let Configuration { webhooks } =
        Configuration::deserialize(configuration).map_err(|error| error.to_string())?;
    webhooks.into_iter().map(hook).collect()
}

fn hook(webhook: Webhook) -> Result<Hook, String> {
    let Webhook { name, client_config, .. } = &webhook;
    let (server, path) = place(client_config).ok_or_else(|| format!("webhook {name:?} has no address"))?;
    let authorities = STANDARD.decode(client_config.ca_bundle.as_deref().unwrap_or_default());
    Ok(Hook {
        server,
        path,
        authorities: authorities.map_err(|error| format!("the caBundle of webhook {name:?}: {error}"))?,
        ignores_failures: webhook.failure_policy.as_deref() == Some("Ignore"),
        timeout: Duration::from_secs(webhook.timeout_seconds.unwrap_or(10).clamp(1, 30)),
        allows_dry_run: matches!(webhook.side_effects.as_deref(), Some("None" | "NoneOnDryRun")),
        is_asked_again: webhook.reinvocation_policy.as_deref() == Some("IfNeeded"),
        reads_v1: webhook.admission_review_versions.iter().any(|version| version == "v1"),
        has_conditions: !webhook.match_conditions.is_empty(),
        namespaces: webhook.namespace_selector.read()?,
        objects: webhook.object_selector.read()?,
        rules: webhook.rules,
        name: webhook.name,
    })
}

/// The server and the path. A Service is called by its name, as every other aggregated server does.
fn place(config: &ClientConfig) -> Option<(String, String)> {
    if let Some(service) = &config.service {
        let path = service.path.as_deref().unwrap_or_default().trim_start_matches('/');
        let (name, namespace) = (&service.name, &service.namespace);
        let server = format!("https://{name}.{namespace}.svc:{}", service.port.unwrap_or(443));
        return Some((server, format!("/{path}")));
    }
    let url = config.url.as_deref()?;
    let rest = url.strip_prefix("https://")?;
    Some(match rest.split_once('/') {
        Some((host, path)) => (format!("https://{host}"), format!("/{path}")),
        None => (url.to_owned(), "/".to_owned()),
    })
}

fn has(list: &[String], word: &str) -> bool {
    list.iter().any(|one| one == "*" || one == word)
}

impl Rule {
    fn is_for(&self, operation: Operation, served: &Served, is_status: bool) -> bool {
        let scope = if served.kind.is_namespaced() { "Namespaced" } else { "Cluster" };
        let subresource = if is_status { "status" } else { "" };
        let is_meant = |entry: &String| {
            let (resource, part) = entry.split_once('/').unwrap_or((entry, ""));
            (resource == "*" || resource == served.plural()) && (part == "*" || part == subresource)
        };
        has(&self.operations, operation.as_str())
            && has(&self.api_groups, GROUP)
            && has(&self.api_versions, VERSION)
            && self.resources.iter().any(is_meant)
            && self.scope.as_deref().is_none_or(|wanted| wanted == "*" || wanted == scope)
    }
}

/// Whether the labels of an object match a selector.
#[must_use]
pub(crate) fn selects(selector: &LabelSelector, object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    selector.matches(|key| labels?.get(key)?.as_str())
}

impl Hook {
    /// Whether the webhook applies to this operation on this resource at all.
    #[must_use]
    pub(crate) fn is_for(&self, operation: Operation, served: &Served, is_status: bool) -> bool {
        self.rules.iter().any(|rule| rule.is_for(operation, served, is_status))
    }

    /// Whether the webhook applies to this object, in its new or its old form.
    #[must_use]
    pub(crate) fn is_for_object(&self, object: Option<&Value>, old: Option<&Value>) -> bool {
        self.objects.is_empty() || [object, old].into_iter().flatten().any(|one| selects(&self.objects, one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(webhook: &Value) -> Hook {
        read(&json!({"webhooks": [webhook]})).expect("a configuration").remove(0)
    }

    fn check(rule: &Value, expected: &[(&str, Operation, bool)]) {
        let hook = one(&json!({"name": "h", "clientConfig": {"url": "https://x"}, "rules": [rule]}));
        for plural in ["networkpolicies", "tiers"] {
            for operation in [Operation::Create, Operation::Update, Operation::Delete] {
                for is_status in [false, true] {
                    let served = Served::from_plural(plural).expect("served");
                    let wanted = expected.contains(&(plural, operation, is_status));
                    assert_eq!(
                        hook.is_for(operation, served, is_status),
                        wanted,
                        "{plural} {operation:?} {is_status}"
                    );
                }
            }
        }
    }

    #[test]
    fn rules_select_operations_and_resources() {
        use Operation::{Create, Delete, Update};
        let rule = |operations: &[&str], resources: &[&str], scope: &str| {
            json!({"operations": operations, "apiGroups": ["projectcalico.org"], "apiVersions": ["*"], "resources": resources,
                   "scope": scope})
        };
        check(&rule(&["CREATE"], &["tiers"], "*"), &[("tiers", Create, false)]);
        check(&rule(&["UPDATE"], &["tiers/status"], "*"), &[("tiers", Update, true)]);
        check(&rule(&["UPDATE"], &["tiers/*"], "*"), &[("tiers", Update, false), ("tiers", Update, true)]);
        check(&rule(&["DELETE"], &["*"], "Namespaced"), &[("networkpolicies", Delete, false)]);
        check(
            &rule(&["*"], &["*/status"], "Cluster"),
            &[("tiers", Create, true), ("tiers", Update, true), ("tiers", Delete, true)],
        );
        check(
            &json!({"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["*/*"]}),
            &[],
        );
        check(
            &json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["*/*"]}),
            &[],
        );
    }

    #[test]
    fn addresses_and_defaults() {
        let service = one(
            &json!({"name": "h", "sideEffects": "Some", "admissionReviewVersions": ["v1beta1"], "clientConfig": {
            "service": {"name": "s", "namespace": "n", "path": "a/b?c=d"}, "caBundle": "YWJj"}}),
        );
        assert_eq!((service.server.as_str(), service.path.as_str()), ("https://s.n.svc:443", "/a/b?c=d"));
        assert_eq!((service.authorities.as_slice(), service.timeout.as_secs()), (&b"abc"[..], 10));
        assert!(!service.allows_dry_run && !service.reads_v1 && !service.ignores_failures);
        let url = one(
            &json!({"name": "h", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
                             "timeoutSeconds": 3, "clientConfig": {"url": "https://host:8443/x"}}),
        );
        assert_eq!((url.server.as_str(), url.path.as_str()), ("https://host:8443", "/x"));
        assert!(url.allows_dry_run && url.reads_v1 && url.ignores_failures && url.timeout.as_secs() == 3);
        assert!(
            read(&json!({"webhooks": [{"name": "h", "clientConfig": {"url": "http://plain"}}]})).is_err()
        );
        assert!(read(&json!({"webhooks": [{"name": "h"}]})).is_err());
    }

    #[test]
    fn objects_are_selected_by_their_new_or_old_form() {
        let hook = one(&json!({"name": "h", "clientConfig": {"url": "https://x"}, "objectSelector": {
            "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}]}}));
        let object = |labels: Value| json!({"metadata": {"labels": labels}});
        let (yes, no) = (object(json!({"a": "b"})), object(json!({"a": "b", "c": "d"})));
        assert!(hook.is_for_object(Some(&yes), None) && !hook.is_for_object(Some(&no), None));
        assert!(hook.is_for_object(Some(&no), Some(&yes)) && hook.is_for_object(None, Some(&yes)));
        assert!(!hook.is_for_object(Some(&json!({})), None));
    }
}
