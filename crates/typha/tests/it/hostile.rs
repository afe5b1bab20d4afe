//! Hostile peers: they drip, promise, flood and send what they must not send. docs/typha.md lists the class of
//! vulnerability that each of these tests stands for.

use crate::secure::{Certificates, named};
use crate::world::{
    Client, Got, HOUR, Keeper, PATIENCE, Raw, Texts, World, hello, input, patient, quick, settings, until,
};
use gob::{Type, TypeId};
use model::feed::Status;
use std::time::Duration;
use telemetry::{Health, Pulse};
use telemetry_server::Pages;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use typha::for_tests::ServerSettings;
use typha_client::session::{Session, SessionError};
use typha_client::tls::ServerTls;
use typha_client::{ClientSettings, Machine};
use typha_wire::outgoing::{Outgoing, STREAM_HEAD, kvs_segment};
use typha_wire::{Compression, GoTime, Message, ServerHello};

/// Sends a byte every now and then, until the other side ends the connection.
async fn drip(mut stream: TcpStream, bytes: &[u8]) {
    let mut bytes = bytes.iter().cycle();
    let begin = std::time::Instant::now();
    let mut answer = [0; 1024];
    loop {
        assert!(begin.elapsed() < PATIENCE, "it may go on for ever");
        let byte = *bytes.next().unwrap();
        if stream.write_all(&[byte]).await.is_err() {
            return;
        }
        let wait = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut answer)).await;
        if matches!(wait, Ok(Ok(0) | Err(_))) {
            return;
        }
    }
}

/// Slow requests: a time-out that restarts with every byte would never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hello_sent_byte_by_byte_is_ended_in_time() {
    let limited = ServerSettings { handshake_timeout: Duration::from_millis(500), ..quick() };
    let world = World::start(limited.clone(), None).await;
    // The header of a message of a megabyte, followed by arbitrary bytes.
    let mut bytes = Vec::new();
    gob::number::put_uint(&mut bytes, 1 << 20);
    drip(TcpStream::connect(world.address).await.unwrap(), &bytes).await;

    let certificates = Certificates::new();
    let server = certificates.files("server", "typha-server");
    let secure = World::start(limited, Some(ServerTls::new(server, named("typha-client")))).await;
    // A record of 16 KiB with a hello in it.
    let record = [0x16, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb];
    drip(TcpStream::connect(secure.address).await.unwrap(), &record).await;
    until("nothing is left of them", || world.connections() + secure.connections() == 0).await;
}

/// The reverse: a server that drips does not keep a client from reporting so in health and looking for another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_sends_its_hello_byte_by_byte_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limit = Duration::from_secs(1);
    let client = Client::start(
        listener.local_addr().unwrap(),
        ClientSettings { read_timeout: limit, write_timeout: limit, ..settings() },
    );
    let dripping = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        gob::number::put_uint(&mut bytes, 200 << 20);
        drip(stream, &bytes).await;
    };
    dripping.await;
    until("health says so", || format!("{:?}", client.pulse).contains("did not say hello within 1 s")).await;
}

/// A server that reads nothing, not even a hello.
#[tokio::test]
async fn a_server_that_does_not_read_is_given_up() {
    let (near, _far) = tokio::io::duplex(16);
    let settings =
        ClientSettings { write_timeout: Duration::from_millis(50), read_timeout: HOUR, ..settings() };
    let (mut machine, mut keeper) = (Machine::new(Texts), Keeper::default());
    let mut greeted = |_: &ServerHello| {};
    let session = Session::run(near, &mut machine, &settings, &mut keeper, &mut greeted);
    let end = tokio::time::timeout(PATIENCE, session).await.unwrap();
    assert!(matches!(end, SessionError::NotReading), "{end}");
}

/// A server that accepts connections but never answers the TLS handshake: the client reports so in health, and looks
/// for another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_ends_its_tls_handshake_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let certificates = Certificates::new();
    let tls = Some((certificates.files("client", "typha-client"), named("typha-server")));
    let client = Client::start(listener.local_addr().unwrap(), ClientSettings { tls, ..settings() });
    let _silent = listener.accept().await.unwrap();
    until("health says so", || format!("{:?}", client.pulse).contains("the TLS handshake took too long"))
        .await;
}

