//! `calico-ipam` ADD: addresses from Calico's blocks.

use super::lock::IpamLock;
use super::machine::Machine;
use crate::annotations::PoolChoice;
use crate::assigned::{Assigned, Traffic};
use crate::attachment::Attachment;
use crate::config::NetConf;
use crate::context::Context;
use crate::error::StoreFailure as _;
use crate::error::{CniError, Result, code};
use crate::identity::Identity;
use crate::request::Request;
use crate::wiring::Families;
use api::{IPPoolSpec, VMAddressPersistence};
use client::ListQuery;
use ipam::{
    Ahead, AssignIp, AutoAssign, Change, IntendedUse, NamespaceLabels, OwnerCheck, OwnerUpdate, Release,
};
use ipnet::IpNet;
use jiff::Timestamp;
use model::{HandleId, IpVersion};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long address management may take once it is the turn of this plugin.
const PATIENCE: Duration = Duration::from_secs(90);

/// The constraints on a container's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// One address of each of these families.
    pub(crate) families: Families,
    /// Only from these IPv4 pools, by range or by name.
    pub(crate) ipv4_pools: Vec<String>,
    /// Only from these IPv6 pools, by range or by name.
    pub(crate) ipv6_pools: Vec<String>,
}

impl Selection {
    /// The constraints of the `ipam` part of a configuration.
    pub(crate) fn of(conf: &NetConf) -> Self {
        let ipam = &conf.ipam;
        Self {
            families: Families {
                v4: ipam.assign_ipv4.as_deref() != Some("false"),
                v6: ipam.assign_ipv6.as_deref() == Some("true"),
            },
            ipv4_pools: ipam.ipv4_pools.clone(),
            ipv6_pools: ipam.ipv6_pools.clone(),
        }
    }

    /// Applies the choice of annotations.
    pub(crate) fn choose(&mut self, choice: PoolChoice) {
        let PoolChoice { ipv4_pools, ipv6_pools, families } = choice;
        self.families = families.unwrap_or(self.families);
        self.ipv4_pools = ipv4_pools.unwrap_or_else(|| std::mem::take(&mut self.ipv4_pools));
        self.ipv6_pools = ipv6_pools.unwrap_or_else(|| std::mem::take(&mut self.ipv6_pools));
    }
}

/// A request to address management.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    /// The requested address, if there is one.
    pub(crate) address: Option<IpAddr>,
    /// Constraints if no address is requested.
    pub(crate) selection: Selection,
    /// The pod's namespace, for pools that select namespaces.
    pub(crate) namespace: Option<NamespaceLabels>,
    /// What has already been read of address management.
    pub(crate) ahead: Option<Ahead>,
}

impl Wish {
    /// The wish of a request by itself.
    pub(crate) fn of(request: &Request) -> Self {
        Self { address: request.args.ip, selection: Selection::of(&request.conf), ..Self::default() }
    }
}

/// Reads what an assignment will need concurrently with everything else, in a process that has nothing cached. If that
/// fails, the assignment will fail and report it.
pub(crate) async fn look_ahead(attachment: &Attachment<'_>) -> Option<Ahead> {
    let Attachment { context, request, .. } = attachment;
    if context.shares_writes || !request.conf.is_calico_ipam() {
        return None;
    }
    let Families { v4, v6 } = Selection::of(&request.conf).families;
    let versions = [v4.then_some(IpVersion::V4), v6.then_some(IpVersion::V6)];
    let versions: Vec<IpVersion> = versions.into_iter().flatten().collect();
    context.store.ipam.look_ahead(attachment.node(), &versions).await.ok()
}

/// The handle that addresses are held under, and what is recorded about their owner.
struct Holding {
    handle: HandleId,
    attributes: BTreeMap<String, String>,
    /// How many addresses of a family the handle may have; 0 for any number.
    max_per_handle: usize,
}

