//! The kernel's encoding of expressions: each a name and its attributes.

use super::{
    ConntrackKey, Data, Expression, FibResult, LIST_ELEMENT, MetaKey, NatKind, PayloadBase, Register,
    RejectKind,
};
use crate::wire::Writer;

/// The attributes of an expression.
const NAME: u16 = 1;
const DATA: u16 = 2;

fn value(writer: &mut Writer, number: u16, data: &Data) {
    writer.nested(number, |inner| {
        inner.bytes(1, data.as_bytes());
    });
}

impl Expression {
    /// The kernel's name of the expression.
    const fn name(&self) -> &'static str {
        match self {
            Self::Meta { .. } | Self::SetMark(_) => "meta",
            Self::Conntrack { .. } | Self::SetConnectionMark(_) => "ct",
            Self::Compare { .. } => "cmp",
            Self::Range { .. } => "range",
            Self::Bitwise { .. } => "bitwise",
            Self::Payload { .. } | Self::WriteNetwork { .. } => "payload",
            Self::Lookup { .. } | Self::LookupAnonymous { .. } | Self::LookupVerdict { .. } => "lookup",
            Self::Load { .. } | Self::Verdict(_) => "immediate",
            Self::Counter => "counter",
            Self::Log { .. } | Self::NfLog { .. } => "log",
            Self::Reject(_) => "reject",
            Self::Nat { .. } => "nat",
            Self::Masquerade { .. } => "masq",
            Self::NoTrack => "notrack",
            Self::Limit { .. } => "limit",
            Self::ConnectionsOver(_) => "connlimit",
            Self::Fib { .. } => "fib",
            Self::FlowOffload(_) => "flow_offload",
        }
    }

    /// Writes the expression as an element of a rule's list. `anonymous` is the number of the set that a
    /// [`Expression::LookupAnonymous`] refers to.
    pub(in super::super) fn write(&self, writer: &mut Writer, anonymous: u32) {
        writer.nested(LIST_ELEMENT, |expression| {
            expression.text(NAME, self.name());
            expression.nested(DATA, |data| self.write_data(data, anonymous));
        });
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one arm per expression, each a list of the kernel's attributes"
    )]
    fn write_data(&self, data: &mut Writer, anonymous: u32) {
        match self {
            Self::Meta { key, register } => {
                data.u32_be(2, key.number()).u32_be(1, register.0);
            }
            Self::SetMark(register) => {
                data.u32_be(2, MetaKey::Mark.number()).u32_be(3, register.0);
            }
            Self::Conntrack { key, register } => {
                data.u32_be(2, key.number()).u32_be(1, register.0);
            }
            Self::SetConnectionMark(register) => {
                data.u32_be(2, ConntrackKey::Mark.number()).u32_be(4, register.0);
            }
            Self::Compare { register, operator, data: with } => {
                data.u32_be(1, register.0).u32_be(2, operator.number());
                value(data, 3, with);
            }
            Self::Range { register, negated, from, to } => {
                data.u32_be(1, register.0).u32_be(2, u32::from(*negated));
                value(data, 3, from);
                value(data, 4, to);
            }
            Self::Bitwise { register, mask, xor } => {
                data.u32_be(1, register.0).u32_be(2, register.0).u32_be(3, u32::from(mask.length));
                value(data, 4, mask);
                value(data, 5, xor);
            }
            Self::Payload { base, offset, length, register } => {
                data.u32_be(1, register.0).u32_be(2, base.number()).u32_be(3, *offset).u32_be(4, *length);
            }
            Self::WriteNetwork { offset, length, register, checksum } => {
                data.u32_be(5, register.0)
                    .u32_be(2, PayloadBase::Network.number())
                    .u32_be(3, *offset)
                    .u32_be(4, *length)
                    .u32_be(6, u32::from(checksum.is_some()))
                    .u32_be(7, checksum.unwrap_or(0));
            }
            Self::Lookup { set, register, negated } => {
                data.u32_be(2, register.0).text(1, set);
                if *negated {
                    data.u32_be(5, 1);
                }
            }
            Self::LookupAnonymous { register, negated, .. } => {
                data.u32_be(2, register.0)
                    .text(1, &super::super::set::anonymous_name(anonymous))
                    .u32_be(4, anonymous);
                if *negated {
                    data.u32_be(5, 1);
                }
            }
            Self::LookupVerdict { map, register } => {
                data.u32_be(2, register.0).u32_be(3, Register::VERDICT.0).text(1, map);
            }
            Self::Load { data: with, register } => {
                data.u32_be(1, register.0);
                value(data, 2, with);
            }
            Self::Verdict(verdict) => {
                data.u32_be(1, Register::VERDICT.0);
                verdict.write(data, 2);
            }
            Self::Counter => {
                data.u64_be(1, 0).u64_be(2, 0);
            }
            Self::Log { prefix, level } => {
                data.text(2, prefix).u32_be(5, *level);
            }
            Self::NfLog { group, prefix, length } => {
                data.text(2, prefix).u16_be(1, *group);
                if *length > 0 {
                    data.u32_be(3, *length);
                }
            }
            Self::Reject(RejectKind::Unreachable(code)) => {
                data.u32_be(1, 0).u8(2, *code);
            }
            Self::Reject(RejectKind::TcpReset) => {
                data.u32_be(1, 1).u8(2, 0);
            }
            Self::Nat { kind, family, address, port, port_last, flags } => {
                data.u32_be(1, u32::from(*kind == NatKind::Destination)).u32_be(2, u32::from(*family));
                data.u32_be(3, address.0);
                if let Some(port) = port {
                    data.u32_be(5, port.0);
                }
                if let Some(port) = port_last {
                    data.u32_be(6, port.0);
                }
                if *flags != 0 {
                    data.u32_be(7, *flags);
                }
            }
            Self::Masquerade { ports, flags } => {
                if *flags != 0 {
                    data.u32_be(1, *flags);
                }
                if let Some((first, last)) = ports {
                    data.u32_be(2, first.0).u32_be(3, last.0);
                }
            }
            Self::NoTrack => {}
            Self::Limit { rate, seconds, burst, over } => {
                data.u64_be(1, *rate)
                    .u64_be(2, *seconds)
                    .u32_be(3, *burst)
                    .u32_be(4, 0)
                    .u32_be(5, u32::from(*over));
            }
            Self::ConnectionsOver(count) => {
                data.u32_be(1, *count).u32_be(2, 1);
            }
            Self::Fib { flags, result, register } => {
                let result = match result {
                    FibResult::Interface => 1,
                    FibResult::AddressType => 3,
                };
                data.u32_be(3, *flags).u32_be(2, result).u32_be(1, register.0);
            }
            Self::FlowOffload(table) => {
                data.text(1, table);
            }
        }
    }
}
