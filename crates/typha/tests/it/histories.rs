//! A client that connects at any time, is cut off at any time, and reconnects, ends with exactly the contents of the
//! feed.

use crate::world::{Client, World, input, quick, settings, until};
use model::feed::Status;
use std::time::Duration;

/// A small generator, so that a failure can be repeated from its seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

async fn play(seed: u64) {
    let mut dice = Dice(seed);
    let mut world = World::start(quick(), None).await;
    let mut clients: Vec<Client> = Vec::new();
    for step in 0..120 {
        match dice.below(20) {
            0..=9 => {
                let count = 1 + dice.below(40);
                let inputs: Vec<_> = (0..count)
                    .map(|_| {
                        let key = format!("/k{}", dice.below(60));
                        let value =
                            if dice.below(4) == 0 { String::new() } else { format!("v{}", dice.below(5)) };
                        input(&key, &value)
                    })
                    .collect();
                world.felix().publish(inputs);
            }
            10 | 11 => {
                let status = [Status::ResyncInProgress, Status::InSync][usize::from(dice.below(2) == 0)];
                world.felix().set_status(status);
            }
            12..=14 if clients.len() < 12 => clients.push(world.client()),
            15 if !clients.is_empty() => {
                let place = dice.below(clients.len() as u64);
                drop(clients.remove(usize::try_from(place).unwrap()));
            }
            16 => {
                // All connections are cut at arbitrary points.
                world.server = None;
                world.serve_again(quick()).await;
            }
            17 => tokio::time::sleep(Duration::from_millis(dice.below(12))).await,
            _ => tokio::task::yield_now().await,
        }
        if step == 60 {
            world.felix().set_status(Status::InSync);
        }
    }
    world.felix().set_status(Status::InSync);
    clients.push(world.client());
    let wanted = world.contents();
    for (number, client) in clients.iter().enumerate() {
        until(&format!("seed {seed}, client {number}"), || client.has(&wanted)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_end_with_the_servers_contents_whatever_happens() {
    for seed in 0..25 {
        play(seed).await;
    }
}

#[tokio::test]
async fn a_reconnecting_client_gets_the_difference() {
    let mut world = World::start(quick(), None).await;
    world.felix().publish((0..2000).map(|number| input(&format!("/k{number:05}"), "v")));
    world.felix().set_status(Status::InSync);
    let client = world.client();
    until("in sync", || client.has(&world.contents())).await;
    let before = client.count();
    // The client's position is from this run of the feed, which outlives the server in front of it.
    world.server = None;
    world.felix().publish([input("/k00001", ""), input("/new", "1"), input("/k00002", "w")]);
    world.serve_again(quick()).await;
    until("in sync again", || client.has(&world.contents())).await;
    assert_eq!(client.count(), before + 3);
    until("counted", || world.figures.resumed_total() == 1).await;
}

#[tokio::test]
async fn a_restarted_server_sends_everything_and_the_client_finds_the_difference() {
    let first = World::start(quick(), None).await;
    first.felix().publish((0..500).map(|number| input(&format!("/k{number:05}"), "v")));
    first.felix().set_status(Status::InSync);
    let client = Client::start(first.address, settings());
    until("in sync", || client.has(&first.contents())).await;
    let before = client.count();
    let address = first.address;
    drop(first);
    let feeds = typha_wire::SyncerType::ALL
        .map(|kind| typha::for_tests::Feed::new(kind, 78, typha::for_tests::FeedOptions::default()))
        .to_vec();
    feeds[0].publish((1..500).map(|number| input(&format!("/k{number:05}"), "v")));
    let listener = loop {
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let parts = typha::for_tests::ServerParts {
        feeds: feeds.clone(),
        settings: quick(),
        version: String::new(),
        tls: None,
        figures: std::sync::Arc::default(),
    };
    let _server = typha::for_tests::Server::start(listener, parts);
    feeds[0].set_status(Status::InSync);
    let wanted = crate::world::contents(&feeds[0]);
    until("in sync with the other", || client.has(&wanted)).await;
    assert_eq!(client.count(), before + 1, "only the one that is gone");
}
