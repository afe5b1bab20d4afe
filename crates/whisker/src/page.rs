//! The page: one html, one js, one css and an icon, built in, or read from a folder during development.
//!
//! Answers carry an ETag of their content, so that a browser revalidates each time and only loads what changed.

use crate::app::App;
use crate::respond::{answer, error, gzipped, takes_gzip};
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use sha2::{Digest as _, Sha256};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A file of the page.
struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const INDEX: &str = "index.html";

static FILES: [File; 4] = [
    File { name: INDEX, kind: "text/html; charset=utf-8", bytes: include_bytes!("../page/dist/index.html") },
    File {
        name: "whisker.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../page/dist/whisker.js"),
    },
    File {
        name: "whisker.css",
        kind: "text/css; charset=utf-8",
        bytes: include_bytes!("../page/dist/whisker.css"),
    },
    File { name: "icon.svg", kind: "image/svg+xml", bytes: include_bytes!("../page/dist/icon.svg") },
];

/// A file ready to be sent.
#[derive(Clone)]
struct Encoded {
    plain: Bytes,
    compressed: Bytes,
    tag: HeaderValue,
}

/// The files of the page.
#[derive(Default)]
pub(crate) struct Page {
    folder: Option<PathBuf>,
    /// Each encoded on first use.
    encoded: [OnceLock<Encoded>; FILES.len()],
}

impl Encoded {
    fn new(plain: impl Into<Bytes>) -> Self {
        let plain = plain.into();
        let hash: String = Sha256::digest(&plain).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let tag = HeaderValue::try_from(format!("\"{hash}\""));
        Self {
            compressed: gzipped(&plain, Compression::best()).into(),
            // Cannot fail: hexadecimal digits are valid in a header.
            tag: tag.unwrap_or_else(|_| HeaderValue::from_static("\"\"")),
            plain,
        }
    }
}

impl Page {
    /// The built-in page, or the one in a folder.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, ..Self::default() }
    }

    /// A file by its index.
    fn encoded(&self, place: usize) -> Result<Encoded, String> {
        let file = &FILES[place];
        match &self.folder {
            None => Ok(self.encoded[place].get_or_init(|| Encoded::new(file.bytes)).clone()),
            Some(folder) => {
                let path = folder.join(file.name);
                let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                Ok(Encoded::new(bytes))
            }
        }
    }
}

/// The file for a path. A path without an extension is a view of the page, like Calico's `/flow-logs`.
fn place_of(path: &str) -> Option<usize> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = if name.contains('.') { path.trim_start_matches('/') } else { INDEX };
    FILES.iter().position(|file| file.name == name)
}

/// Serves a file of the page.
pub(crate) async fn page(State(app): State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path();
    let Some(place) = place_of(path).filter(|_| !path.starts_with("/api/")) else {
        return error(StatusCode::NOT_FOUND, "not found");
    };
    match app.page.encoded(place) {
        Ok(file) => respond(&file, FILES[place].kind, &headers),
        Err(problem) => error(StatusCode::INTERNAL_SERVER_ERROR, &problem),
    }
}

fn respond(file: &Encoded, kind: &'static str, headers: &HeaderMap) -> Response {
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|text| text.split(',')).map(|tag| tag.trim().trim_start_matches("W/"));
    let is_known = known.any(|tag| tag.as_bytes() == file.tag.as_bytes());
    let is_compressed = !is_known && takes_gzip(headers);
    let (status, body) = match (is_known, is_compressed) {
        (true, _) => (StatusCode::NOT_MODIFIED, Bytes::new()),
        (false, true) => (StatusCode::OK, file.compressed.clone()),
        (false, false) => (StatusCode::OK, file.plain.clone()),
    };
    let mut response = answer(status, kind, body);
    let found = response.headers_mut();
    found.insert(ETAG, file.tag.clone());
    found.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    found.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_compressed {
        found.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}
