//! The resources that every cluster has: decides which to create or complete, given the existing ones.

use api::scalars::Duration as GoDuration;
use api::{
    EndpointToHost, FelixConfiguration, FelixConfigurationSpec, IPAMConfiguration, IPAMConfigurationSpec,
    Severity, VMAddressPersistence,
};

/// The name of objects that apply to the whole cluster.
pub(crate) const GLOBAL: &str = api::words::GLOBAL_NAME;

/// The name of the Felix settings of one node.
#[must_use]
pub(crate) fn node_settings_name(node: &str) -> String {
    format!("node.{node}")
}

/// What to do about an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change<T> {
    /// Nothing.
    None,
    /// It does not exist: store this.
    Create(T),
    /// It is incomplete: store this instead.
    Update(T),
}

impl<T: Clone + PartialEq> Change<T> {
    /// Determines the change that makes the object complete; `new` is the object to complete if none is stored.
    fn to(stored: Option<T>, new: impl FnOnce() -> T, complete: impl FnOnce(&mut T)) -> Self {
        match stored {
            None => {
                let mut object = new();
                complete(&mut object);
                Self::Create(object)
            }
            Some(stored) => {
                let mut object = stored.clone();
                complete(&mut object);
                if object == stored { Self::None } else { Self::Update(object) }
            }
        }
    }
}

/// The cluster's Felix settings: quiet, and logging only to the container's output.
#[must_use]
pub(crate) fn felix(stored: Option<FelixConfiguration>) -> Change<FelixConfiguration> {
    let new = || FelixConfiguration::new("", GLOBAL, FelixConfigurationSpec::default());
    Change::to(stored, new, |object| {
        let spec = &mut object.spec;
        spec.reporting_interval.get_or_insert_with(|| GoDuration::from_std(std::time::Duration::ZERO));
        if spec.log_severity_screen.is_empty() {
            spec.log_severity_screen = Severity::Info.as_str().into();
        }
    })
}

/// The node's own Felix settings: workloads may reach their host as far as the host's own rules allow.
#[must_use]
pub(crate) fn felix_of_node(node: &str, stored: Option<FelixConfiguration>) -> Change<FelixConfiguration> {
    let new = || FelixConfiguration::new("", &node_settings_name(node), FelixConfigurationSpec::default());
    Change::to(stored, new, |object| {
        let action = &mut object.spec.default_endpoint_to_host_action;
        if action.is_empty() {
            *action = EndpointToHost::Return.as_str().into();
        }
    })
}

/// The settings of address management that apply by default.
#[must_use]
pub(crate) fn ipam() -> IPAMConfiguration {
    let spec = IPAMConfigurationSpec {
        auto_allocate_blocks: true,
        strict_affinity: false,
        max_blocks_per_host: 0,
        kubevirt_vm_address_persistence: Some(VMAddressPersistence::Enabled),
        ..IPAMConfigurationSpec::default()
    };
    IPAMConfiguration::new("", GLOBAL, spec)
}

/// The cluster's type: the user's words, then the detected ones.
#[must_use]
pub(crate) fn cluster_type(given: &str, is_kubeadm: bool, is_rancher: bool) -> String {
    let seen = [("kubeadm", is_kubeadm), ("rancher", is_rancher)];
    let seen = seen.into_iter().filter(|(_, seen)| *seen).map(|(word, _)| word);
    std::iter::once(given).filter(|given| !given.is_empty()).chain(seen).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn felix_settings_are_created_completed_or_left_alone() {
        let Change::Create(made) = felix(None) else { panic!("nothing to create") };
        assert_eq!(made.metadata.name, "default");
        assert_eq!(made.spec.reporting_interval.as_ref().map(GoDuration::as_str), Some("0s"));
        assert_eq!(made.spec.log_severity_screen.as_str(), "Info");
        assert_eq!(felix(Some(made.clone())), Change::None);
        let mut chosen = made.clone();
        chosen.spec.log_severity_screen = "Debug".into();
        chosen.spec.reporting_interval = Some("30s".into());
        assert_eq!(felix(Some(chosen.clone())), Change::None);
        chosen.spec.reporting_interval = None;
        let Change::Update(completed) = felix(Some(chosen)) else { panic!("nothing to update") };
        assert_eq!(completed.spec.reporting_interval.as_ref().map(GoDuration::as_str), Some("0s"));
        assert_eq!(completed.spec.log_severity_screen.as_str(), "Debug");
    }

    #[test]
    fn a_node_lets_workloads_reach_their_host() {
        let Change::Create(made) = felix_of_node("a", None) else { panic!("nothing to create") };
        assert_eq!(made.metadata.name, "node.a");
        assert_eq!(made.spec.default_endpoint_to_host_action.as_str(), "Return");
        assert_eq!(felix_of_node("a", Some(made.clone())), Change::None);
        let mut strict = made;
        strict.spec.default_endpoint_to_host_action = "Drop".into();
        assert_eq!(felix_of_node("a", Some(strict)), Change::None);
    }

    #[test]
    fn the_cluster_type_combines_given_and_detected_words() {
        for (given, kubeadm, rancher, expected) in [
            ("", false, false, ""),
            ("k8s,bgp", false, false, "k8s,bgp"),
            ("", true, false, "kubeadm"),
            ("k8s", true, true, "k8s,kubeadm,rancher"),
        ] {
            assert_eq!(cluster_type(given, kubeadm, rancher), expected);
        }
    }
}
