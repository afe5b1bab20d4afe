//! Random histories of two networks with dots in their names, on an embedded store: ADD, DEL, DEL while the datastore
//! is unreachable, late releases, GC. No device is created; everything in the datastore is real.
//!
//! At any moment each attached container has its endpoint, and its address under its own handle. When all are detached
//! and everything due is carried out, nothing is left.

use crate::attachment::Attachment;
use crate::config::NetConf;
use crate::context::Context;
use crate::endpoint;
use crate::error::Result;
use crate::host::HostPaths;
use crate::identity::Identity;
use crate::ipam::assign::{self, Wish};
use crate::journal::Journal;
use crate::request::{Environment, Request};
use crate::store::Store;
use crate::wiring::Ends;
use crate::{addresses, del, gc, pending};
use api::meta::StringMap;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

const NODE: &str = "node-a";
const NETWORKS: [&str; 3] = ["net", "net.two", "net.two.c"];
/// Some have the name of a part of a network. The container of an endpoint has no dot.
const CONTAINERS: [&str; 5] = ["a", "b", "c", "two", "two-a"];

/// A small random generator that is the same on every platform.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % sides
    }
}

struct World {
    context: Context,
    /// The network and address of each attached container.
    live: BTreeMap<&'static str, (&'static str, IpAddr)>,
    told: Vec<String>,
}

fn request(command: &str, network: &str, container: &str, changes: &Value, folder: &Path) -> Request {
    let environment: Environment = [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", container),
        ("CNI_NETNS", "/none"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/none"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let mut document = json!({"cniVersion": "1.1.0", "name": network, "ipam": {"type": "calico-ipam"},
        "datastore_type": "embedded", "embedded_path": folder, "nodename": NODE, "nodename_file_optional": true});
    for (name, value) in changes.as_object().into_iter().flatten() {
        document[name] = value.clone();
    }
    Request::read(&environment, document.to_string().as_bytes()).unwrap()
}

impl World {
    async fn new(folder: &Path) -> Self {
        let conf = NetConf {
            datastore_type: "embedded".into(),
            embedded_path: folder.join("store").display().to_string(),
            ..NetConf::default()
        };
        let store = Store::open(&conf, &Environment::new()).await.unwrap();
        store.client.ensure_initialized("v3.32.0", "cni").await.unwrap();
        let pool = json!({"metadata": {"name": "pool"}, "spec": {"cidr": "10.10.0.0/24", "blockSize": 29}});
        let pool: api::IPPool = serde_json::from_value(pool).unwrap();
        store.client.resource::<api::IPPoolSpec>().create(pool).await.unwrap();
        let node: api::Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
        store.client.resource::<api::NodeSpec>().create(node).await.unwrap();
        let paths = HostPaths::below(&folder.join("root"));
        let context = Context::new(Arc::new(store), paths, false);
        Self { context, live: BTreeMap::new(), told: Vec::new() }
    }

    fn request(&self, command: &str, network: &str, container: &str, changes: &Value) -> Request {
        let root = self.context.paths.journal.ancestors().nth(5).unwrap();
        request(command, network, container, changes, &root.join("store"))
    }

    /// The datastore's part of an ADD, in ADD's order.
    async fn add(&mut self, network: &'static str, container: &'static str) -> Result<()> {
        let request = self.request("ADD", network, container, &json!({}));
        let attachment = Attachment::new(&self.context, &request, Some(NODE))?;
        let identity = &attachment.identity;
        pending::carry_out_for(&self.context, container).await?;
        assert_eq!(self.context.store.find_endpoint(identity).await?, None, "left of its last life");
        let taken = assign::assign(&attachment, Wish::of(&request)).await?;
        let name = identity.endpoint_name()?;
        let mut made = endpoint::plain(identity, &name, StringMap::new(), &taken);
        let ends = Ends { host_device: identity.device(&request.environment), mac: None };
        endpoint::set_device(&mut made, &ends);
        self.context.store.write_endpoint(made).await?;
        self.live.insert(container, (network, taken.addresses[0].addr()));
        Ok(())
    }

