//! UPDATE: the lists, with RFC 7606's handling of errors in them.

use super::attributes::{self, Fault};
use super::prefixes::prefixes;
use super::reader::Reader;
use crate::{
    AttributeFault, Cause, Family, FaultAction, FaultKind, NextHop, Nlri, Notification, Reach,
    SessionOptions, Update, UpdateFault, attribute,
};

/// Decodes the body of an UPDATE.
pub(super) fn decode(body: &[u8], options: &SessionOptions) -> Result<Update, Notification> {
    let malformed = || Notification::from(Cause::Update(UpdateFault::MalformedAttributes));
    let mut reader = Reader::new(body);
    let withdrawn = reader.u16().and_then(|length| reader.take(usize::from(length))).ok_or_else(malformed)?;
    let attributes =
        reader.u16().and_then(|length| reader.take(usize::from(length))).ok_or_else(malformed)?;
    let announced = reader.rest();

    let mut update = Update::default();
    let with_path = options.add_path_receive[Family::Ipv4.index()];
    if withdrawn.is_empty() && attributes.is_empty() && announced.is_empty() {
        update.end_of_rib = options.exchanges(Family::Ipv4).then_some(Family::Ipv4);
        return Ok(update);
    }
    prefixes(withdrawn, Family::Ipv4, with_path, &mut update.withdrawn)?;
    let read = attributes::read(attributes, options)?;
    update.attributes = read.attributes;
    update.faults = read.faults;

    if let Some(unreach) = read.unreach {
        if unreach.nlri.is_empty() && read.count == 1 && withdrawn.is_empty() && announced.is_empty() {
            update.end_of_rib = Some(unreach.family);
            return Ok(update);
        }
        prefixes(unreach.nlri, unreach.family, unreach.with_path, &mut update.withdrawn)?;
    }
    let mut reachable: Vec<(Family, Option<NextHop>, Vec<Nlri>)> = Vec::new();
    if !announced.is_empty() {
        let mut nlri = Vec::new();
        update.ignored += prefixes(announced, Family::Ipv4, with_path, &mut nlri)?;
        if read.next_hop.is_none() && !update.faults.iter().any(|fault| fault.code == attribute::NEXT_HOP) {
            update.faults.push(missing(attribute::NEXT_HOP));
        }
        reachable.push((Family::Ipv4, read.next_hop, nlri));
    }
    if let Some(reach) = read.reach {
        let mut nlri = Vec::new();
        update.ignored += prefixes(reach.nlri, reach.family, reach.with_path, &mut nlri)?;
        reachable.push((reach.family, reach.next_hop, nlri));
    }
    if !reachable.is_empty() {
        for (code, present) in [(attribute::ORIGIN, read.has_origin), (attribute::AS_PATH, read.has_as_path)]
        {
            if !present && !update.faults.iter().any(|fault| fault.code == code) {
                update.faults.push(missing(code));
            }
        }
    }

    let withdraw = update.faults.iter().find(|fault| fault.action == FaultAction::Withdraw);
    // Attributes without routes, one of them unreadable: it may have contained the routes (RFC 7606, 5.2).
    if let Some(fault) = withdraw
        && reachable.is_empty()
    {
        return Err(Cause::Update(fault.as_update_fault()).into());
    }
    let lost = withdraw.is_some();
    for (family, next_hop, nlri) in reachable {
        // Routes of a family that was not agreed on are dropped.
        if !options.exchanges(family) {
            continue;
        }
        match next_hop {
            Some(next_hop) if !lost => update.reach.push(Reach { family, next_hop, nlri }),
            _ => update.withdrawn.extend(nlri),
        }
    }
    if !options.exchanges(Family::Ipv4) {
        update.withdrawn.retain(|nlri| nlri.family() != Family::Ipv4);
    }
    if lost {
        update.attributes = crate::Attributes::default();
    }
    Ok(update)
}

fn missing(code: u8) -> Fault {
    AttributeFault { code, kind: FaultKind::Missing, action: FaultAction::Withdraw }
}
