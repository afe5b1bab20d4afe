//! FelixConfiguration: the settings of the agent on each node.
//!
//! `default` applies to all nodes, `node.<name>` to one, and any other object to the nodes its selector matches. This
//! module defines the fields and their rules; Felix merges the objects.

mod choices;
mod parts;
mod spec;
mod validation;

pub use choices::*;
pub use parts::*;
pub use spec::FelixConfigurationSpec;

use crate::errors::FieldErrors;
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::rules::Reason;
use serde_json::{Map, Value, json};

/// The settings of Felix, for all nodes, for one, or for some.
pub type FelixConfiguration = Object<FelixConfigurationSpec>;

const SELECTOR_FORBIDDEN: &str =
    "nodeSelector must not be set on the 'default' or per-node ('node.*') FelixConfiguration";

/// Whether an object of this name applies to all nodes or to exactly one.
fn is_default_or_per_node(name: &str) -> bool {
    name == crate::words::GLOBAL_NAME || name.starts_with("node.")
}

impl Spec for FelixConfigurationSpec {
    const KIND: Kind = Kind::FelixConfiguration;
    type Status = NoStatus;

    fn set_defaults(&mut self, _metadata: &mut ObjectMeta) {
        self.respell_durations();
        self.floating_ips.get_or_insert(EnabledOrDisabled::Disabled.into());
        self.bpf_connect_time_load_balancing.get_or_insert(BPFConnectTimeLoadBalancing::TCP.into());
        self.bpf_host_networked_nat_without_ctlb.get_or_insert(EnabledOrDisabled::Enabled.into());
        // The old switch, if set, determines both of the fields that replaced it.
        if let Some(enabled) = self.bpf_connect_time_load_balancing_enabled {
            self.bpf_host_networked_nat_without_ctlb = Some(EnabledOrDisabled::Disabled.into());
            let connect_time = if enabled {
                BPFConnectTimeLoadBalancing::Enabled
            } else {
                BPFConnectTimeLoadBalancing::Disabled
            };
            self.bpf_connect_time_load_balancing = Some(connect_time.into());
        }
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        self.check(metadata, errors);
    }

    fn object_schema(schema: &mut Map<String, Value>) {
        let rule = json!({
            "rule": "!has(self.spec.nodeSelector) || \
                     !(self.metadata.name == 'default' || self.metadata.name.startsWith('node.'))",
            "message": SELECTOR_FORBIDDEN,
            "reason": Reason::Forbidden.as_str(),
        });
        schema.insert("x-kubernetes-validations".into(), json!([rule]));
    }
}
