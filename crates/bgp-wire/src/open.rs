//! OPEN: a speaker's identity and capabilities.

use crate::{AddPathMode, Asn, Capability, Family, GracefulRestart, RouterId};

/// The placeholder for AS numbers that need four bytes (RFC 6793).
pub const AS_TRANS: u16 = 23456;

/// The first message on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The AS number in the two-byte field. The real number is [`Open::system`].
    pub my_as: u16,
    /// The hold time in seconds; 0 for none.
    pub hold_time: u16,
    /// The speaker's BGP identifier.
    pub router_id: RouterId,
    /// The speaker's capabilities, in order.
    pub capabilities: Vec<Capability>,
}

impl Open {
    /// Creates an OPEN with the capability of four-byte AS numbers.
    #[must_use]
    pub fn new(system: Asn, hold_time: u16, router_id: RouterId) -> Self {
        Self {
            my_as: system.two_bytes(),
            hold_time,
            router_id,
            capabilities: vec![Capability::FourByteAs(system)],
        }
    }

    /// The speaker's AS number.
    #[must_use]
    pub fn system(&self) -> Asn {
        self.four_byte_as().unwrap_or(Asn(u32::from(self.my_as)))
    }

    /// The speaker's AS number from its capability of four-byte numbers.
    #[must_use]
    pub fn four_byte_as(&self) -> Option<Asn> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::FourByteAs(system) => Some(*system),
            _ => None,
        })
    }

    /// Whether it offers a capability without further fields.
    #[must_use]
    pub fn has(&self, wanted: &Capability) -> bool {
        self.capabilities.contains(wanted)
    }

    /// The offered families. Without any multiprotocol capability: IPv4 (RFC 4760).
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

    /// The offer of graceful restart.
    #[must_use]
    pub fn graceful_restart(&self) -> Option<&GracefulRestart> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::GracefulRestart(restart) => Some(restart),
            _ => None,
        })
    }

    /// The offer of several paths for a family.
    #[must_use]
    pub fn add_path(&self, family: Family) -> Option<AddPathMode> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::AddPath(modes) => modes.iter().find(|(of, _)| *of == family).map(|(_, mode)| *mode),
            _ => None,
        })
    }
}
