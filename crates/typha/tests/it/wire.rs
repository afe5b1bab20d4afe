//! The order of messages, as in the recorded connections.

use crate::world::{Got, Raw, World, hello, input, patient, quick};
use model::feed::Status;
use typha_wire::{ClientHello, Compression, Message};

async fn filled() -> World {
    let world = World::start(patient(), None).await;
    for feed in &world.feeds {
        let name = feed.kind().as_str();
        feed.publish([input("/b", name), input("/a", "1")]);
        feed.set_status(Status::InSync);
    }
    world
}

#[tokio::test]
async fn a_plain_client_of_each_type() {
    let world = filled().await;
    for (kind, answered) in [
        ("felix", "felix"),
        ("", "felix"),
        ("bgp", "bgp"),
        ("tunnel-ip-allocation", "tunnel-ip-allocation"),
        ("node-status", "node-status"),
    ] {
        for (restart, algorithms) in [(false, &["snappy"][..]), (true, &[]), (true, &["zstd"])] {
            let mut client = Raw::connect(world.address).await;
            client.say(&Message::ClientHello(hello(kind, restart, algorithms))).await;
            assert_eq!(client.message().await, format!("hello {answered}"));
            assert_eq!(client.message().await, format!("/a=1:1 /b={answered}:1"));
            assert_eq!(client.message().await, "status in-sync");
        }
    }
}

#[tokio::test]
async fn a_compressed_client_restarts_twice_and_hears_changes() {
    let world = filled().await;
    let mut client = Raw::connect(world.address).await;
    client.say(&Message::ClientHello(hello("felix", true, &["snappy"]))).await;
    assert_eq!(client.message().await, "hello felix");
    assert_eq!(client.get().await, Got::Restart(Compression::Snappy));
    client.incoming.restart(Compression::Snappy).unwrap();
    client.say(&Message::Ack).await;
    assert_eq!(client.message().await, "/a=1:1 /b=felix:1");
    assert_eq!(client.get().await, Got::Restart(Compression::Snappy));
    client.incoming.restart(Compression::Snappy).unwrap();
    client.say(&Message::Ack).await;
    assert_eq!(client.message().await, "status in-sync");
    world.felix().publish([input("/a", "2"), input("/c", "3"), input("/b", "felix")]);
    assert_eq!(client.message().await, "/a=2:2 /c=3:1");
    world.felix().publish([input("/a", "")]);
    assert_eq!(client.message().await, "/a=:3");
    world.felix().set_status(Status::ResyncInProgress);
    assert_eq!(client.message().await, "status resync");
}

#[tokio::test]
async fn a_client_that_connects_before_the_store_was_read() {
    let world = World::start(quick(), None).await;
    let mut client = Raw::connect(world.address).await;
    client.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    assert_eq!(client.message().await, "hello felix");
    world.felix().set_status(Status::ResyncInProgress);
    assert_eq!(client.message().await, "status resync");
    world.felix().publish([input("/a", "1")]);
    assert_eq!(client.message().await, "/a=1:1");
    world.felix().set_status(Status::InSync);
    assert_eq!(client.message().await, "status in-sync");
}

#[tokio::test]
async fn refusals_close_the_connection() {
    let world = filled().await;
    let old = ClientHello { supports_modern_policy_keys: false, ..hello("felix", true, &["snappy"]) };
    for first in [
        Message::ClientHello(hello("dikastes", true, &["snappy"])),
        Message::ClientHello(old),
        Message::Ack,
        Message::SyncStatus(Some(Status::InSync)),
    ] {
        let mut client = Raw::connect(world.address).await;
        client.say(&first).await;
        assert!(client.is_closed().await, "{first:?}");
    }
}

#[tokio::test]
async fn an_unexpected_message_ends_the_connection() {
    let world = filled().await;
    let mut client = Raw::connect(world.address).await;
    client.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    assert_eq!(client.message().await, "hello felix");
    client.say(&Message::Ack).await;
    loop {
        if client.get().await == Got::End {
            break;
        }
    }
}