/// Takes addresses for a container: one of each requested family, or the requested address. A virtual machine that has
/// addresses keeps them; while it is moving here, their packets are still delivered elsewhere.
///
/// # Errors
/// When an address is not available; nothing stays taken then.
pub(crate) async fn assign(attachment: &Attachment<'_>, wish: Wish) -> Result<Assigned> {
    let Attachment { context, request, identity } = attachment;
    let conf = &request.conf;
    let machine = match Machine::of(&context.store, conf, identity).await {
        Ok(Some(machine)) => {
            let keeps = keeps_addresses(context).await;
            if machine.migration.is_some() && !keeps {
                return Err(CniError::new(
                    code::ADDRESS,
                    "live migration target pod is not allowed when KubeVirtVMAddressPersistence is disabled",
                ));
            }
            Some(machine).filter(|_| keeps)
        }
        Ok(None) => None,
        Err(error) => {
            return Err(CniError { msg: format!("failed to get VMI info: {}", error.msg), ..error });
        }
    };
    let mut attributes = attributes(identity, context.now());
    let handle = match &machine {
        Some(machine) => {
            describe_machine(machine, &mut attributes);
            machine.handle(&conf.name, &identity.namespace)
        }
        None => identity.handle(),
    };
    let holding = Holding { handle, attributes, max_per_handle: usize::from(machine.is_some()) };
    if let Some(machine) = &machine
        && let Some(found) = reuse(context, machine, &holding).await?
    {
        return Ok(found);
    }
    match wish.address {
        Some(address) => Box::pin(assign_this(attachment, address, holding)).await,
        None => Box::pin(assign_any(attachment, wish, holding)).await,
    }
}

async fn assign_this(attachment: &Attachment<'_>, address: IpAddr, holding: Holding) -> Result<Assigned> {
    let Attachment { context, request, identity } = attachment;
    let node = attachment.node();
    let wanted = AssignIp {
        handle: Some(holding.handle),
        attributes: holding.attributes,
        intended_use: Some(IntendedUse::Workload),
        max_per_handle: holding.max_per_handle,
        ..AssignIp::new(address, node)
    };
    let _turn = turn(context, &request.conf).await;
    let work = async {
        context.upgrade_once(node).await?;
        let outcome = Box::pin(context.store.ipam.assign_ip(&wanted)).await;
        outcome.map_err(|error| {
            CniError::address(&format!("assigning address {address} to {}", identity.describe()), &error)
        })
    };
    timed(work).await?;
    Ok(Assigned::of(vec![address.into()], Traffic::Here))
}

async fn assign_any(attachment: &Attachment<'_>, wish: Wish, holding: Holding) -> Result<Assigned> {
    let Attachment { context, request, identity } = attachment;
    let conf = &request.conf;
    let (ipv4_pools, ipv6_pools) = resolve_pools(context, &wish.selection).await?;
    let Families { v4, v6 } = wish.selection.families;
    let (num4, num6) = (usize::from(v4), usize::from(v6));
    let wanted = AutoAssign {
        handle: Some(holding.handle),
        attributes: holding.attributes,
        num4,
        num6,
        ipv4_pools,
        ipv6_pools,
        namespace: wish.namespace,
        max_blocks_per_host: u32::from(conf.windows_use_single_network),
        max_per_handle: holding.max_per_handle,
        ..AutoAssign::new(attachment.node(), IntendedUse::Workload)
    };
    let _turn = turn(context, conf).await;
    let step = format!("assigning addresses to {}", identity.describe());
    let assigned = timed(async {
        Box::pin(context.store.ipam.auto_assign_after(wish.ahead, &wanted))
            .await
            .map_err(|error| CniError::address(&step, &error))
    })
    .await?;
    let short = [(IpVersion::V4, num4, assigned.ipv4.len()), (IpVersion::V6, num6, assigned.ipv6.len())]
        .into_iter()
        .find(|(_, wanted, got)| got < wanted);
    if let Some((version, wanted, got)) = short {
        // All or nothing: addresses of the other family are given back.
        let releases: Vec<Release> = assigned.addresses().map(Release::of).collect();
        if !releases.is_empty()
            && let Err(error) = context.store.ipam.release_ips(&releases).await
        {
            tracing::error!(%error, "addresses of the other family could not be given back; DEL will do it");
        }
        let reason = assigned.shortfall(version).map_or_else(
            || format!("Assigned {got} out of {wanted} requested IPv{version} addresses"),
            ToString::to_string,
        );
        return Err(CniError::new(code::ADDRESS, format!("failed to request IPv{version} addresses: {reason}"))
            .with_details("`calicoctl ipam show --show-blocks` shows how full the pools are; pools may also exclude this node or namespace"));
    }
    let taken = assigned.ipv4.into_iter().take(num4).chain(assigned.ipv6.into_iter().take(num6));
    Ok(Assigned::of(taken.collect(), Traffic::Here))
}

