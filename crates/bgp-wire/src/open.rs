//! OPEN: who a speaker is, and what it can do.

use crate::{AddPathMode, Asn, Capability, Family, GracefulRestart, RouterId};

/// The number that stands for a system whose number needs four bytes (RFC 6793).
pub const AS_TRANS: u16 = 23456;

/// The first message on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The system in the message's two-byte field. The true number is [`Open::system`].
    pub my_as: u16,
    /// How many seconds the speaker waits for a message; 0 for ever.
    pub hold_time: u16,
    /// The speaker's identifier.
    pub router_id: RouterId,
    /// What it can do, in its order.
    pub capabilities: Vec<Capability>,
}

impl Open {
    /// An OPEN of a system, with the capability of four-byte numbers.
    #[must_use]
    pub fn new(system: Asn, hold_time: u16, router_id: RouterId) -> Self {
        Self {
            my_as: system.two_bytes(),
            hold_time,
            router_id,
            capabilities: vec![Capability::FourByteAs(system)],
        }
    }

    /// The speaker's system.
    #[must_use]
    pub fn system(&self) -> Asn {
        self.four_byte_as().unwrap_or(Asn(u32::from(self.my_as)))
    }

    /// The speaker's system, if it can do four-byte numbers.
    #[must_use]
    pub fn four_byte_as(&self) -> Option<Asn> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::FourByteAs(system) => Some(*system),
            _ => None,
        })
    }

    /// Whether it offers a capability that has no further fields.
    #[must_use]
    pub fn has(&self, wanted: &Capability) -> bool {
        self.capabilities.contains(wanted)
    }

    /// The families it offers. Without any multiprotocol capability: IPv4 (RFC 4760).
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        let offers = self.capabilities.iter().any(|capability| {
            matches!(capability, Capability::Multiprotocol(_) | Capability::OtherFamily(..))
        });
        if !offers {
            return vec![Family::Ipv4];
        }
        Family::ALL.into_iter().filter(|family| self.has(&Capability::Multiprotocol(*family))).collect()
    }

    /// Its offer of graceful restart.
    #[must_use]
    pub fn graceful_restart(&self) -> Option<&GracefulRestart> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::GracefulRestart(restart) => Some(restart),
            _ => None,
        })
    }

    /// Its offer of several paths for a family.
    #[must_use]
    pub fn add_path(&self, family: Family) -> Option<AddPathMode> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::AddPath(modes) => modes.iter().find(|(of, _)| *of == family).map(|(_, mode)| *mode),
            _ => None,
        })
    }
}
