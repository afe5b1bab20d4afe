//! The messages to a dataplane that concern services.

use crate::services::Update;
use bpf::layout::Family;
use messages::ToDataplane;

impl Update {
    /// The change of services of an IP version that a message describes, if any.
    #[must_use]
    pub fn told<F: Family>(message: &ToDataplane) -> Option<Self> {
        match message {
            ToDataplane::ServiceObject(name, service) => Some(Self::Service(name.clone(), service.clone())),
            ToDataplane::EndpointSliceObject(name, slice) => Some(Self::Slice(name.clone(), slice.clone())),
            ToDataplane::HostMetadataUpdate(node, host) => {
                let text = if F::NUMBER == 4 { &host.ipv4_addr } else { &host.ipv6_addr };
                let address = text.split('/').next().and_then(|address| address.parse().ok());
                Some(Self::Host(node.to_string(), address))
            }
            ToDataplane::HostMetadataRemove(node) => Some(Self::Host(node.to_string(), None)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bpf::layout::{V4, V6};
    use messages::HostMetadata;

    #[test]
    fn nodes_have_an_address_in_each_version_or_none() {
        let host = HostMetadata { ipv4_addr: "10.0.0.1/24".to_owned(), ..HostMetadata::default() };
        let message = ToDataplane::HostMetadataUpdate("n1".into(), host);
        let address = |update| match update {
            Some(Update::Host(name, address)) => (name, address.map(|address| address.to_string())),
            other => panic!("{other:?}"),
        };
        assert_eq!(address(Update::told::<V4>(&message)), ("n1".to_owned(), Some("10.0.0.1".to_owned())));
        assert_eq!(address(Update::told::<V6>(&message)), ("n1".to_owned(), None));
        assert_eq!(
            address(Update::told::<V4>(&ToDataplane::HostMetadataRemove("n1".into()))),
            ("n1".to_owned(), None)
        );
        assert!(Update::told::<V4>(&ToDataplane::InSync).is_none());
    }
}