/// The addresses that the machine already has, with the owner recorded; `None` if it has none yet.
async fn reuse(context: &Context, machine: &Machine, holding: &Holding) -> Result<Option<Assigned>> {
    let ipam = &context.store.ipam;
    let handle = &holding.handle;
    let step = format!("failed to get existing IPs for VM handle {handle}");
    let addresses = match ipam.ips_by_handle(handle).await {
        Ok(addresses) => addresses,
        Err(error) if error.is_does_not_exist() => Vec::new(),
        Err(error) => return Err(CniError::address(&step, &error)),
    };
    if addresses.is_empty() {
        if machine.migration.is_some() {
            let message = format!("migration target pod but no IP allocated to VM handle {handle}");
            return Err(CniError::new(code::ADDRESS, message));
        }
        return Ok(None);
    }
    let set = Change::Set(holding.attributes.clone());
    let (update, traffic) = if machine.migration.is_some() {
        (OwnerUpdate { alternate: set, ..OwnerUpdate::default() }, Traffic::StillElsewhere)
    } else {
        (OwnerUpdate { active: set, ..OwnerUpdate::default() }, Traffic::Here)
    };
    for address in &addresses {
        // Without a check: an older pod may be stuck terminating, or an earlier move may have failed.
        ipam.set_owner_attributes(*address, handle, &update, &OwnerCheck::default()).await.map_err(
            |error| CniError::address(&format!("failed to set owner attributes for IP {address}"), &error),
        )?;
    }
    Ok(Some(Assigned::of(addresses.into_iter().map(IpNet::from).collect(), traffic)))
}

/// Whether virtual machines keep their addresses: the default, unless the settings disable it.
pub(super) async fn keeps_addresses(context: &Context) -> bool {
    let settings = context.store.ipam.config().await;
    settings.map_or(true, |settings| {
        settings.kubevirt_vm_address_persistence != Some(VMAddressPersistence::Disabled)
    })
}

/// Waits for this plugin's turn, if processes take turns.
pub(super) async fn turn(context: &Context, conf: &NetConf) -> IpamLock {
    if context.shares_writes {
        return IpamLock::none();
    }
    let path = if conf.ipam_lock_file.is_empty() {
        context.paths.ipam_lock.clone()
    } else {
        conf.ipam_lock_file.clone().into()
    };
    IpamLock::acquire(path).await
}

/// Limits the time from the moment it is this plugin's turn: with many pods at once the wait may be long.
pub(super) async fn timed<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(CniError::new(
            code::TRY_AGAIN_LATER,
            format!("address management did not finish within {} s", PATIENCE.as_secs()),
        )
        .with_details("check that the datastore runs and can be reached from this node")),
    }
}

/// The recorded attributes of the owner.
fn attributes(identity: &Identity, now: Timestamp) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::from([
        ("node".to_owned(), identity.identifiers.node.clone()),
        ("timestamp".to_owned(), go_time(now)),
    ]);
    if identity.is_pod() {
        attributes.insert("pod".to_owned(), identity.identifiers.pod.clone());
        attributes.insert("namespace".to_owned(), identity.namespace.clone());
    }
    attributes
}

