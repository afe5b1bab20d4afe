//! Many clients at once: a slow one among a thousand fast ones, and connections that never send a hello.

use crate::world::{Raw, World, hello, input, quick, until};
use model::feed::Status;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use typha::for_tests::ServerSettings;
use typha_wire::Message;

/// Both ends of a thousand connections are in this process.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(
        limit.current.is_none_or(|most| most >= 4096),
        "this machine allows too few open files: {limit:?}"
    );
}

/// A client that reads as fast as it can, and decodes nothing, until it has seen this text.
async fn fast(address: std::net::SocketAddr, last: &'static str) -> TcpStream {
    let mut client = Raw::connect(address).await;
    client.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    let mut buffer = vec![0; 64 << 10];
    let mut kept = 0;
    loop {
        let count = client.stream.read(&mut buffer[kept..]).await.unwrap();
        assert!(count > 0, "a fast client was sent away");
        let end = kept + count;
        // Megabytes pass here: most of them are only searched for a character that they do not contain.
        if buffer[..end].contains(&last.as_bytes()[0])
            && buffer[..end].windows(last.len()).any(|window| window == last.as_bytes())
        {
            return client.stream;
        }
        // The text may arrive in two parts.
        kept = end.min(last.len());
        buffer.copy_within(end - kept..end, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_among_a_thousand_delays_no_other() {
    const LAST: &str = "~ the last of all changes";
    allow_many_files();
    let hour = Duration::from_secs(3600);
    let settings = ServerSettings {
        ping_interval: hour,
        pong_timeout: hour * 6,
        // The fast clients share two processors with everything else that runs here.
        write_timeout: Duration::from_secs(15),
        ..quick()
    };
    // Small buffers towards each client: a slow one shows before the kernel holds megabytes for a thousand.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(16 << 10).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let world = World::on(socket.listen(2048).unwrap(), World::feeds(), settings, None);
    world.felix().publish((0..50).map(|number| input(&format!("/k{number}"), "v")));
    world.felix().set_status(Status::InSync);
    let mut slow = Raw::connect(world.address).await;
    socket2::SockRef::from(&slow.stream).set_recv_buffer_size(4096).unwrap();
    slow.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    assert_eq!(slow.message().await, "hello felix");
    let fast: Vec<_> = (0..1000).map(|_| tokio::spawn(fast(world.address, LAST))).collect();
    until("all stream", || world.figures.streaming_total() == 1001).await;
    // More than fits between the server and the slow client, in one change: several could be merged before they are
    // sent.
    let long = "x".repeat(8_000);
    world.felix().publish((0..50).map(|number| input(&format!("/k{number}"), &long)));
    world.felix().publish([input("/end", LAST)]);
    let mut streams = Vec::new();
    for client in fast {
        streams.push(client.await.unwrap());
    }
    until("only the slow one is sent away", || world.connections() == streams.len()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_never_say_hello_are_bounded_in_time_and_number() {
    allow_many_files();
    let settings = ServerSettings { handshake_timeout: Duration::from_secs(15), ..quick() };
    let world = World::start(settings, None).await;
    world.felix().set_status(Status::InSync);
    let mut silent = Vec::new();
    // Connections beyond the limit wait for their turn.
    for _ in 0..600 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
    }
    until("as many as may be at once", || world.connections() >= 512).await;
    assert!(world.connections() <= 512, "{} are in their handshake", world.connections());
    // A genuine client waits for its turn, and gets it although all others keep their connections open.
    let client = world.client();
    until("served", || client.has(&world.contents())).await;
    until("the silent ones are gone", || world.connections() == 1).await;
    drop(silent);
}

/// Strangers whose handshakes never end take all places, and wait for more. A client from another machine gets one of
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_delay_no_client_from_elsewhere() {
    allow_many_files();
    let settings = ServerSettings { handshake_timeout: Duration::from_secs(3600), ..quick() };
    let world = World::start(settings, None).await;
    world.felix().set_status(Status::InSync);
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
    }
    until("all places are taken", || world.connections() == 512).await;
    for last in 2..10 {
        let mut client = Raw::connect_from([127, 0, 0, last].into(), world.address).await;
        client.say(&Message::ClientHello(hello("felix", false, &[]))).await;
        assert_eq!(client.message().await, "hello felix");
        assert_eq!(client.message().await, "status in-sync");
    }
    // Every place that became free was given to a waiting connection.
    until("all places are taken again", || world.connections() == 512).await;
    drop(silent);
}

/// Strangers from more machines than there are places, who reconnect as soon as they are dropped: they always hold all
/// places, and a genuine client gets its turn nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_from_everywhere_take_turns_with_clients() {
    allow_many_files();
    let settings = ServerSettings { handshake_timeout: Duration::from_secs(1), ..quick() };
    let world = World::start(settings, None).await;
    world.felix().set_status(Status::InSync);
    let address = world.address;
    let mut strangers = tokio::task::JoinSet::new();
    for number in 0..700_u16 {
        strangers.spawn(async move {
            loop {
                let [high, low] = number.to_be_bytes();
                let mut stranger = Raw::connect_from([127, 1, high, low].into(), address).await;
                stranger.is_closed().await;
            }
        });
    }
    // There are 512 places; on a busy machine some are empty at any moment, until the next stranger connects.
    until("most places are taken", || world.connections() > 256).await;
    for last in 2..5 {
        let mut client = Raw::connect_from([127, 0, 0, last].into(), address).await;
        client.say(&Message::ClientHello(hello("felix", false, &[]))).await;
        assert_eq!(client.message().await, "hello felix");
        assert_eq!(client.message().await, "status in-sync");
    }
    strangers.shutdown().await;
}