    /// DEL; while the datastore is unreachable, the release is kept for later.
    async fn del(&mut self, network: &'static str, container: &'static str, is_away: bool) -> Result<()> {
        let request = self.request("DEL", network, container, &json!({}));
        let attachment = Attachment::new(&self.context, &request, Some(NODE))?;
        // A DEL for a container that is attached to another network is a mistake of the runtime, and not tried here.
        if self.live.get(container).is_some_and(|(other, _)| *other != network) {
            return Ok(());
        }
        if is_away {
            Journal::new(&self.context.paths.journal).record(&request, Some(NODE)).unwrap();
        } else {
            del::remove_endpoint(&attachment).await?;
            addresses::give_back(&attachment).await?;
        }
        self.live.remove(container);
        Ok(())
    }

    async fn gc(&self, network: &str) -> Result<()> {
        let valid = self.live.iter().filter(|(_, (of, _))| *of == network);
        let valid: Vec<Value> =
            valid.map(|(container, _)| json!({"containerID": container, "ifname": "eth0"})).collect();
        let request = self.request("GC", network, "x", &json!({"cni.dev/valid-attachments": valid}));
        gc::gc(&self.context, &request).await
    }

    async fn step(&mut self, dice: &mut Dice) {
        let network = NETWORKS[dice.roll(NETWORKS.len())];
        let container = CONTAINERS[dice.roll(CONTAINERS.len())];
        let what = dice.roll(10);
        self.told.push(format!("{what} {network} {container}"));
        let outcome = match what {
            0..=4 if self.live.contains_key(container) => Ok(()),
            0..=4 => self.add(network, container).await,
            5 => self.del(network, container, false).await,
            6 | 7 => self.del(network, container, true).await,
            8 => {
                let few = dice.roll(3);
                pending::carry_out(&self.context, few).await;
                Ok(())
            }
            _ => self.gc(network).await,
        };
        assert_eq!(outcome, Ok(()), "{:#?}", self.told);
        self.check().await;
    }

    /// Checks that every attached container has its endpoint and address.
    async fn check(&self) {
        for (container, (network, address)) in &self.live {
            let request = self.request("DEL", network, container, &json!({}));
            let identity = Identity::of(&request, NODE);
            let found = self.context.store.ipam.allocation(*address).await.unwrap();
            let handle = found.and_then(|record| record.handle_id).unwrap_or_default();
            assert_eq!(handle, *identity.handle(), "{address} of {network} {container}: {:#?}", self.told);
            let endpoint = self.context.store.find_endpoint(&identity).await.unwrap();
            let has: Vec<String> =
                endpoint.into_iter().flat_map(|it| it.spec.ip_networks).map(|it| it.to_string()).collect();
            assert_eq!(has, [format!("{address}/32")], "{network} {container}: {:#?}", self.told);
        }
    }

    /// Detaches all containers and checks that nothing is left.
    async fn end(&mut self) {
        let live: Vec<_> = self.live.iter().map(|(container, (network, _))| (*network, *container)).collect();
        for (network, container) in live {
            self.del(network, container, false).await.unwrap();
        }
        pending::carry_out(&self.context, usize::MAX).await;
        let blocks = model::ListOptions::Block { ip_version: None };
        for entry in self.context.store.client.backend().list(&blocks, None).await.unwrap().items {
            let model::Value::Block(block) = entry.value else { continue };
            assert!(block.allocations.iter().all(Option::is_none), "{block:?} {:#?}", self.told);
        }
        let endpoints = self.context.store.client.resource::<api::WorkloadEndpointSpec>();
        let left = endpoints.list(&client::ListQuery::all()).await.unwrap().items;
        assert!(left.is_empty(), "{left:?} {:#?}", self.told);
        assert!(Journal::new(&self.context.paths.journal).files().is_empty());
    }
}

#[test]
fn attached_containers_keep_endpoint_and_address() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let mut world = World::new(folder.path()).await;
        for history in 0..40 {
            let mut dice = Dice(history);
            world.told.clear();
            for _ in 0..60 {
                world.step(&mut dice).await;
            }
            world.end().await;
        }
    });
}