fn describe_machine(machine: &Machine, attributes: &mut BTreeMap<String, String>) {
    attributes.insert("vmi-name".to_owned(), machine.name.clone());
    attributes.insert("vmi-uid".to_owned(), machine.uid.clone());
    if let Some(uid) = &machine.owner_uid {
        attributes.insert("vm-uid".to_owned(), uid.clone());
    }
    if let Some(uid) = &machine.migration {
        attributes.insert("vmim-uid".to_owned(), uid.clone());
    }
}

/// A time in Go's format: fractions of a second without trailing zeros.
fn go_time(moment: Timestamp) -> String {
    let whole = moment.strftime("%Y-%m-%d %H:%M:%S");
    let nanoseconds = moment.subsec_nanosecond();
    if nanoseconds == 0 {
        return format!("{whole} +0000 UTC");
    }
    let fraction = format!("{nanoseconds:09}");
    format!("{whole}.{} +0000 UTC", fraction.trim_end_matches('0'))
}

/// The ranges of the selected pools, which are named by range or by name.
async fn resolve_pools(context: &Context, selection: &Selection) -> Result<(Vec<IpNet>, Vec<IpNet>)> {
    let (v4, v6) = (&selection.ipv4_pools, &selection.ipv6_pools);
    let is_named = |pool: &String| pool.parse::<IpNet>().is_err();
    let mut known = BTreeMap::new();
    if v4.iter().chain(v6).any(is_named) {
        let pools = context.store.client.resource::<IPPoolSpec>().list(&ListQuery::all()).await;
        let pools = pools.map_err(|error| CniError::datastore("listing IP pools", &error))?;
        known =
            pools.items.into_iter().map(|pool| (pool.metadata.name, pool.spec.cidr.to_string())).collect();
    }
    Ok((choose_pools(v4, &known, true)?, choose_pools(v6, &known, false)?))
}

fn choose_pools(names: &[String], known: &BTreeMap<String, String>, v4: bool) -> Result<Vec<IpNet>> {
    let wrong = |message: String| {
        CniError::new(code::INVALID_CONFIGURATION, message).with_details(
            "pools are named by the CNI configuration or by annotations of the pod or its namespace",
        )
    };
    let choose = |name: &String| {
        let text = known.get(name).unwrap_or(name);
        let net: IpNet =
            text.parse().map_err(|error| wrong(format!("error parsing pool {name:?}: {error}")))?;
        if net.addr().is_ipv4() != v4 {
            let family = if v4 { "IPv4" } else { "IPv6" };
            return Err(wrong(format!("{:?} isn't a {family} address", net.network().to_string())));
        }
        Ok(net.trunc())
    };
    names.iter().map(choose).collect()
}

#[cfg(test)]
mod tests {
    use super::{choose_pools, go_time};
    use std::collections::BTreeMap;

    #[test]
    fn times_are_printed_as_in_go() {
        for (text, expected) in [
            ("2026-11-15T19:48:31.565963652Z", "2026-11-15 19:48:31.565963652 +0000 UTC"),
            ("2026-11-15T19:48:31.5Z", "2026-11-15 19:48:31.5 +0000 UTC"),
            ("2026-11-15T19:48:31Z", "2026-11-15 19:48:31 +0000 UTC"),
        ] {
            assert_eq!(go_time(text.parse().unwrap()), expected);
        }
    }

    #[test]
    fn pools_by_name_and_range() {
        let known = BTreeMap::from([
            ("a".to_owned(), "10.0.0.0/16".to_owned()),
            ("b".to_owned(), "fd00::/48".to_owned()),
        ]);
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let chosen = choose_pools(&names(&["a", "10.1.0.5/16"]), &known, true).unwrap();
        assert_eq!(
            chosen.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.0.0/16", "10.1.0.0/16"]
        );
        assert!(
            choose_pools(&names(&["nope"]), &known, true)
                .unwrap_err()
                .msg
                .starts_with("error parsing pool \"nope\"")
        );
        assert_eq!(
            choose_pools(&names(&["b"]), &known, true).unwrap_err().msg,
            "\"fd00::\" isn't a IPv4 address"
        );
    }
}
