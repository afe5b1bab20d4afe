//! The registrar between a driver and a kubelet.

use crate::clients::connect;
use anyhow::{Context as _, Result, ensure};
use daemon::ShutdownHandle;
use pod2daemon::for_tests::registration_proto::registration_client::RegistrationClient;
use pod2daemon::for_tests::registration_proto::{InfoRequest, RegistrationStatus};
use pod2daemon::for_tests::{Homes, RegistrarSettings, serve_driver, serve_registrar};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;
use testkit::Folder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn settings(folder: &Path, health: Option<String>) -> RegistrarSettings {
    RegistrarSettings {
        driver: folder.join("csi.sock"),
        seen: "/var/lib/kubelet/plugins/csi.tigera.io/csi.sock".to_owned(),
        folder: folder.join("registration"),
        patience: Duration::from_secs(30),
        health,
    }
}

/// The response of /healthz: its status line, and its body.
async fn health(port: u16) -> Result<(String, String)> {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, text) = answer.split_once("\r\n\r\n").context("an answer has a head")?;
    Ok((head.lines().next().unwrap_or_default().to_owned(), text.to_owned()))
}

#[tokio::test]
async fn it_waits_for_the_driver_and_registers_it_until_shutdown() -> Result<()> {
    let folder = Folder::new("registrar")?;
    let path = folder.path();
    std::fs::create_dir(path.join("registration"))?;
    let socket = path.join("registration/csi.tigera.io-reg.sock");
    // Left by a killed registrar.
    drop(std::os::unix::net::UnixListener::bind(&socket)?);
    let port = testkit::free_port()?;
    let settings = settings(path, Some(format!("127.0.0.1:{port}")));
    let (end, shutdown) = ShutdownHandle::new();
    let registrar = tokio::spawn(async move { serve_registrar(&settings, shutdown).await });
    let (end_driver, shutdown) = ShutdownHandle::new();
    let (at, homes) = (path.join("csi.sock"), Homes::under(&path.join("nodeagent")));
    let driver = tokio::spawn(async move { serve_driver(&at, "node1".to_owned(), homes, shutdown).await });
    let mut kubelet = RegistrationClient::new(connect(&socket).await?);
    let info = kubelet.get_info(InfoRequest {}).await?.into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", "csi.tigera.io"));
    assert_eq!(info.endpoint, "/var/lib/kubelet/plugins/csi.tigera.io/csi.sock");
    assert_eq!(info.supported_versions, ["1.0.0"]);
    let mode = std::fs::metadata(&socket)?.permissions().mode() & 0o7777;
    assert_eq!(mode, 0o600);
    let taken = RegistrationStatus { plugin_registered: true, error: String::new() };
    kubelet.notify_registration_status(taken).await?;
    let (status, text) = testkit::eventually_async("health", async || health(port).await.ok()).await?;
    assert_eq!((status.as_str(), text.as_str()), ("HTTP/1.1 200 OK", "ok"));
    let moved = path.join("elsewhere");
    std::fs::rename(&socket, &moved)?;
    assert!(health(port).await?.0.contains("404"));
    std::fs::rename(&moved, &socket)?;
    end.request();
    registrar.await??;
    ensure!(!socket.exists(), "a kubelet takes a socket that is gone for a driver that is gone");
    end_driver.request();
    driver.await?
}

#[tokio::test]
async fn it_fails_when_the_kubelet_rejects_the_driver() -> Result<()> {
    let folder = Folder::new("registrar-refused")?;
    let path = folder.path();
    std::fs::create_dir(path.join("registration"))?;
    let (_end_driver, shutdown) = ShutdownHandle::new();
    let (at, homes) = (path.join("csi.sock"), Homes::under(&path.join("nodeagent")));
    tokio::spawn(async move { serve_driver(&at, "node1".to_owned(), homes, shutdown).await });
    let settings = settings(path, None);
    let (_end, shutdown) = ShutdownHandle::new();
    let registrar = tokio::spawn(async move { serve_registrar(&settings, shutdown).await });
    let socket = path.join("registration/csi.tigera.io-reg.sock");
    let mut kubelet = RegistrationClient::new(connect(&socket).await?);
    let refused = RegistrationStatus { plugin_registered: false, error: "node name is not right".to_owned() };
    kubelet.notify_registration_status(refused).await?;
    drop(kubelet);
    let error = registrar.await?.expect_err("it ends");
    assert!(error.to_string().contains("node name is not right"), "{error}");
    assert!(!socket.exists());
    Ok(())
}
