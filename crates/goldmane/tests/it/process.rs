//! The process as a container runs it.

use daemon::{ShutdownHandle, Variables};
use goldmane_api::connect::{Target, connect};
use goldmane_api::proto::FlowListRequest;
use goldmane_api::proto::flows_client::FlowsClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn get(port: u16, path: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
    Ok(answer)
}

#[tokio::test]
async fn variables_configure_health_metrics_and_the_api() {
    let [port, health, metrics] = [(); 3].map(|()| testkit::free_port().unwrap());
    let variables = Variables::new([
        ("PORT", port.to_string()),
        ("HEALTH_HOST", "127.0.0.1".to_owned()),
        ("HEALTH_PORT", health.to_string()),
        ("PROMETHEUS_PORT", metrics.to_string()),
    ]);
    let (end, shutdown) = ShutdownHandle::new();
    let running = tokio::spawn(async move { goldmane::for_tests::run(&variables, |_| {}, shutdown).await });
    testkit::eventually_async("it is ready", async || {
        get(health, "/readiness").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    })
    .await
    .unwrap();
    let answer = get(health, "/liveness").await.unwrap();
    assert!(answer.contains("startup") && answer.contains("aggregator"), "{answer}");
    let page = testkit::eventually_async("metrics are served", async || get(metrics, "/metrics").await.ok())
        .await
        .unwrap();
    assert!(page.contains("goldmane_aggr_num_unique_flows 0\n"), "{page}");
    let target = Target { address: format!("localhost:{port}"), tls: None };
    let mut client = FlowsClient::new(connect(&target).await.unwrap());
    assert!(client.list(FlowListRequest::default()).await.unwrap().into_inner().flows.is_empty());
    end.request();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_certificate_without_its_key_is_a_mistake() {
    for (name, reason) in [("SERVER_CERT_PATH", "must both be set"), ("PORT", "PORT")] {
        let variables = Variables::new([(name, "/nowhere"), ("HEALTH_ENABLED", "false")]);
        let (_end, shutdown) = ShutdownHandle::new();
        let error = goldmane::for_tests::run(&variables, |_| {}, shutdown).await.unwrap_err();
        assert!(format!("{error:#}").contains(reason), "{error:#}");
    }
}
