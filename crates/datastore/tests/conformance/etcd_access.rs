//! Access to a real etcd: client certificates, users, several members of which some are down, and the messages when it
//! fails.

use anyhow::{Context as _, Result, ensure};
use datastore::etcd::{EtcdBackend, EtcdConfig, TlsFiles, TlsInline};
use datastore::{Backend, Error, Secret, WatchOptions};
use model::{Key, KvPair, ListOptions};
use testkit::{Authority, Etcd, EtcdOptions, Folder, free_port};

use crate::harness::{expect_error, network_set, network_sets, sample};

async fn start(options: EtcdOptions) -> Result<Etcd> {
    tokio::task::spawn_blocking(move || Etcd::start_with(options)).await?
}

/// Writes, reads and deletes once.
async fn use_it(config: &EtcdConfig) -> Result<()> {
    let backend = EtcdBackend::connect(config).await?;
    backend.ensure_ready().await?;
    let created = backend.create(&network_set("default", "access", "10.0.0.0/8")?).await?;
    backend.get(&created.key, None).await?;
    backend.delete(&created.key, Some(&created.revision)).await?;
    Ok(())
}

async fn refusal(config: &EtcdConfig) -> Result<Error> {
    let backend = match EtcdBackend::connect(config).await {
        Ok(backend) => backend,
        Err(error) => return Ok(error),
    };
    match backend.ensure_ready().await {
        Ok(()) => anyhow::bail!("it was let in"),
        Err(error) => Ok(error),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates() -> Result<()> {
    let etcd = start(EtcdOptions { tls: true, ..EtcdOptions::default() }).await?;
    let client = etcd.client_certificate().context("no client certificate")?;
    let files = TlsFiles {
        ca_cert: etcd.ca_certificate().context("no authority")?,
        cert: client.certificate.clone(),
        key: client.key.clone(),
    };
    let by_files = EtcdConfig { files: files.clone(), ..EtcdConfig::for_endpoints(&etcd.endpoint()) };
    use_it(&by_files).await.context("certificates in files")?;
    let without_scheme = etcd.endpoint().replace("https://", "");
    use_it(&EtcdConfig { files: files.clone(), ..EtcdConfig::for_endpoints(&without_scheme) })
        .await
        .context("an endpoint without a scheme")?;

    let inline = TlsInline {
        ca_cert: std::fs::read_to_string(&files.ca_cert)?,
        cert: std::fs::read_to_string(&files.cert)?,
        key: Secret::new(std::fs::read_to_string(&files.key)?),
    };
    let by_text = EtcdConfig { inline, ..EtcdConfig::for_endpoints(&etcd.endpoint()) };
    use_it(&by_text).await.context("certificates as text")?;

    // Another authority: the message reports what is wrong with the certificate.
    let folder = Folder::new("other-authority")?;
    let other = Authority::new(folder.path())?;
    let wrong_authority = EtcdConfig {
        files: TlsFiles { ca_cert: other.certificate.clone(), ..files.clone() },
        ..EtcdConfig::for_endpoints(&etcd.endpoint())
    };
    let error = refusal(&wrong_authority).await?;
    ensure!(error.is_transient() && error.to_string().contains("certificate"), "wrong authority: {error}");

    // No client certificate, and one that the server does not accept.
    let ca_only = TlsFiles { ca_cert: files.ca_cert.clone(), ..TlsFiles::default() };
    let error =
        refusal(&EtcdConfig { files: ca_only, ..EtcdConfig::for_endpoints(&etcd.endpoint()) }).await?;
    ensure!(
        error.to_string().contains("does the server require a client certificate?"),
        "no certificate: {error}"
    );
    let stranger = other.sign("stranger", "stranger", &[])?;
    let strange = TlsFiles { cert: stranger.certificate, key: stranger.key, ..files.clone() };
    let error =
        refusal(&EtcdConfig { files: strange, ..EtcdConfig::for_endpoints(&etcd.endpoint()) }).await?;
    ensure!(
        error.is_transient() && error.to_string().contains("certificate"),
        "a certificate of a stranger: {error}"
    );

    // Plain text to a server that requires TLS.
    let plain = EtcdConfig::for_endpoints(&etcd.endpoint().replace("https://", "http://"));
    let error = refusal(&plain).await?;
    ensure!(
        error.is_transient() && error.to_string().contains("does the server require https?"),
        "plain text: {error}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_passwords() -> Result<()> {
    let etcd =
        start(EtcdOptions { flags: vec!["--auth-token-ttl=2".into()], ..EtcdOptions::default() }).await?;
    let run = |arguments: &[&str]| -> Result<()> {
        let output = etcd.etcdctl(arguments)?;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    let with = |user: &str, password: &str| EtcdConfig {
        username: user.into(),
        password: password.into(),
        ..EtcdConfig::for_endpoints(&etcd.endpoint())
    };
    use_it(&with("root", "anything")).await.context("a password where there are no users yet")?;
    run(&["user", "add", "root:secret"])?;
    run(&["user", "grant-role", "root", "root"])?;
    run(&["user", "add", "reader:secret"])?;
    run(&["role", "add", "reader"])?;
    run(&["role", "grant-permission", "reader", "--prefix=true", "read", "/calico/"])?;
    run(&["user", "grant-role", "reader", "reader"])?;
    run(&["auth", "enable"])?;

    use_it(&with("root", "secret")).await.context("the right password")?;
    for (user, password) in [("root", "wrong"), ("nobody", "secret"), ("", "")] {
        let error = refusal(&with(user, password)).await?;
        ensure!(matches!(error, Error::Unauthorized { .. }), "{user}: {error:?}");
        let text = error.to_string();
        ensure!(
            text.starts_with("connection is unauthorized: ") && !text.contains("secret"),
            "{user}: {text}"
        );
    }

    let reader = EtcdBackend::connect(&with("reader", "secret")).await?;
    reader.list(&ListOptions::resources(api::Kind::NetworkSet), None).await.context("a reader may list")?;
    let entry = network_set("default", "forbidden", "10.0.0.0/8")?;
    expect_error(reader.create(&entry).await, "unauthorized", |error| {
        matches!(error, Error::Unauthorized { .. })
    })?;

    // Tokens live for two seconds here; the backend renews them by itself.
    let backend = EtcdBackend::connect(&with("root", "secret")).await?;
    let created = backend.create(&KvPair::resource(sample(api::Kind::Tier, "first")?)).await?;
    let tiers = ListOptions::resources(api::Kind::Tier);
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    backend.get(&created.key, None).await.context("a read after the token expired")?;
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    backend
        .create(&KvPair::resource(sample(api::Kind::Tier, "second")?))
        .await
        .context("a write after the token expired")?;
    let listed = backend.list(&tiers, None).await?;
    ensure!(listed.items.len() == 2, "{listed:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_members_one_of_them_down() -> Result<()> {
    let etcd = start(EtcdOptions::default()).await?;
    let dead = format!("http://127.0.0.1:{}", free_port()?);
    for endpoints in [format!("{dead},{}", etcd.endpoint()), format!("{},{dead}", etcd.endpoint())] {
        let config = EtcdConfig::for_endpoints(&endpoints);
        use_it(&config).await.with_context(|| endpoints.clone())?;
        let backend = EtcdBackend::connect(&config).await?;
        for round in 0..20 {
            let name = format!("set-{round}");
            backend.create(&network_set("default", &name, "10.0.0.0/8")?).await?;
            backend.delete(&Key::resource(api::Kind::NetworkSet, "default", &name), None).await?;
        }
    }
    let error = refusal(&EtcdConfig::for_endpoints(&format!("{dead},http://127.0.0.1:1"))).await?;
    let text = error.to_string();
    ensure!(error.is_transient() && text.contains(&dead) && text.contains("refused"), "{text}");
    let error = refusal(&EtcdConfig::for_endpoints("http://no-such-host.invalid:2379")).await?;
    ensure!(error.to_string().contains("no-such-host.invalid"), "{error}");
    let error = refusal(&EtcdConfig::for_endpoints("unix:///nowhere/tortie.sock")).await?;
    ensure!(error.to_string().contains("/nowhere/tortie.sock"), "{error}");
    Ok(())
}

/// The member in use goes away; the other one takes over, for writes and for a new watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_goes_away_is_replaced() -> Result<()> {
    let etcd = start(EtcdOptions::default()).await?;
    // A second path to the same server, which can be cut.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let detour = format!("http://{}", listener.local_addr()?);
    let target = etcd.endpoint().replace("http://", "");
    let proxy = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut from, _)) = listener.accept().await {
            let target = target.clone();
            connections.spawn(async move {
                let mut to = tokio::net::TcpStream::connect(target).await?;
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    let config = EtcdConfig::for_endpoints(&format!("{detour},{}", etcd.endpoint()));
    let backend = EtcdBackend::connect(&config).await?;
    backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;
    proxy.abort();
    let _ = proxy.await;
    let one = backend.get(&Key::resource(api::Kind::NetworkSet, "default", "one"), None).await?;
    backend.update(&one).await?;
    Ok(())
}

/// The number of watches in an etcd, by its own metrics.
async fn watchers(endpoint: &str) -> Result<f64> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let host = endpoint.trim_start_matches("http://");
    let mut connection = tokio::net::TcpStream::connect(host).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    connection.read_to_string(&mut text).await?;
    let line = text.lines().find(|line| line.starts_with("etcd_debugging_mvcc_watcher_total "));
    Ok(line.and_then(|line| line.split(' ').nth(1)).context("no such figure")?.parse()?)
}

/// A component opens a new watch whenever one ends; the server must not continue those that are not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_watches_end_at_the_server() -> Result<()> {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await??;
    let endpoint = etcd.endpoint();
    let backend = EtcdBackend::connect(&EtcdConfig::for_endpoints(&endpoint)).await?;
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(backend.watch(&network_sets("default"), WatchOptions::default()).await?);
    }
    ensure!(watchers(&endpoint).await? >= 20.0, "{}", watchers(&endpoint).await?);
    drop(open);
    for _ in 0..600 {
        if watchers(&endpoint).await? < 1.0 {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("{} watches are left", watchers(&endpoint).await?)
}
