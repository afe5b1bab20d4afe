//! Misbehaving clients, and their effect on the others: none.

use crate::world::{Got, Raw, World, hello, input, patient, quick, until};
use model::feed::Status;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use typha::for_tests::ServerSettings;
use typha_wire::{Compression, Message};

fn large(number: u64) -> String {
    // Does not compress well, so that the kernel's buffers fill up.
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..400)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            format!("{state:016x}")
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_reading_delays_no_other_and_is_dropped() {
    let settings = ServerSettings { write_timeout: Duration::from_secs(2), ..quick() };
    let world = World::start(settings, None).await;
    world.felix().set_status(Status::InSync);
    let mut slow = Raw::connect(world.address).await;
    // Small buffers, which fill up soon.
    socket2::SockRef::from(&slow.stream).set_recv_buffer_size(4096).unwrap();
    slow.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    assert_eq!(slow.message().await, "hello felix");
    let fast: Vec<_> = (0..3).map(|_| world.client()).collect();
    for round in 0..30 {
        world
            .felix()
            .publish((0..40).map(|number| input(&format!("/k{number}"), &large(round * 1000 + number))));
    }
    let wanted = world.contents();
    for client in &fast {
        until("a fast client", || client.has(&wanted)).await;
    }
    // The slow client is the only one that is dropped.
    until("the slow client is sent away", || world.connections() == fast.len()).await;
    for client in &fast {
        assert!(client.has(&wanted));
    }
}

/// A client that reads, but so late that what it gets is old. Nothing but its lag ends the connection.
#[tokio::test]
async fn a_client_too_far_behind_is_dropped() {
    let age = Duration::from_millis(1);
    let settings = ServerSettings { max_fall_behind: age, new_client_grace: age, ..patient() };
    // Buffers so small that the server waits for the client at the first change.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(16 << 10).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let world = World::on(socket.listen(16).unwrap(), World::feeds(), settings, None);
    world.felix().set_status(Status::InSync);
    let mut slow = Raw::connect(world.address).await;
    slow.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    assert_eq!(slow.message().await, "hello felix");
    assert_eq!(slow.message().await, "status in-sync");
    for round in 0..50 {
        world
            .felix()
            .publish((0..100).map(|number| input(&format!("/k{number}"), &large(round * 1000 + number))));
        tokio::time::sleep(age * 2).await;
    }
    while slow.get().await != Got::End {}
    until("it is gone", || world.connections() == 0).await;
}

#[tokio::test]
async fn silence_is_detected() {
    let settings = ServerSettings {
        ping_interval: Duration::from_millis(100),
        pong_timeout: Duration::from_millis(400),
        handshake_timeout: Duration::from_millis(300),
        ..quick()
    };
    let world = World::start(settings, None).await;
    world.felix().publish([input("/a", "1")]);
    world.felix().set_status(Status::InSync);
    // No hello at all.
    let mut silent = Raw::connect(world.address).await;
    assert!(silent.is_closed().await);
    // An incomplete hello.
    let mut begun = Raw::connect(world.address).await;
    begun.stream.write_all(&[0x7f, 1, 2]).await.unwrap();
    assert!(begun.is_closed().await);
    // No ACK.
    let mut waiting = Raw::connect(world.address).await;
    waiting.say(&Message::ClientHello(hello("felix", true, &["snappy"]))).await;
    assert_eq!(waiting.message().await, "hello felix");
    assert_eq!(waiting.get().await, Got::Restart(Compression::Snappy));
    assert!(waiting.is_closed().await);
    // No pong.
    let mut mute = Raw::connect(world.address).await;
    mute.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    assert_eq!(mute.message().await, "hello felix");
    assert_eq!(mute.message().await, "/a=1:1");
    assert_eq!(mute.message().await, "status in-sync");
    assert_eq!(mute.get().await, Got::Message("ping".to_owned()));
    assert!(mute.is_closed().await);
    // One of ours answers, and stays longer than a mute one that connects after it.
    let client = world.client();
    until("in sync", || client.has(&world.contents())).await;
    let mut later = Raw::connect(world.address).await;
    later.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    assert_eq!(later.message().await, "hello felix");
    assert_eq!(later.message().await, "/a=1:1");
    assert_eq!(later.message().await, "status in-sync");
    assert!(later.is_closed().await);
    until("the mute one is not counted any more", || world.figures.streaming_total() == 1).await;
    assert!(client.has(&world.contents()));
}

