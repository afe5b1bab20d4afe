//! Names as types, so that the name of an interface cannot be mistaken for that of a profile.

use model::name_types;

name_types! {
    /// The name of a network interface of this host.
    InterfaceName;
    /// The name of a host endpoint.
    HostEndpointName;
    /// The identity of a set: `s:…` (selector), `n:…` (named port), `svc:…`, `svcnoport:…`, or a fixed name.
    IpSetId;
}
