//! Converts FelixConfiguration and ClusterInformation to texts, one per setting.
//!
//! Felix reads its settings as texts under its own names, which are older than the resource: seconds without a unit,
//! comma-separated lists. The rows of [`PARAMETERS`] define the setting and the format of each field. An annotation
//! `config.projectcalico.org/NAME` overrides the field, unchecked, and may name a setting that has no field.

use crate::table::{PARAMETERS, is_same};
use api::scalars::{Duration, IpOrCidr, go_duration};
use api::{ClusterInformation, FelixConfiguration, ObjectMeta};
use model::convert::Faults;
use serde_json::Value;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// The prefix of a setting's name in an annotation.
const ANNOTATION_PREFIX: &str = api::words::PARAMETER_PREFIX;

/// How a field is written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Unchanged; lists with commas, maps as `key=value,`.
    Plain,
    /// A duration, in seconds.
    Seconds,
    /// A duration, in milliseconds.
    Milliseconds,
    /// `protocol:port` or `protocol:net:port` with commas; `none` for an empty list.
    ProtocolPorts,
    /// `min-max`.
    Range,
    /// `min-max` with commas.
    Ranges,
    /// `name=duration` with commas.
    HealthTimeouts,
    /// `Name=value` with commas, by the names of Go's fields.
    ConntrackTimeouts,
}

impl Form {
    /// The form that a row of the table names, checked at compile time.
    pub(crate) const fn named(name: &str) -> Self {
        const FORMS: [(&str, Form); 7] = [
            ("Seconds", Form::Seconds),
            ("Milliseconds", Form::Milliseconds),
            ("ProtocolPorts", Form::ProtocolPorts),
            ("Range", Form::Range),
            ("Ranges", Form::Ranges),
            ("HealthTimeouts", Form::HealthTimeouts),
            ("ConntrackTimeouts", Form::ConntrackTimeouts),
        ];
        let mut index = 0;
        while index < FORMS.len() {
            if is_same(FORMS[index].0.as_bytes(), name.as_bytes()) {
                return FORMS[index].1;
            }
            index += 1;
        }
        panic!("a row of the table names an unknown form");
    }
}

/// A field of FelixConfiguration that sets a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in the resource.
    pub json: &'static str,
    /// The parameter.
    pub name: &'static str,
    /// How the field is written as the parameter's text.
    pub form: Form,
}

/// The fields of FelixConfiguration that set parameters. `nodeSelector` is not one of them: it selects the nodes for
/// the others.
pub fn fields() -> impl Iterator<Item = Field> {
    PARAMETERS.iter().filter_map(|parameter| {
        let (json, form) = parameter.resource?;
        Some(Field { json, name: parameter.name, form })
    })
}

/// The nodes that a configuration is for, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All nodes: `default`.
    Global,
    /// One node: `node.NAME`.
    Host(&'a str),
    /// The nodes that its selector matches: any other name.
    Selected,
}

/// The nodes that a configuration of this name is for.
#[must_use]
pub fn scope(name: &str) -> Scope<'_> {
    match name.strip_prefix("node.") {
        _ if name == api::words::GLOBAL_NAME => Scope::Global,
        Some(host) => Scope::Host(host),
        None => Scope::Selected,
    }
}

/// Felix's settings in an object: those of its fields that are set, and those in its annotations.
#[must_use]
pub fn felix(configuration: &FelixConfiguration, faults: &mut Faults) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    if let Ok(Value::Object(fields)) = api::codec::to_value(&configuration.spec) {
        for Field { json, name, form } in self::fields() {
            let Some(value) = fields.get(json) else { continue };
            match text(value, form) {
                Ok(Some(text)) => _ = settings.insert(name.to_owned(), text),
                Ok(None) => {}
                Err(reason) => faults.add(format!("spec.{json}"), reason),
            }
        }
    }
    settings.extend(overrides(&configuration.metadata));
    settings
}

/// The settings in the annotations.
fn overrides(metadata: &ObjectMeta) -> impl Iterator<Item = (String, String)> + '_ {
    metadata
        .annotations
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(ANNOTATION_PREFIX)?.to_owned(), value.clone())))
}

/// The settings from ClusterInformation, apart from the flag whether the datastore is ready.
pub const CLUSTER_SETTINGS: [&str; 4] = ["ClusterGUID", "ClusterType", "CalicoVersion", "Variant"];

/// The values of [`CLUSTER_SETTINGS`], in that order; `None` if a field is empty.
#[must_use]
pub fn cluster(information: &ClusterInformation) -> [Option<String>; 4] {
    let spec = &information.spec;
    [&spec.cluster_guid, &spec.cluster_type, &spec.calico_version, &spec.variant]
        .map(|text| Some(text.clone()).filter(|text| !text.is_empty()))
}

