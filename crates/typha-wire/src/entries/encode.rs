//! Encodes entries as keys and values.

use super::forms::{host, policy, pool, profile_rules, set, tier, wireguard, workload};
use super::path::put_path;
use api::Resource;
use model::feed::FeedEntry;
use model::{KeyError, V1Key};
use serde::Serialize;

/// An entry as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The path.
    pub path: String,
    /// The value; `None` when the entry is gone.
    pub value: Option<Vec<u8>>,
    /// The version that was removed from a resource.
    pub resource_version: String,
}

/// Why an entry cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// Its key has no path.
    #[error("{0}")]
    Key(#[from] KeyError),
    /// Its value has no JSON.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// The messages for an entry: one key, or two for a profile, whose labels have a key of their own on the wire.
///
/// # Errors
/// When the entry cannot be encoded: a bug in the code that created it.
pub fn encode(entry: &FeedEntry) -> Result<Vec<Encoded>, EncodeError> {
    let mut all = Vec::with_capacity(1);
    Encoder::default().encode(entry, |path, value, resource_version| {
        all.push(Encoded {
            path: path.to_owned(),
            value: value.map(<[u8]>::to_vec),
            resource_version: resource_version.to_owned(),
        });
    })?;
    Ok(all)
}

/// Buffers reused for successive entries, for callers that keep the result in another form.
#[derive(Debug, Default)]
pub struct Encoder {
    path: String,
    value: Vec<u8>,
}

impl Encoder {
    /// Passes what is sent for an entry to `take`, in the order of [`encode`]: path, value (`None` when it is gone),
    /// and the version that was removed from a resource.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn encode(
        &mut self,
        entry: &FeedEntry,
        mut put: impl FnMut(&str, Option<&[u8]>, &str),
    ) -> Result<(), EncodeError> {
        let Self { path, value: out } = self;
        put_path(entry.key(), path)?;
        out.clear();
        let mut resource_version = String::new();
        // Only set for a profile.
        let mut labels = None;
        let mut resource = |resource: Resource, out: &mut Vec<u8>| {
            let mut resource = resource;
            resource_version = std::mem::take(&mut resource.metadata_mut().resource_version);
            *out = escaped(resource.to_json()?);
            Ok(())
        };
        let value = match entry {
            FeedEntry::Ready(_, value) => value.map(|ready| {
                out.extend_from_slice(ready.to_string().as_bytes());
                Ok(())
            }),
            FeedEntry::GlobalConfig(_, value) | FeedEntry::HostConfig(_, value) => {
                value.as_ref().map(|text| {
                    out.extend_from_slice(text.as_bytes());
                    Ok(())
                })
            }
            FeedEntry::Policy(_, value) => value.as_ref().map(|value| json(&policy(value), out)),
            FeedEntry::Tier(_, value) => value.as_ref().map(|value| json(&tier(value), out)),
            FeedEntry::ProfileRules(_, value) => value.as_ref().map(|value| json(&profile_rules(value), out)),
            FeedEntry::Profile(name, value) => {
                let own = value.as_ref().map(|profile| &profile.spec.labels_to_apply);
                let own = own.filter(|labels| !labels.is_empty());
                let path = V1Key::ProfileLabels { name: name.clone() }.path()?;
                own.map(|labels| json(labels, out)).transpose()?;
                labels = Some((path, own.map(|_| std::mem::take(out))));
                value.as_ref().map(|profile| resource((**profile).clone().into(), out))
            }
            FeedEntry::WorkloadEndpoint(_, value) => value.as_ref().map(|value| json(&workload(value), out)),
            FeedEntry::HostEndpoint(_, value) => value.as_ref().map(|value| json(&host(value), out)),
            FeedEntry::NetworkSet(_, value) => value.as_ref().map(|value| json(&set(value), out)),
            FeedEntry::IpPool(_, value) => value.as_ref().map(|value| json(&pool(value), out)),
            FeedEntry::Wireguard(_, value) => value.as_ref().map(|value| json(&wireguard(value), out)),
            FeedEntry::Block(_, value) => value.as_ref().map(|block| json(&**block, out)),
            FeedEntry::BlockAffinity(_, value) => value.as_ref().map(|value| json(value, out)),
            FeedEntry::Node(_, value) => {
                value.as_ref().map(|value| resource(value.object.clone().into(), out))
            }
            FeedEntry::BgpConfiguration(_, value) => {
                value.as_ref().map(|value| resource((**value).clone().into(), out))
            }
            FeedEntry::BgpPeer(_, value) => {
                value.as_ref().map(|value| resource(value.object.clone().into(), out))
            }
            FeedEntry::BgpFilter(_, value) => {
                value.as_ref().map(|value| resource((**value).clone().into(), out))
            }
            FeedEntry::Service(_, value) => {
                value.as_ref().map(|value| resource((**value).clone().into(), out))
            }
            FeedEntry::EndpointSlice(_, value) => {
                value.as_ref().map(|value| resource((**value).clone().into(), out))
            }
            FeedEntry::LiveMigration(_, value) => {
                value.as_ref().map(|value| resource(value.object.clone().into(), out))
            }
            FeedEntry::FelixConfiguration(_, value) => {
                value.as_ref().map(|value| resource((**value).clone().into(), out))
            }
            FeedEntry::NodeStatus(_, value) => {
                value.as_ref().map(|value| resource((**value).clone().into(), out))
            }
            FeedEntry::Resource(_, value) => value.as_ref().map(|value| resource((**value).clone(), out)),
        };
        let value = value.transpose()?.map(|()| out.as_slice());
        if let Some((path, labels)) = labels {
            put(&path, labels.as_deref(), "");
        }
        put(path, value, &resource_version);
        Ok(())
    }
}

/// JSON as Go writes it: characters that could end a script in a page are escaped.
fn json<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    out.clear();
    serde_json::to_writer(&mut *out, value)?;
    if has_special(out) {
        *out = escaped(std::mem::take(out));
    }
    Ok(())
}

/// Whether there is anything to escape. A whole chunk is checked without a branch, so that the processor handles many
/// bytes at once.
fn has_special(json: &[u8]) -> bool {
    let is_special = |byte: u8| matches!(byte, b'<' | b'>' | b'&' | 0xe2);
    json.chunks(64).any(|chunk| chunk.iter().fold(false, |found, byte| found | is_special(*byte)))
}

fn escaped(json: Vec<u8>) -> Vec<u8> {
    if !has_special(&json) {
        return json;
    }
    let mut out = Vec::with_capacity(json.len() + 16);
    let mut rest = &json[..];
    while let Some((&first, after)) = rest.split_first() {
        let (text, length): (&[u8], usize) = match (first, after) {
            (b'<', _) => (b"\\u003c", 1),
            (b'>', _) => (b"\\u003e", 1),
            (b'&', _) => (b"\\u0026", 1),
            (0xe2, [0x80, 0xa8, ..]) => (b"\\u2028", 3),
            (0xe2, [0x80, 0xa9, ..]) => (b"\\u2029", 3),
            _ => (&rest[..1], 1),
        };
        out.extend_from_slice(text);
        rest = &rest[length..];
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn characters_special_to_html_are_escaped_as_in_go() {
        let text = "a<b>&\u{2028}é\u{20ac}";
        let mut json = b"what was there before".to_vec();
        super::json(text, &mut json).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert_eq!(json, "\"a\\u003cb\\u003e\\u0026\\u2028é\u{20ac}\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
