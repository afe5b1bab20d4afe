//! The page, and the headers of every answer.

use crate::world::{World, bytes};
use axum::body::Body;
use http::{Request, StatusCode};

#[tokio::test]
async fn every_answer_forbids_what_our_page_does_not_need() {
    let world = World::shop();
    for path in [
        "/",
        "/whisker.js",
        "/flows",
        "/api/v1/graph",
        "/no/such.file",
        "/flows?sortBy=x",
        "/config/config.json",
    ] {
        let response = world.get(path).await;
        let header =
            |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'self';"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert!(
            policy.contains("frame-ancestors 'none'") && policy.contains("base-uri 'none'"),
            "{path}: {policy}"
        );
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("x-frame-options"), "DENY", "{path}");
    }
}

#[tokio::test]
async fn hostile_names_are_data_and_never_a_document() {
    let world = World::empty();
    let name = "shop/\"><script>alert(1)</script>";
    world.add(
        &crate::world::key(name, "shop/web", 80, flows::Reporter::Dst, &[], &[]),
        crate::world::NOW - 30,
        1,
    );
    for path in
        ["/flows", "/api/v1/flows", "/api/v1/graph", "/api/v1/top", "/flows-filter-hints?type=SourceName"]
    {
        let response = world.get(path).await;
        assert_eq!(response.headers()["content-type"], "application/json", "{path}");
        let text = String::from_utf8(bytes(response).await).unwrap();
        assert!(text.contains("<script>alert(1)</script>"), "the name as it is: {path}");
    }
    let (_, answer) = world.json("/flows?sortBy=%3Cscript%3E").await;
    assert_eq!(answer["error"], "unknown sortBy value: <script>");
}

#[tokio::test]
async fn files_are_compressed_and_sent_only_when_changed() {
    let world = World::empty();
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/flow-logs", "text/html; charset=utf-8"),
        ("/whisker.js", "text/javascript; charset=utf-8"),
        ("/whisker.css", "text/css; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let plain = world.get(path).await;
        assert_eq!(
            (plain.status(), plain.headers()["content-type"].to_str().unwrap()),
            (StatusCode::OK, kind)
        );
        assert_eq!(plain.headers()["cache-control"], "no-cache");
        let tag = plain.headers()["etag"].clone();
        let plain = bytes(plain).await;
        let request = Request::get(path).header("accept-encoding", "gzip, br").body(Body::empty()).unwrap();
        let small = world.ask(request).await;
        assert_eq!(small.headers()["content-encoding"], "gzip");
        let mut unpacked = Vec::new();
        let small = bytes(small).await;
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*small), &mut unpacked).unwrap();
        assert_eq!(unpacked, plain, "{path}");
        let request = Request::get(path).header("if-none-match", tag).body(Body::empty()).unwrap();
        let known = world.ask(request).await;
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        assert!(bytes(known).await.is_empty());
    }
    for path in ["/no.js", "/assets/whisker.js", "/api/v2/flows", "/api/v1/none"] {
        assert_eq!(world.get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn the_page_is_small_and_contacts_no_other_server() {
    let world = World::empty();
    let mut size = 0;
    for path in ["/", "/whisker.js", "/whisker.css", "/icon.svg"] {
        let request = Request::get(path).header("accept-encoding", "gzip").body(Body::empty()).unwrap();
        size += bytes(world.ask(request).await).await.len();
    }
    assert!(size < 60_000, "{size} bytes");
    let page = String::from_utf8(bytes(world.get("/").await).await).unwrap();
    // Without inline scripts and styles, the strict policy breaks nothing.
    assert!(!page.contains("<style") && !page.contains("://") && !page.contains("<script>"), "{page}");
    let script = String::from_utf8(bytes(world.get("/whisker.js").await).await).unwrap();
    let hosts: Vec<&str> = script.split("https://").skip(1).collect();
    assert!(hosts.is_empty(), "{hosts:?}");
    // XML namespaces are not addresses.
    let plain = script.split("http://").skip(1).filter(|rest| !rest.starts_with("www.w3.org/"));
    assert_eq!(plain.count(), 0);
}

#[tokio::test]
async fn large_answers_are_compressed() {
    let world = World::shop();
    let request = Request::get("/flows").header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let response = world.ask(request).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let packed = bytes(response).await;
    let found: serde_json::Value = serde_json::from_reader(flate2::read::GzDecoder::new(&*packed)).unwrap();
    assert_eq!(found, world.json("/flows").await.1);
}