/// A field as text; `None` if it counts as unset.
fn text(value: &Value, form: Form) -> Result<Option<String>, String> {
    let wrong = || format!("{value} is not what this field holds");
    let parts = |value: &Value, part: fn(&Value) -> Option<String>| -> Result<String, String> {
        let list = value.as_array().ok_or_else(wrong)?;
        let texts: Option<Vec<String>> = list.iter().map(part).collect();
        Ok(texts.ok_or_else(wrong)?.join(","))
    };
    Ok(match form {
        Form::Plain => plain(value).ok_or_else(wrong)?,
        Form::Seconds => Some(go_float(duration(value)?.as_secs_f64())),
        Form::Milliseconds => Some(go_float(milliseconds(duration(value)?))),
        Form::ProtocolPorts if value.as_array().is_some_and(Vec::is_empty) => Some("none".to_owned()),
        Form::ProtocolPorts => Some(parts(value, protocol_port)?),
        Form::Range => Some(range(value).ok_or_else(wrong)?),
        Form::Ranges => Some(parts(value, range)?),
        Form::HealthTimeouts => Some(parts(value, health_timeout)?).filter(|text| !text.is_empty()),
        Form::ConntrackTimeouts => Some(conntrack_timeouts(value).ok_or_else(wrong)?),
    })
}

/// Texts, numbers and truth values unchanged, lists with commas, maps with a comma after each pair. An empty text
/// counts as unset, but an empty list does not.
fn plain(value: &Value) -> Option<Option<String>> {
    Some(match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(items) => {
            let texts: Option<Vec<String>> =
                items.iter().map(|item| plain(item).map(Option::unwrap_or_default)).collect();
            Some(texts?.join(","))
        }
        Value::Object(pairs) => {
            let texts: Option<String> =
                pairs.iter().map(|(key, value)| Some(format!("{key}={},", plain(value)??))).collect();
            Some(texts?)
        }
    })
}

fn duration(value: &Value) -> Result<std::time::Duration, String> {
    let text = value.as_str().ok_or_else(|| format!("{value} is not a duration"))?;
    Duration::new(text).parse()
}

/// Converts whole milliseconds and the remainder separately and adds them, like Calico, so that the digits agree.
fn milliseconds(duration: std::time::Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "durations of this table are far below 2^53 milliseconds")]
    let whole = duration.as_millis() as f64;
    whole + f64::from(duration.subsec_nanos() % 1_000_000) / 1e6
}

fn protocol_port(value: &Value) -> Option<String> {
    let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (protocol, net) = (field("protocol").to_lowercase(), field("net"));
    let port = value.get("port")?.as_u64()?;
    Some(match IpOrCidr::new(net).parse() {
        _ if net.is_empty() => format!("{protocol}:{port}"),
        Ok(network) if network.ip_version() == 6 => format!("{protocol}:[{net}]:{port}"),
        Ok(_) => format!("{protocol}:{net}:{port}"),
        Err(_) => return None,
    })
}

fn range(value: &Value) -> Option<String> {
    Some(format!("{}-{}", value.get("min")?.as_i64()?, value.get("max")?.as_i64()?))
}

fn health_timeout(value: &Value) -> Option<String> {
    let timeout = value.get("timeout").and_then(Value::as_str).unwrap_or("0s");
    let timeout = Duration::new(timeout).parse().ok()?;
    Some(format!("{}={}", value.get("name")?.as_str()?, go_duration(timeout)))
}

/// In the order of Go's fields and with their names.
fn conntrack_timeouts(value: &Value) -> Option<String> {
    const FIELDS: [(&str, &str); 8] = [
        ("creationGracePeriod", "CreationGracePeriod"),
        ("tcpSynSent", "TCPSynSent"),
        ("tcpEstablished", "TCPEstablished"),
        ("tcpFinsSeen", "TCPFinsSeen"),
        ("tcpResetSeen", "TCPResetSeen"),
        ("udpTimeout", "UDPTimeout"),
        ("genericTimeout", "GenericTimeout"),
        ("icmpTimeout", "ICMPTimeout"),
    ];
    let fields = value.as_object()?;
    let texts: Vec<String> = FIELDS
        .iter()
        .filter_map(|(json, name)| Some(format!("{name}={}", fields.get(*json)?.as_str()?)))
        .collect();
    Some(texts.join(","))
}

/// Formats a number as Go does by default: the shortest exact digits, with an exponent from a million on.
fn go_float(number: f64) -> String {
    let text = format!("{number:e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    if number != 0.0 && !(-4..6).contains(&power) {
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", power.abs());
    }
    number.to_string()
}
