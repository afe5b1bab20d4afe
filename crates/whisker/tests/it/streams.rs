//! Streams of events: nothing is lost, and after a broken connection they resume.

use crate::world::{NOW, World, key, shop};
use axum::body::{Body, BodyDataStream};
use flows::Reporter;
use futures::StreamExt as _;
use http::Request;
use serde_json::Value;
use testkit::PATIENCE;

/// An event: its name, id and data.
#[derive(Debug, PartialEq)]
struct Event {
    name: String,
    id: String,
    data: Value,
}

struct Reader {
    body: BodyDataStream,
    text: String,
    /// The number of comments received.
    comments: usize,
}

impl Reader {
    async fn open(world: &World, path: &str, last: &str) -> Self {
        let mut request = Request::get(path);
        if !last.is_empty() {
            request = request.header("last-event-id", last);
        }
        let response = world.ask(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.status(), 200);
        Self { body: response.into_body().into_data_stream(), text: String::new(), comments: 0 }
    }

    /// The next event with data.
    async fn next(&mut self) -> Event {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                self.text = rest.to_owned();
                let field = |name: &str| {
                    block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
                };
                self.comments += usize::from(block.starts_with(':'));
                if block.contains("data: ") {
                    let data = serde_json::from_str(&field("data: ")).unwrap();
                    return Event { name: field("event: "), id: field("id: "), data };
                }
            }
            let piece = tokio::time::timeout(PATIENCE, self.body.next()).await.expect("an event in time");
            self.text.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
        }
    }

    /// The next event other than a status.
    async fn not_status(&mut self) -> Event {
        loop {
            let event = self.next().await;
            if event.name != "status" {
                return event;
            }
        }
    }

    /// The next event with this name.
    async fn named(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().await;
            if event.name == name {
                return event;
            }
        }
    }
}

#[tokio::test]
async fn calicos_stream_sends_a_bucket_when_it_has_ended() {
    let world = World::shop();
    let mut reader = Reader::open(&world, "/flows?watch=true&startTimeGte=-60", "").await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let event = reader.next().await;
        assert_eq!(
            (event.name.as_str(), &event.data["start_time"]),
            ("", &Value::from("2023-11-14T22:13:00Z"))
        );
        assert!(event.data.get("id").is_none(), "Calico's form has no more than its fields");
        ids.push(event.id);
    }
    let (bucket, next) = ((NOW - 30).to_string(), (NOW - 15).to_string());
    assert_eq!(ids, [&*bucket, &*bucket, &*bucket, &*next], "all of a bucket, or all of it again");
    // The bucket that fills is sent only once it has ended.
    world.add(&shop()[0].0, NOW + 1, 5);
    world.advance(45);
    let event = reader.next().await;
    assert_eq!((&event.data["packets_in"], event.id), (&Value::from(5), (NOW + 15).to_string()));
    assert!(reader.comments > 0, "a silent stream sends heartbeats");
    // A broken connection resumes there.
    let mut again =
        Reader::open(&world, "/flows?watch=true&startTimeGte=-600", &(NOW - 15).to_string()).await;
    assert_eq!(again.next().await.data["packets_in"], 5);
}

#[tokio::test]
async fn live_flows_arrive_at_once_and_resume_after_a_break() {
    let world = World::shop();
    let mut reader = Reader::open(&world, "/api/v1/live?startTimeGte=-60", "").await;
    let first = reader.named("flows").await;
    assert_eq!(first.data.as_array().unwrap().len(), 4);
    assert!(reader.named("status").await.data["source"] == "a test");
    // Changes of the bucket that fills are sent at once, with all of its counters.
    let key = &shop()[0].0;
    world.add(key, NOW + 1, 5);
    let one = reader.named("flows").await;
    assert_eq!((&one.data[0]["packets_in"], one.data.as_array().unwrap().len()), (&Value::from(5), 1));
    world.add(key, NOW + 2, 5);
    let two = reader.named("flows").await;
    assert_eq!((&two.data[0]["packets_in"], &two.data[0]["id"]), (&Value::from(10), &one.data[0]["id"]));
    drop(reader);
    world.add(key, NOW + 3, 7);
    let mut again = Reader::open(&world, "/api/v1/live?startTimeGte=-60", &two.id).await;
    let next = again.not_status().await;
    assert_eq!((next.name.as_str(), next.data.as_array().unwrap().len()), ("flows", 0), "nothing twice");
    let three = again.named("flows").await;
    assert_eq!((&three.data[0]["packets_in"], three.data.as_array().unwrap().len()), (&Value::from(17), 1));
    // A place of another process is ignored: everything is sent again.
    let mut other = Reader::open(&world, "/api/v1/live?startTimeGte=-60", "1.2").await;
    assert_eq!(other.not_status().await.name, "reset", "numbers may mean other flows");
    assert_eq!(other.named("flows").await.data.as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn filters_apply_to_streams() {
    let world = World::shop();
    let filters = "filters=%7B%22actions%22%3A%5B%22Deny%22%5D%7D";
    let mut reader = Reader::open(&world, &format!("/api/v1/live?startTimeGte=-60&{filters}"), "").await;
    assert_eq!(reader.named("flows").await.data.as_array().unwrap().len(), 1);
    world.add(&key("a/b", "c/d", 1, Reporter::Dst, &[], &[]), NOW, 1);
    world.add(&shop()[2].0, NOW, 9);
    let event = reader.named("flows").await;
    assert_eq!((&event.data[0]["packets_in"], event.data.as_array().unwrap().len()), (&Value::from(9), 1));
}

#[tokio::test]
async fn streams_are_bounded() {
    let world = World::shop();
    let mut open = Vec::new();
    loop {
        let response = world.get("/api/v1/live").await;
        if response.status() == 503 {
            break;
        }
        open.push(response);
        assert!(open.len() < 1000);
    }
    assert_eq!(world.get("/flows?watch=true").await.status(), 503);
    open.pop();
    assert_eq!(world.get("/api/v1/live").await.status(), 200, "the place is free again");
}
