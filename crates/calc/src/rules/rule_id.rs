//! The ids of rules: sixteen characters of a chained hash, so that a rule's id identifies its content, its place and
//! everything before it.
//!
//! The hash is of the rule as Felix's protocol would send it, without the id, because that is what Calico hashes. So
//! this file knows the field numbers of that message, and the order in which Calico's library writes them.

use api::scalars::Protocol;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use messages::{IcmpMatch, OriginalEnd, PortRange, Rule, RuleEnd};
use model::IpVersion;
use sha2::{Digest as _, Sha224};

const LENGTH: usize = 16;

/// Gives each rule its id. `seed` is the kind, direction and name of the owner.
pub(crate) fn fill_in(rules: &mut [Rule], seed: &str) {
    if rules.is_empty() {
        return;
    }
    let mut hash = Sha224::digest(seed);
    let mut message = Message::default();
    for rule in rules {
        message.0.clear();
        message.rule(rule);
        hash = Sha224::new().chain_update(hash).chain_update(&message.0).finalize();
        rule.rule_id = URL_SAFE_NO_PAD.encode(hash);
        rule.rule_id.truncate(LENGTH);
    }
}

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn key(&mut self, field: u32, kind: u32) {
        crate::bytes::put_number(&mut self.0, u64::from(field << 3 | kind));
    }

    fn number(&mut self, field: u32, number: u64) {
        self.key(field, 0);
        crate::bytes::put_number(&mut self.0, number);
    }

    /// Writes a number that is left out if it is 0.
    fn number_if(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.number(field, number);
        }
    }

    fn text(&mut self, field: u32, text: &str) {
        self.key(field, 2);
        crate::bytes::put_bytes(&mut self.0, text.as_bytes());
    }

    /// Writes a text that is left out if it is empty.
    fn text_if(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.text(field, text);
        }
    }

    fn texts<T: AsRef<str>>(&mut self, field: u32, texts: &[T]) {
        for text in texts {
            self.text(field, text.as_ref());
        }
    }

    fn nested(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.key(field, 2);
        crate::bytes::put_bytes(&mut self.0, &inner.0);
    }

    fn displayed<T: ToString>(&mut self, field: u32, values: &[T]) {
        for value in values {
            self.text(field, &value.to_string());
        }
    }

    fn rule(&mut self, rule: &Rule) {
        let (source, destination) = (&rule.source, &rule.destination);
        self.text(1, rule.action.as_str());
        self.number_if(2, rule.ip_version.map_or(0, |version| u64::from(IpVersion::number(version))));
        self.protocol(3, rule.protocol.as_ref());
        self.displayed(4, &source.nets);
        self.ports(5, &source.ports);
        self.displayed(6, &destination.nets);
        self.ports(7, &destination.ports);
        self.texts(10, &source.ip_set_ids);
        self.texts(11, &destination.ip_set_ids);
        self.texts(12, &source.named_port_ip_set_ids);
        self.texts(13, &destination.named_port_ip_set_ids);
        self.texts(15, &destination.ip_port_set_ids);
        self.protocol(102, rule.not_protocol.as_ref());
        self.displayed(103, &source.not_nets);
        self.ports(104, &source.not_ports);
        self.displayed(105, &destination.not_nets);
        self.ports(106, &destination.not_ports);
        self.texts(109, &source.not_ip_set_ids);
        self.texts(110, &destination.not_ip_set_ids);
        self.texts(112, &source.not_named_port_ip_set_ids);
        self.texts(113, &destination.not_named_port_ip_set_ids);
        self.originals(source, destination);
        if let Some(http) = &rule.http {
            self.nested(122, |message| {
                message.texts(1, &http.methods);
                for path in &http.paths {
                    if !path.exact.is_empty() {
                        message.nested(2, |path_match| path_match.text(1, &path.exact));
                    } else if !path.prefix.is_empty() {
                        message.nested(2, |path_match| path_match.text(2, &path.prefix));
                    }
                }
            });
        }
        if !rule.annotations.is_empty() {
            self.nested(123, |message| {
                for (name, value) in &rule.annotations {
                    message.nested(1, |entry| {
                        entry.text(1, name);
                        entry.text(2, value);
                    });
                }
            });
        }
        if let Some(original) = destination.original.as_deref() {
            self.text_if(130, &original.service);
            self.text_if(131, &original.service_namespace);
        }
        if let Some(original) = source.original.as_deref() {
            self.text_if(132, &original.service);
            self.text_if(133, &original.service_namespace);
        }
        // Fields of which only one can be set come after all others.
        self.icmp(8, 9, rule.icmp);
        self.icmp(107, 108, rule.not_icmp);
    }

    fn originals(&mut self, source: &RuleEnd, destination: &RuleEnd) {
        let nothing = OriginalEnd::default();
        let source = source.original.as_deref().unwrap_or(&nothing);
        let destination = destination.original.as_deref().unwrap_or(&nothing);
        self.text_if(114, &source.selector);
        self.text_if(115, &destination.selector);
        self.text_if(116, &source.namespace_selector);
        self.text_if(117, &destination.namespace_selector);
        self.text_if(118, &source.not_selector);
        self.text_if(119, &destination.not_selector);
        for (field, end) in [(120, source), (121, destination)] {
            if !end.service_account_selector.is_empty() || !end.service_account_names.is_empty() {
                self.nested(field, |message| {
                    message.text_if(1, &end.service_account_selector);
                    message.texts(2, &end.service_account_names);
                });
            }
        }
    }

    fn protocol(&mut self, field: u32, protocol: Option<&Protocol>) {
        let Some(protocol) = protocol else { return };
        self.nested(field, |message| match protocol {
            Protocol::Number(number) => message.number(1, (*number).into()),
            // In the feed, names are in lower case.
            named => message.text(2, &named.to_string().to_lowercase()),
        });
    }

    fn ports(&mut self, field: u32, ports: &[PortRange]) {
        for port in ports {
            self.nested(field, |message| {
                message.number_if(1, port.first.into());
                message.number_if(2, port.last.into());
            });
        }
    }

    fn icmp(&mut self, type_field: u32, both_field: u32, icmp: Option<IcmpMatch>) {
        match icmp {
            None => {}
            Some(IcmpMatch { icmp_type, code: None }) => self.number(type_field, icmp_type.into()),
            Some(IcmpMatch { icmp_type, code: Some(code) }) => self.nested(both_field, |message| {
                message.number_if(1, icmp_type.into());
                message.number_if(2, code.into());
            }),
        }
    }
}
