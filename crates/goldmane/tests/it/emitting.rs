//! Sending complete flows to a server that accepts lines of JSON.

use crate::world::{World, flow};
use daemon::ShutdownHandle;
use goldmane::for_tests::{EmitterOptions, PostTarget, Progress, emit};
use std::path::PathBuf;
use std::sync::Arc;
use testkit::Folder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Accepts one request and answers it; returns its head and body.
async fn take(listener: &TcpListener, answer: &str) -> (String, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if Some(body.len()) == length {
                let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                return (head.to_owned(), body.to_owned());
            }
        }
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "the request ends early");
        request.extend(&buffer[..count]);
    }
}

#[tokio::test]
async fn a_complete_window_is_sent_and_retried_when_refused() {
    let world = World::start().await;
    let folder = Folder::new("goldmane").unwrap();
    let switch = folder.path().join("config.json");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/bulk?x=1", listener.local_addr().unwrap()).parse().unwrap();
    let target = PostTarget {
        url,
        authority: PathBuf::new(),
        certificate: PathBuf::new(),
        key: PathBuf::new(),
        server_name: String::new(),
    };
    let options = EmitterOptions { target, window: 60, settling: 30, switch: Some(switch.clone()) };
    let (_end, shutdown) = ShutdownHandle::new();
    // The start of the next whole window.
    let begin = (world.now() / 60 + 1) * 60;
    world.pass(begin - world.now());
    tokio::spawn(emit(Arc::clone(&world.aggregator), options, Progress::nowhere(), shutdown));
    world.pass(60);
    world.send(vec![flow("a", begin, 1), flow("b", begin + 15, 2), flow("a", begin + 45, 4)]).await;
    world.send(vec![flow("late", begin + 59, 8)]).await;
    std::fs::write(&switch, r#"{"emitFlows": true}"#).unwrap();
    world.pass(30);
    let (head, refused) = take(&listener, "503 Busy").await;
    let (_, body) = take(&listener, "200 OK").await;
    assert_eq!(refused, body);
    assert!(head.starts_with("POST /bulk?x=1 HTTP/1.1") && head.contains("application/x-ndjson"), "{head}");
    let mut lines: Vec<serde_json::Value> =
        body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["Key"]["source_name"].to_string());
    let names: Vec<_> = lines.iter().map(|line| line["Key"]["source_name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "late"]);
    let first = &lines[0];
    assert_eq!(first["packets_out"], 5);
    assert_eq!((first["start_time"].as_i64(), first["end_time"].as_i64()), (Some(begin), Some(begin + 60)));
    assert_eq!(first["packets_in"], serde_json::Value::Null, "zero is left out");
    assert_eq!((first["Key"]["source_type"].as_i64(), first["Key"]["action"].as_i64()), (Some(1), Some(1)));
    assert_eq!(first["Key"]["policies"]["enforced_policies"][0]["rule_index"], 1);
    // The next window, without any flow of the previous one.
    world.send(vec![flow("c", begin + 60, 1)]).await;
    world.pass(60);
    let (_, body) = take(&listener, "200 OK").await;
    assert_eq!(body.lines().count(), 1);
}
