//! Authentication: certificates of the right authority, with the right names, on both sides.

use crate::world::{Client, HOUR, Raw, World, hello, patient, quick, settings, until};
use model::feed::Status;
use testkit::{Authority, Etcd, Folder, KeyAndCertificate, Process};
use typha_client::tls::{PeerName, ServerTls, TlsFiles};
use typha_wire::Message;

fn files(authority: &Authority, signed: &KeyAndCertificate) -> TlsFiles {
    TlsFiles {
        key: signed.key.clone(),
        certificate: signed.certificate.clone(),
        authorities: authority.certificate.clone(),
    }
}

pub(crate) fn named(common_name: &str) -> PeerName {
    PeerName { common_name: common_name.to_owned(), uri_san: String::new() }
}

pub(crate) struct Certificates {
    folder: Folder,
    authority: Authority,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let folder = Folder::new("typha-tls").unwrap();
        let authority = Authority::new(folder.path()).unwrap();
        Self { folder, authority }
    }

    pub(crate) fn files(&self, name: &str, common_name: &str) -> TlsFiles {
        files(&self.authority, &self.authority.sign(name, common_name, &[]).unwrap())
    }
}

pub(crate) async fn is_served(world: &World, tls: Option<(TlsFiles, PeerName)>) -> bool {
    let mut settings = settings();
    settings.tls = tls;
    let client = Client::start(world.address, settings);
    let wanted = world.contents();
    let begin = std::time::Instant::now();
    loop {
        if client.has(&wanted) {
            return true;
        }
        let health = format!("{:?}", client.pulse);
        if health.contains("no connection to Typha (") && begin.elapsed().as_millis() > 500 {
            return false;
        }
        assert!(begin.elapsed() < crate::world::PATIENCE, "{health}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_authorities_on_both_sides() {
    let certificates = Certificates::new();
    let server = certificates.files("server", "typha-server");
    let world = World::start(quick(), Some(ServerTls::new(server, named("typha-client")))).await;
    world.felix().set_status(Status::InSync);
    let client = certificates.files("client", "typha-client");
    let elsewhere = certificates.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let stranger = Authority::new(&elsewhere).unwrap();
    let strange = files(&certificates.authority, &stranger.sign("client", "typha-client", &[]).unwrap());
    let other_name = certificates.files("other", "somebody");
    let distrusting = TlsFiles { authorities: stranger.certificate.clone(), ..client.clone() };
    for (what, files, name, served) in [
        ("as it should be", client.clone(), named("typha-server"), true),
        (
            "a URI may be missing where the name is right",
            client.clone(),
            PeerName { uri_san: "spiffe://x".into(), ..named("typha-server") },
            true,
        ),
        ("the server has another name", client.clone(), named("typha"), false),
        (
            "the server has no such URI",
            client.clone(),
            PeerName { uri_san: "spiffe://x".into(), ..named("") },
            false,
        ),
        ("the client has another name", other_name, named("typha-server"), false),
        ("the client is of another authority", strange, named("typha-server"), false),
        ("the server is of another authority", distrusting, named("typha-server"), false),
    ] {
        assert_eq!(is_served(&world, Some((files, name))).await, served, "{what}");
    }
    assert!(!is_served(&world, None).await, "without TLS");
    // Plain bytes get no plain answer.
    let mut plain = Raw::connect(world.address).await;
    plain.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    let mut answer = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut plain.stream, &mut answer).await;
    assert!(answer.len() < 32, "an alert, and nothing of ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_certificates_are_read_and_bad_ones_change_nothing() {
    let certificates = Certificates::new();
    let server = certificates.files("server", "old-name");
    let client = certificates.files("client", "typha-client");
    let world = World::start(quick(), Some(ServerTls::new(server.clone(), named("typha-client")))).await;
    world.felix().set_status(Status::InSync);
    assert!(is_served(&world, Some((client.clone(), named("old-name")))).await);
    replace(&server, &certificates.files("new", "new-name"), 10);
    assert!(is_served(&world, Some((client.clone(), named("new-name")))).await);
    std::fs::write(&server.certificate, "nothing").unwrap();
    stamp(&server.certificate, 20);
    assert!(is_served(&world, Some((client, named("new-name")))).await);
    until("all are gone", || world.connections() == 0).await;
}

fn replace(old: &TlsFiles, new: &TlsFiles, later: u64) {
    for (from, to) in [(&new.key, &old.key), (&new.certificate, &old.certificate)] {
        std::fs::copy(from, to).unwrap();
        stamp(to, later);
    }
}

fn stamp(path: &std::path::Path, later: u64) {
    let time = std::time::SystemTime::now() + std::time::Duration::from_secs(later);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// CVE-2023-41378 of Calico: a client that never finishes its handshake blocked all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_handshake_delays_no_other_and_is_ended() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let certificates = Certificates::new();
    let server = certificates.files("server", "typha-server");
    let client = certificates.files("client", "typha-client");
    // Where a handshake may take an hour, waiting for one would outlast the test.
    for settings in [patient(), quick()] {
        let is_quick = settings.handshake_timeout < HOUR;
        let tls = ServerTls::new(server.clone(), named("typha-client"));
        let world = World::start(settings, Some(tls)).await;
        world.felix().set_status(Status::InSync);
        let mut stalled = Vec::new();
        // Nothing at all; the header of a record; a record that announces more than it contains.
        for bytes in [&[][..], &[0x16, 3, 1][..], &[0x16, 3, 1, 0x3f, 0xff, 1, 0, 0][..]] {
            for _ in 0..20 {
                let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
                stream.write_all(bytes).await.unwrap();
                stalled.push(stream);
            }
        }
        assert!(is_served(&world, Some((client.clone(), named("typha-server")))).await);
        if is_quick {
            for mut stream in stalled {
                let mut rest = Vec::new();
                let ended = tokio::time::timeout(crate::world::PATIENCE, stream.read_to_end(&mut rest)).await;
                assert!(ended.is_ok(), "it is still open");
            }
            until("all are gone", || world.connections() == 0).await;
        }
    }
}

/// CVE-2026-6720 (calicoctl) and CVE-2026-41184 (the installer of the CNI plugin): credentials in the log. Typha's log
/// at its most verbose contains none: neither the password of the store, nor a key that cannot be used, nor the one it
/// serves with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_the_log() {
    const PASSWORD: &str = "correct-horse-battery";
    let (etcd, certificates) = (Etcd::start().unwrap(), Certificates::new());
    let server = certificates.files("server", "typha-server");
    let broken = TlsFiles { key: certificates.folder.path().join("broken.pem"), ..server.clone() };
    let key_line = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().nth(1).unwrap().to_owned()
    };
    let secret = key_line(&server.key);
    // Half of a key: code that reads it must not repeat it.
    std::fs::write(&broken.key, format!("-----BEGIN PRIVATE KEY-----\n{secret}\n")).unwrap();
    for (what, files, variables, awaited) in [
        (
            "password",
            &server,
            vec![format!("ETCD_PASSWORD={PASSWORD}"), "ETCD_USERNAME=calico".to_owned()],
            "a client said hello",
        ),
        ("broken", &broken, vec![format!("TYPHA_NONSENSE={PASSWORD}")], "broken.pem"),
        ("serving", &server, vec![format!("TYPHA_NONSENSE={PASSWORD}")], "a client said hello"),
    ] {
        let port = testkit::free_port().unwrap();
        let place = |path: &std::path::Path| path.display().to_string();
        let file = certificates.folder.path().join(format!("{what}.cfg"));
        let text = format!(
            "[global]\nDatastoreType = etcdv3\nEtcdEndpoints = {}\nServerHost = 127.0.0.1\nServerPort = {port}\n\
             ServerKeyFile = {}\nServerCertFile = {}\nCAFile = {}\nClientCN = typha-client\nLogFilePath = none\n\
             LogSeverityScreen = debug\nLogSeverityFile = none\nLogSeveritySys = none\n",
            etcd.endpoint(),
            place(&files.key),
            place(&files.certificate),
            place(&files.authorities),
        );
        std::fs::write(&file, text).unwrap();
        let mut arguments = variables;
        arguments.push(place(&testkit::example("typha").unwrap()));
        arguments.extend(["-c".to_owned(), place(&file)]);
        let log = certificates.folder.path().join(format!("{what}.log"));
        let _process = Process::start(std::path::Path::new("env"), &arguments, &log).unwrap();
        let mut tls = settings();
        tls.tls = Some((certificates.files("client", "typha-client"), named("typha-server")));
        let _client = Client::start(([127, 0, 0, 1], port).into(), tls);
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        until(&format!("{what}: the log says '{awaited}'"), || said().contains(awaited)).await;
        for secret in [PASSWORD, &secret] {
            assert!(!said().contains(secret), "{what}: {}", said());
        }
    }
}