#[tokio::test]
async fn messages_beyond_the_limit_and_noise_end_the_connection() {
    let world = World::start(patient(), None).await;
    let mut long = Vec::new();
    gob::number::put_uint(&mut long, (1 << 20) + 1);
    for bytes in [long, vec![0x80, 1], vec![0], b"GET / HTTP/1.1\r\nHost: typha\r\n\r\n".repeat(20)] {
        let mut client = Raw::connect(world.address).await;
        client.stream.write_all(&bytes).await.unwrap();
        assert!(client.is_closed().await, "{bytes:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_die_in_the_middle_of_a_snapshot_leave_nothing_behind() {
    let world = World::start(quick(), None).await;
    world.felix().publish((0..800).map(|number| input(&format!("/k{number}"), &large(number))));
    world.felix().set_status(Status::InSync);
    for _ in 0..10 {
        let mut client = Raw::connect(world.address).await;
        client.say(&Message::ClientHello(hello("felix", true, &["snappy"]))).await;
        assert_eq!(client.message().await, "hello felix");
        assert_eq!(client.get().await, Got::Restart(Compression::Snappy));
        client.say(&Message::Ack).await;
        let mut some = [0; 10_000];
        client.stream.read_exact(&mut some).await.unwrap();
    }
    until("all are gone", || world.connections() == 0).await;
    let client = world.client();
    until("the next one is served", || client.has(&world.contents())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_in_the_middle_of_a_snapshot() {
    let mut world = World::start(quick(), None).await;
    world.felix().publish((0..300).map(|number| input(&format!("/k{number}"), &large(number))));
    world.felix().set_status(Status::InSync);
    let client = world.client();
    for round in 0..6 {
        tokio::time::sleep(Duration::from_millis(20 * round)).await;
        world.server = None;
        world.serve_again(quick()).await;
    }
    until("in sync in the end", || client.has(&world.contents())).await;
    until("and healthy", || format!("{:?}", client.pulse).contains("connected to Typha")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutting_down_drops_clients_in_turn() {
    let mut world = World::start(quick(), None).await;
    world.felix().set_status(Status::InSync);
    let clients: Vec<_> = (0..5).map(|_| world.client()).collect();
    for client in &clients {
        until("in sync", || client.has(&world.contents())).await;
    }
    let server = world.server.take().unwrap();
    tokio::time::timeout(crate::world::PATIENCE, server.shut_down()).await.unwrap();
    until("all are gone", || world.figures.streaming_total() == 0).await;
    assert!(tokio::net::TcpStream::connect(world.address).await.is_err(), "the socket is closed");
    for client in &clients {
        until("health says so", || format!("{:?}", client.pulse).contains("no connection to Typha")).await;
        assert!(client.has(&world.contents()), "and what is known stays");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn excess_clients_are_dropped_one_by_one() {
    let world = World::start(quick(), None).await;
    world.felix().set_status(Status::InSync);
    let mut raw = Vec::new();
    for _ in 0..6 {
        let mut client = Raw::connect(world.address).await;
        client.say(&Message::ClientHello(hello("felix", false, &[]))).await;
        assert_eq!(client.message().await, "hello felix");
        raw.push(client);
    }
    world.server.as_ref().unwrap().set_most_connections(2);
    until("four are gone", || world.connections() == 2).await;
    // Two may stay: of three, one is dropped and no more.
    let mut seventh = Raw::connect(world.address).await;
    seventh.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    // A greeting, or already the end: either way it was counted.
    let _ = seventh.get().await;
    until("one more is gone", || world.connections() == 2).await;
}
