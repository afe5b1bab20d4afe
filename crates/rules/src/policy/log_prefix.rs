//! The prefix of the lines that log rules write.

use crate::names::{Backend, short_kind};
use crate::renderer::Renderer;
use crate::tree::Text;
use model::v1::PolicyKey;

/// The limit of nftables, without the colon and space after the prefix.
const MAX_NFTABLES: usize = 125;

/// The name, with the namespace if there is one.
pub(super) fn full_name(key: &PolicyKey) -> String {
    let (namespace, name) = (&key.namespace, &key.name);
    if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") }
}

impl Renderer {
    pub(super) fn policy_log_prefix(&self, key: &PolicyKey, tier: &str) -> Text {
        self.expanded_log_prefix(short_kind(key.kind), &key.name, &full_name(key), tier)
    }

    pub(super) fn profile_log_prefix(&self, name: &str) -> Text {
        self.expanded_log_prefix("pro", name, name, "")
    }

    fn expanded_log_prefix(&self, kind: &str, name: &str, full_name: &str, tier: &str) -> Text {
        let setting = match self.config.log_prefix.as_str() {
            "" => "calico-packet",
            setting => setting,
        };
        let mut text = String::with_capacity(setting.len());
        let mut rest = setting;
        while let Some(at) = rest.find('%') {
            text.push_str(&rest[..at]);
            let (value, used) = match rest[at + 1..].chars().next() {
                Some('t') => (tier, 2),
                Some('k') => (kind, 2),
                Some('n') => (name, 2),
                Some('p') => (full_name, 2),
                _ => ("%", 1),
            };
            text.push_str(value);
            rest = &rest[at + used..];
        }
        text.push_str(rest);
        // Between quotes, these would end the text or the line.
        let mut text: String = text
            .chars()
            .map(|one| if one.is_control() || matches!(one, '"' | '\\') { '_' } else { one })
            .collect();
        if self.backend() == Backend::Nftables && text.len() > MAX_NFTABLES {
            let end = (0..=MAX_NFTABLES).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
            text.truncate(end);
        }
        text.into()
    }
}
