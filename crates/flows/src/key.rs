//! What identifies a flow.

use crate::trace::Trace;
use std::sync::Arc;

/// A string shared by many flows.
pub type Text = Arc<str>;

/// Declares an enum of the wire: its variants, their numbers, and Calico's names.
macro_rules! wire_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $text:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            /// Not given, or an unknown number.
            #[default]
            Unspecified,
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $name {
            /// The number on the wire.
            #[must_use]
            pub fn number(self) -> i32 {
                match self {
                    Self::Unspecified => 0,
                    $(Self::$variant => $number,)+
                }
            }

            /// The value for a number on the wire.
            #[must_use]
            pub fn from_number(number: i32) -> Self {
                match number {
                    $($number => Self::$variant,)+
                    _ => Self::Unspecified,
                }
            }

            /// Calico's name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    Self::Unspecified => "",
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}
pub(crate) use wire_enum;

wire_enum! {
    /// What happened to the packets.
    pub enum Action {
        /// They passed.
        Allow = 1, "Allow";
        /// They were dropped.
        Deny = 2, "Deny";
        /// The next tier decided.
        Pass = 3, "Pass";
    }
}

wire_enum! {
    /// What one end of a flow is.
    pub enum EndpointType {
        /// A pod or another workload.
        Workload = 1, "WorkloadEndpoint";
        /// A host.
        Host = 2, "HostEndpoint";
        /// An address of a network set.
        NetworkSet = 3, "NetworkSet";
        /// Any other address.
        Network = 4, "Network";
    }
}

wire_enum! {
    /// Which end's node reports the flow.
    pub enum Reporter {
        /// The source's, after its egress policies.
        Src = 1, "Src";
        /// The destination's, after its ingress policies.
        Dst = 2, "Dst";
    }
}

/// Which policies a packet goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Those of the destination.
    Ingress,
    /// Those of the source.
    Egress,
}

impl Reporter {
    /// The direction of the policies that this reporter sees.
    #[must_use]
    pub fn direction(self) -> Direction {
        match self {
            Self::Src => Direction::Egress,
            Self::Dst | Self::Unspecified => Direction::Ingress,
        }
    }
}

/// One end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// What it is.
    pub kind: EndpointType,
    /// Its namespace; `-` for none.
    pub namespace: Text,
    /// Its name, or the name of its kind of pods followed by `*`; `pub` or `pvt` for other addresses.
    pub name: Text,
}

/// The service that a connection went through.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service {
    /// Its namespace; `-` for no service.
    pub namespace: Text,
    /// Its name.
    pub name: Text,
    /// The name of its port.
    pub port_name: Text,
    /// The number of its port.
    pub port: i64,
}

/// Identifies a flow. Connections that differ only in addresses, source ports or pods of one kind are the same flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The client.
    pub source: Peer,
    /// The server.
    pub dest: Peer,
    /// The server's port, after translation.
    pub dest_port: i64,
    /// The service that the client connected to.
    pub service: Service,
    /// `tcp`, `udp`, ...; for other protocols, their number.
    pub protocol: Text,
    /// The end whose node reports the flow.
    pub reporter: Reporter,
    /// The final action.
    pub action: Action,
    /// The policies that decided.
    pub trace: Arc<Trace>,
}