/// Messages that a client must not send: those of servers, a restart of the decoder, a second hello. None of them is
/// processed, and each ends the connection, before the hello and after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_no_client_sends_end_the_connection() {
    let world = World::start(patient(), None).await;
    world.felix().set_status(Status::InSync);
    let restart = Message::DecoderRestart { message: String::new(), compression: Ok(Compression::Snappy) };
    let now = GoTime::at(std::time::SystemTime::now());
    let messages = [
        restart,
        Message::Ping(now),
        Message::SyncStatus(Some(Status::InSync)),
        Message::ServerHello(ServerHello::default()),
    ];
    for message in &messages {
        for greeted in [false, true] {
            let mut client = Raw::connect(world.address).await;
            if greeted {
                client.say(&Message::ClientHello(hello("felix", false, &[]))).await;
                assert_eq!(client.message().await, "hello felix");
                assert_eq!(client.message().await, "status in-sync");
            }
            client.say(message).await;
            assert!(client.is_closed().await, "{message:?}, greeted: {greeted}");
        }
    }
    let mut twice = Raw::connect(world.address).await;
    for _ in 0..2 {
        twice.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    }
    while twice.get().await != Got::End {}
    let mut acknowledging = Raw::connect(world.address).await;
    acknowledging.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    acknowledging.say(&Message::Ack).await;
    while acknowledging.get().await != Got::End {}
    // A megabyte of entries, each of one byte.
    let mut flood = STREAM_HEAD.clone();
    flood.extend(kvs_segment(1_000_000, &vec![0; 1_000_000]));
    let mut client = Raw::connect(world.address).await;
    let _ = client.stream.write_all(&flood).await;
    assert!(client.is_closed().await);
    until("all are gone", || world.connections() == 0).await;
}

/// Types are kept for as long as a connection lives: their number and total size are bounded, not only each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_definitions_end_the_connection() {
    let world = World::start(patient(), None).await;
    for type_of in [Type::structure("", &[]), Type::structure("", &[("x", TypeId::BOOL); 1000])] {
        let mut client = Raw::connect(world.address).await;
        for number in 64..1064 {
            let mut definition = Vec::new();
            type_of.put_definition_segment(TypeId(number), &mut definition);
            if client.stream.write_all(&definition).await.is_err() {
                break;
            }
        }
        assert!(client.is_closed().await);
    }
}

/// A handshake that announces 16 MiB is ended long before they have arrived, and not only by its time-out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_tls_handshake_is_refused_before_it_is_buffered() {
    let certificates = Certificates::new();
    let server = certificates.files("server", "typha-server");
    let patient = ServerSettings { handshake_timeout: HOUR, ..quick() };
    let world = World::start(patient, Some(ServerTls::new(server, named("typha-client")))).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    // Records of 16 KiB; the first begins a client's hello of almost 16 MiB.
    let mut record = vec![0x16, 3, 1, 0x40, 0];
    record.extend(std::iter::repeat_n(0, 1 << 14));
    let mut first = record.clone();
    first[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
    let mut sent = 0;
    for next in std::iter::once(&first).chain(std::iter::repeat_n(&record, 1022)) {
        if stream.write_all(next).await.is_err() {
            break;
        }
        sent += next.len();
    }
    let mut answer = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    assert!(end.is_ok(), "still open after {sent} bytes");
    until("it is gone", || world.connections() == 0).await;
}

/// A client's hello of this version, otherwise valid for TLS 1.2: suites with ECDHE, groups, signatures.
fn tls_hello(version: [u8; 2]) -> Vec<u8> {
    let extensions: &[&[u8]] = &[
        &[0, 10, 0, 6, 0, 4, 0, 0x1d, 0, 0x17],
        &[0, 11, 0, 2, 1, 0],
        &[0, 13, 0, 8, 0, 6, 4, 3, 8, 4, 4, 1],
    ];
    let extensions = extensions.concat();
    let mut body = version.to_vec();
    body.extend([7; 32]);
    body.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0, 0]);
    body.push(u8::try_from(extensions.len()).unwrap());
    body.extend(extensions);
    let length = u8::try_from(body.len()).unwrap();
    let mut record = vec![0x16, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(body);
    record
}

