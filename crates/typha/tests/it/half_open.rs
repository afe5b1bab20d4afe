//! A peer that vanishes: packets are lost both ways, and no end or reset ever arrives. Each side detects it on its own.

use crate::world::{Client, World, input, quick, settings, until};
use model::feed::Status;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testkit::network::Namespace;
use tokio::runtime::{Builder, Runtime};
use typha::for_tests::ServerSettings;
use typha_client::ClientSettings;

/// So long that the other side always acts first.
const LONG: Duration = Duration::from_secs(3600);

/// Two machines with a wire between them, and something that runs on each.
struct Wire {
    near: Namespace,
    far: Namespace,
    server: Runtime,
    client: Runtime,
}

impl Wire {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let near = Namespace::new(&format!("typha-near-{id}")).unwrap();
        let far = Namespace::new(&format!("typha-far-{id}")).unwrap();
        near.batch(&format!("link add wire type veth peer name wire netns {}", far.name())).unwrap();
        for (namespace, address) in [(&near, "10.99.0.1/24"), (&far, "10.99.0.2/24")] {
            namespace.batch(&format!("addr add {address} dev wire\nlink set wire up")).unwrap();
        }
        // Threads of a runtime stay in the network namespace in which they were started.
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (server, client) = (near.run(runtime).unwrap(), far.run(runtime).unwrap());
        Self { near, far, server, client }
    }

    fn serve(&self, settings: ServerSettings) -> World {
        let work = World::at([10, 99, 0, 1].into(), World::feeds(), settings, None);
        self.server.block_on(self.server.spawn(work)).unwrap()
    }

    fn follow(&self, world: &World, settings: ClientSettings) -> Client {
        let _here = self.client.enter();
        Client::start(world.address, settings)
    }

    fn until(&self, what: &str, done: impl FnMut() -> bool) {
        self.server.block_on(until(what, done));
    }

    /// From now on every packet is lost.
    fn cut(&self) {
        for namespace in [&self.near, &self.far] {
            let rules = "add table inet cut; add chain inet cut arriving { type filter hook input priority 0; policy drop; }";
            namespace.shell(&format!("nft '{rules}'")).unwrap();
        }
    }

    fn mend(&self) {
        for namespace in [&self.near, &self.far] {
            namespace.shell("nft delete table inet cut").unwrap();
        }
    }
}

/// A client whose machine lost its network answers no ping.
#[test]
fn the_server_detects_a_vanished_client() {
    let wire = Wire::new();
    let world = wire.serve(ServerSettings {
        ping_interval: Duration::from_millis(100),
        pong_timeout: Duration::from_secs(1),
        ..quick()
    });
    world.felix().publish([input("/a", "1")]);
    world.felix().set_status(Status::InSync);
    let client = wire.follow(&world, ClientSettings { read_timeout: LONG, ..settings() });
    wire.until("in sync", || client.has(&world.contents()));
    wire.cut();
    wire.until("the server lets go of it", || world.connections() == 0);
    assert!(client.has(&world.contents()), "the client noticed nothing, and keeps what it has");
}

/// A server whose machine lost its network sends no pings. The client keeps its entries, reports the outage, and
/// reconnects.
#[test]
fn the_client_detects_a_vanished_server() {
    let wire = Wire::new();
    let world = wire.serve(ServerSettings {
        ping_interval: Duration::from_millis(100),
        pong_timeout: LONG,
        write_timeout: LONG,
        ..quick()
    });
    world.felix().publish([input("/a", "1"), input("/b", "1")]);
    world.felix().set_status(Status::InSync);
    let limit = Duration::from_secs(1);
    let client = wire.follow(&world, ClientSettings { read_timeout: limit, ..settings() });
    wire.until("in sync", || client.has(&world.contents()));
    let before = world.contents();
    wire.cut();
    wire.until("health says so", || format!("{:?}", client.pulse).contains("silent for 1 s"));
    world.felix().publish([input("/a", "2"), input("/b", "")]);
    assert!(client.has(&before), "what is known stays");
    wire.mend();
    wire.until("it is back, and has what it missed", || client.has(&world.contents()));
}
