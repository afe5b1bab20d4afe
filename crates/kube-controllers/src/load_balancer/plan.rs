//! The actions for one service: a function of the service, its addresses, the pools and the configuration.

use super::service::{LoadBalancerPool, Service, Wish, WishError};
use api::AssignIPs;
use ipnet::IpNet;
use model::IpVersion;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// An action. Actions are carried out in order; a failure ends the work, except for a failed assignment, after which
/// the status must still be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Release everything under the handle.
    ReleaseAll,
    /// Release these addresses.
    Release {
        /// The addresses.
        addresses: Vec<IpAddr>,
        /// The reason, for the log.
        reason: &'static str,
    },
    /// Assign these addresses.
    AssignThese(Vec<IpAddr>),
    /// Assign any addresses.
    AssignAny {
        /// How many IPv4 addresses.
        num4: usize,
        /// How many IPv6 addresses.
        num6: usize,
        /// Only from these IPv4 pools, if any are named.
        pools4: Vec<IpNet>,
        /// Only from these IPv6 pools, if any are named.
        pools6: Vec<IpNet>,
    },
    /// Make the status list exactly the addresses that the service has then.
    WriteStatus,
    /// Remove these from the status, and leave the rest of it unchanged.
    RemoveFromStatus(Vec<IpAddr>),
}

/// The facts that the plan is based on.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    /// The service; `None` if it is gone, or another one has its name.
    pub service: Option<&'a Service>,
    /// The addresses that it has.
    pub held: &'a BTreeSet<IpAddr>,
    /// The pools for load balancers.
    pub pools: &'a [LoadBalancerPool],
    /// Which services get addresses.
    pub assign: &'a AssignIPs,
}

/// Plans the actions for a service.
///
/// # Errors
/// When the service's annotations are invalid.
pub(crate) fn plan(facts: &Facts<'_>) -> Result<Vec<Action>, WishError> {
    let held: Vec<IpAddr> = facts.held.iter().copied().collect();
    let Some(service) = facts.service else {
        return Ok(if held.is_empty() { Vec::new() } else { vec![Action::ReleaseAll] });
    };
    if facts.pools.is_empty() {
        // The last pool is gone, and its addresses with it.
        return Ok(if held.is_empty() { Vec::new() } else { vec![Action::ReleaseAll, Action::WriteStatus] });
    }
    if !service.is_ours(facts.assign) {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let mut actions = vec![Action::ReleaseAll];
        if &*service.kind == super::service::LOAD_BALANCER {
            actions.push(Action::RemoveFromStatus(held));
        }
        return Ok(actions);
    }
    let wish = service.wish(facts.pools)?;
    let (unwanted, reason) = unwanted(&wish, &held, facts.pools);
    let kept: Vec<IpAddr> = held.into_iter().filter(|address| !unwanted.contains(address)).collect();
    let mut actions = Vec::new();
    if !unwanted.is_empty() {
        actions.push(Action::Release { addresses: unwanted, reason });
    }
    let assignment = assignment(service, wish, &kept);
    if !actions.is_empty() || assignment.is_some() || !lists(service, &kept) {
        actions.extend(assignment);
        actions.push(Action::WriteStatus);
    }
    Ok(actions)
}

fn unwanted(wish: &Wish, held: &[IpAddr], pools: &[LoadBalancerPool]) -> (Vec<IpAddr>, &'static str) {
    let is_wanted = |address: &IpAddr| match wish {
        Wish::These(addresses) => addresses.contains(address),
        Wish::From { pools4, pools6 } => pools4.iter().chain(pools6).any(|pool| pool.contains(address)),
        Wish::Any => {
            let pool = pools.iter().find(|pool| pool.cidr.contains(address));
            !pool.is_some_and(|pool| pool.is_manual)
        }
    };
    let reason = match wish {
        Wish::These(_) => "the service requests another address",
        Wish::From { .. } => "it is not in the pools that the service requests",
        Wish::Any => "its pool is only for services that request it",
    };
    (held.iter().filter(|address| !is_wanted(address)).copied().collect(), reason)
}

fn assignment(service: &Service, wish: Wish, kept: &[IpAddr]) -> Option<Action> {
    let (pools4, pools6) = match wish {
        Wish::These(addresses) => {
            let missing: Vec<IpAddr> =
                addresses.into_iter().filter(|address| !kept.contains(address)).collect();
            return (!missing.is_empty()).then_some(Action::AssignThese(missing));
        }
        Wish::From { pools4, pools6 } => (pools4, pools6),
        Wish::Any => (Vec::new(), Vec::new()),
    };
    let missing = |version: IpVersion| {
        let has = kept.iter().any(|address| version_of(*address) == version);
        usize::from(service.families.contains(&version) && !has)
    };
    let (num4, num6) = (missing(IpVersion::V4), missing(IpVersion::V6));
    (num4 + num6 > 0).then_some(Action::AssignAny { num4, num6, pools4, pools6 })
}

/// Whether the status lists exactly these addresses.
fn lists(service: &Service, addresses: &[IpAddr]) -> bool {
    service.ingress.len() == addresses.len()
        && service.ingress.iter().all(|text| text.parse().is_ok_and(|address| addresses.contains(&address)))
}

/// The addresses in the order of the service's families, as its status lists them.
#[must_use]
pub(crate) fn in_order(service: &Service, held: &BTreeSet<IpAddr>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = held.iter().copied().collect();
    let place = |address: &IpAddr| {
        let version = version_of(*address);
        service.families.iter().position(|family| *family == version).unwrap_or(usize::MAX)
    };
    addresses.sort_by_key(place);
    addresses
}