/// Versions before TLS 1.2 are refused with the appropriate alert; the same hello with TLS 1.2 is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_versions_of_tls_are_refused() {
    const ALERT: u8 = 0x15;
    const HANDSHAKE: u8 = 0x16;
    const PROTOCOL_VERSION: u8 = 70;
    let certificates = Certificates::new();
    let server = certificates.files("server", "typha-server");
    let patient = ServerSettings { handshake_timeout: HOUR, ..quick() };
    let world = World::start(patient, Some(ServerTls::new(server, named("typha-client")))).await;
    for (version, answered) in [([3, 0], false), ([3, 1], false), ([3, 2], false), ([3, 3], true)] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(&tls_hello(version)).await.unwrap();
        let mut answer = [0; 7];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        if answered {
            assert_eq!(answer[0], HANDSHAKE, "{version:?}: {answer:?}");
        } else {
            assert_eq!((answer[0], answer[6]), (ALERT, PROTOCOL_VERSION), "{version:?}: {answer:?}");
        }
    }
}

/// Slow requests at the ports of health and metrics: proper requests are still answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_requests_at_the_health_port_block_no_others() {
    let (address, serving) = health_port().await;
    let mut slow = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /readiness HTTP/1.1\r\nHost: ").await.unwrap();
        slow.push(stream);
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /readiness HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 20"), "{}", String::from_utf8_lossy(&answer));
    serving.abort();
}

/// A listener that answers requests for health and metrics, with a feed that is in sync.
async fn health_port() -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (health, pulse) = (Health::default(), Pulse::new());
    health.register("felix-cache", &pulse, true, true, Duration::ZERO);
    pulse.report(true, "in-sync");
    let pages = Pages { health: Some(health), metrics: None };
    (address, tokio::spawn(telemetry_server::serve(listener, pages)))
}

/// Streams of HTTP/2 that are opened and reset at once: the ports of health and metrics never begin that protocol, so
/// there is no stream to open. The answer is HTTP/1's refusal or the end of the connection, never a frame.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_is_not_spoken_at_the_health_port() {
    let (address, serving) = health_port().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let upgrade = b"GET /readiness HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\n\
        HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    for (request, served) in [([&preface[..], &settings].concat(), false), (upgrade.to_vec(), true)] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&request).await.unwrap();
        let mut answer = Vec::new();
        // A reset is an end, too: unread data is still in the server's buffer when it closes.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert!(!text.contains(" 101 "), "{text}");
        if served {
            assert!(text.starts_with("HTTP/1.1 20"), "{text}");
        } else {
            assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
        }
    }
    serving.abort();
}

/// A server that restarts the decoder again and again makes its client acknowledge as often, and nothing more; the
/// client leaves a server that continues before the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_leaves_a_server_that_restarts_without_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::start(listener.local_addr().unwrap(), settings());
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut heard = [0; 4096];
    assert!(stream.read(&mut heard).await.unwrap() > 0, "the client's hello");
    let greeting = ServerHello {
        syncer_type: "felix".to_owned(),
        supports_node_resource_updates: true,
        ..ServerHello::default()
    };
    let restart = Message::DecoderRestart { message: String::new(), compression: Ok(Compression::None) };
    let (mut bytes, mut first) = (Vec::new(), Outgoing::calico());
    first.put(&Message::ServerHello(greeting), &mut bytes);
    first.put(&restart, &mut bytes);
    stream.write_all(&bytes).await.unwrap();
    // Each new stream begins with its definitions again.
    let mut again = Vec::new();
    Outgoing::calico().put(&restart, &mut again);
    for _ in 0..100 {
        let count = tokio::time::timeout(PATIENCE, stream.read(&mut heard)).await.unwrap().unwrap();
        assert!(count > 0, "an ACK");
        stream.write_all(&again).await.unwrap();
    }
    stream.write_all(&again.repeat(2)).await.unwrap();
    until("it is left", || format!("{:?}", client.pulse).contains("follow the end of a stream")).await;
}

/// Whatever came before, the next genuine client is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_megabyte_hello_is_accepted_or_refused_and_harms_no_other() {
    let world = World::start(patient(), None).await;
    world.felix().publish([input("/a", "1")]);
    world.felix().set_status(Status::InSync);
    let long = typha_wire::ClientHello { hostname: "n".repeat(1_000_000), ..hello("felix", false, &[]) };
    let mut client = Raw::connect(world.address).await;
    client.say(&Message::ClientHello(long)).await;
    assert_eq!(client.message().await, "hello felix");
    let longer = typha_wire::ClientHello { hostname: "n".repeat(1 << 20), ..hello("felix", false, &[]) };
    let mut refused = Raw::connect(world.address).await;
    refused.say(&Message::ClientHello(longer)).await;
    assert!(refused.is_closed().await);
    let client = world.client();
    until("served", || client.has(&world.contents())).await;
}