fn version_of(address: IpAddr) -> IpVersion {
    if address.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: IpVersion = IpVersion::V4;
    const V6: IpVersion = IpVersion::V6;

    fn pools() -> Vec<LoadBalancerPool> {
        let pool = |name: &str, cidr: &str, is_manual| LoadBalancerPool {
            name: name.into(),
            cidr: cidr.parse().expect("a range"),
            is_manual,
        };
        vec![
            pool("auto", "10.0.0.0/24", false),
            pool("hand", "10.1.0.0/24", true),
            pool("six", "fd00::/64", false),
        ]
    }

    fn service(families: &[IpVersion], ingress: &[&str]) -> Service {
        Service {
            kind: "LoadBalancer".into(),
            families: families.into(),
            ingress: ingress.iter().map(|text| (*text).into()).collect(),
            ..Service::default()
        }
    }

    fn text(
        service: Option<&Service>,
        held: &[&str],
        pools: &[LoadBalancerPool],
        assign: &AssignIPs,
    ) -> String {
        let held = held.iter().map(|text| text.parse().expect("an address")).collect();
        let facts = Facts { service, held: &held, pools, assign };
        match plan(&facts) {
            Err(error) => format!("error: {error}"),
            Ok(actions) => {
                let words: Vec<String> = actions
                    .into_iter()
                    .map(|action| match action {
                        Action::ReleaseAll => "release all".to_owned(),
                        Action::Release { addresses, .. } => format!("release {addresses:?}"),
                        Action::AssignThese(addresses) => format!("assign {addresses:?}"),
                        Action::AssignAny { num4, num6, pools4, pools6 } => {
                            format!("assign {num4}+{num6} of {}+{}", pools4.len(), pools6.len())
                        }
                        Action::WriteStatus => "status".to_owned(),
                        Action::RemoveFromStatus(addresses) => format!("status without {addresses:?}"),
                    })
                    .collect();
                words.join(", ")
            }
        }
    }

    #[test]
    fn services_get_missing_addresses_and_keep_the_others() {
        let all = || &AssignIPs::AllServices;
        let pools = pools();
        let dual = service(&[V6, V4], &[]);
        assert_eq!(text(Some(&dual), &[], &pools, all()), "assign 1+1 of 0+0, status");
        // An earlier attempt succeeded for one family only.
        assert_eq!(text(Some(&dual), &["10.0.0.1"], &pools, all()), "assign 0+1 of 0+0, status");
        assert_eq!(text(Some(&dual), &["10.0.0.1", "fd00::1"], &pools, all()), "status");
        let done = service(&[V4], &["10.0.0.1"]);
        assert_eq!(text(Some(&done), &["10.0.0.1"], &pools, all()), "");
        assert_eq!(text(Some(&service(&[V4], &["10.0.0.9"])), &["10.0.0.1"], &pools, all()), "status");
        assert_eq!(text(Some(&service(&[V4], &[""])), &["10.0.0.1"], &pools, all()), "status");
        let order = in_order(&dual, &["10.0.0.1", "fd00::1"].map(|text| text.parse().expect("one")).into());
        assert_eq!(format!("{order:?}"), "[fd00::1, 10.0.0.1]");
    }

    #[test]
    fn changed_requests_replace_addresses() {
        let all = || &AssignIPs::AllServices;
        let pools = pools();
        let mut asks = service(&[V4], &["10.0.0.1"]);
        asks.addresses = Some("[\"10.1.0.7\"]".into());
        assert_eq!(
            text(Some(&asks), &["10.0.0.1"], &pools, all()),
            "release [10.0.0.1], assign [10.1.0.7], status"
        );
        let mut from = service(&[V4], &["10.0.0.1"]);
        from.pools4 = Some("[\"hand\"]".into());
        assert_eq!(
            text(Some(&from), &["10.0.0.1"], &pools, all()),
            "release [10.0.0.1], assign 1+0 of 1+0, status"
        );
        let plain = service(&[V4], &["10.1.0.7"]);
        assert_eq!(
            text(Some(&plain), &["10.1.0.7"], &pools, all()),
            "release [10.1.0.7], assign 1+0 of 0+0, status"
        );
        let mut by_field = service(&[V4], &["10.1.0.7"]);
        by_field.address = "10.1.0.7".into();
        assert_eq!(text(Some(&by_field), &["10.1.0.7"], &pools, all()), "");
        let mut wrong = service(&[V4], &["10.0.0.1"]);
        wrong.pools4 = Some("[\"none\"]".into());
        assert!(text(Some(&wrong), &["10.0.0.1"], &pools, all()).starts_with("error"));
    }

    #[test]
    fn deleted_or_foreign_services_release_their_addresses() {
        let pools = pools();
        let all = || &AssignIPs::AllServices;
        assert_eq!(text(None, &["10.0.0.1"], &pools, all()), "release all");
        assert_eq!(text(None, &[], &pools, all()), "");
        let mut other = service(&[V4], &["10.0.0.1"]);
        other.class = Some("other".into());
        assert_eq!(
            text(Some(&other), &["10.0.0.1"], &pools, all()),
            "release all, status without [10.0.0.1]"
        );
        let mut internal = service(&[V4], &[]);
        internal.kind = "ClusterIP".into();
        assert_eq!(text(Some(&internal), &["10.0.0.1"], &pools, all()), "release all");
        assert_eq!(text(Some(&internal), &[], &pools, all()), "");
        let silent = service(&[V4], &["10.0.0.1"]);
        let requested = &AssignIPs::RequestedServicesOnly;
        assert_eq!(
            text(Some(&silent), &["10.0.0.1"], &pools, requested),
            "release all, status without [10.0.0.1]"
        );
        // No pool is left.
        assert_eq!(text(Some(&silent), &["10.0.0.1"], &[], all()), "release all, status");
        assert_eq!(text(Some(&silent), &[], &[], all()), "");
    }
}
