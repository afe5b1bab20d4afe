//! Images for the pods of this bed, without a registry: busybox, under the names of what holds a pod's namespaces and of the
//! pods that talk.

use anyhow::{Context, Result};
use oci::{Effort, Entries, Entry, Image};
use std::borrow::Cow;
use testkit::{kubernetes_program, program};

/// The image of pods that talk.
pub(crate) const BUSYBOX: &str = "tortie.test/busybox:1";

/// The image that stands in for flannel: the bed makes the routes that flannel would make, so that it has nothing to do.
pub(crate) const FLANNEL: &str = "tortie.test/flannel:1";

/// What Kubernetes' own tests call `curl` in their pods, over busybox: one GET of an HTTP address, its body as the answer. It refuses
/// nothing, and takes no notice of flags other than those for time.
const CURL: &str = r#"#!/bin/sh
time=30
while [ $# -gt 0 ]; do
  case $1 in
    --connect-timeout|--max-time|-m) time=$2; shift ;;
    --interface|-o|-w|-H|-X) shift ;;
    -*) ;;
    *) rest=${1#http://} ;;
  esac
  shift
done
place=${rest%%/*} path=/
[ "$place" = "$rest" ] || path=/${rest#*/}
host=${place%:*} port=${place##*:}
[ "$host" != "$place" ] || port=80
host=${host#[} host=${host%]}
answer=$(printf 'GET %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n\r\n' "$path" "$place" |
  timeout $((time + 10)) busybox nc -w "$time" "$host" "$port" | tr -d '\r') || exit 7
[ -n "$answer" ] || exit 52
printf '%s\n' "$answer" | sed '1,/^$/d'
"#;

/// The archive with the images that every bed needs.
pub(crate) fn helpers(pause: &str) -> Result<Vec<u8>> {
    let busybox = busybox()?;
    let mut entries = root();
    entries.insert("bin/busybox".to_owned(), Entry::File { mode: 0o755, bytes: Cow::Borrowed(&busybox) });
    for name in [
        "cat", "echo", "grep", "head", "hostname", "httpd", "id", "ip", "nc", "nslookup", "ping", "printf",
        "sh", "sleep", "test", "timeout", "wget",
    ] {
        entries.insert(format!("bin/{name}"), Entry::Link("busybox".to_owned()));
    }
    let stand_in = b"#!/bin/sh\nexec sleep 2147483647\n".as_slice();
    entries.insert("opt".to_owned(), Entry::Folder { mode: 0o755, owner: 0 });
    entries.insert("opt/bin".to_owned(), Entry::Folder { mode: 0o755, owner: 0 });
    entries
        .insert("opt/bin/flanneld".to_owned(), Entry::File { mode: 0o755, bytes: Cow::Borrowed(stand_in) });
    let image = |reference: &str, entry_point| Image {
        reference: reference.to_owned(),
        layers: vec![0],
        entry_point,
        user: "0:0",
        folder: "/",
        environment: vec!["PATH=/bin"],
        ..Image::default()
    };
    let images = [pause, BUSYBOX, FLANNEL].map(|name| image(name, vec!["/bin/sleep", "2147483647"]));
    oci::write(&[oci::layer(&entries)?], &images, Effort::Fast)
}

fn busybox() -> Result<Vec<u8>> {
    let path = program("busybox", "install Debian's busybox-static (`make setup` does)")?;
    std::fs::read(&path).with_context(|| format!("reading {}", path.display()))
}

/// The archive with the program in the pods of Kubernetes' own tests, under these names.
pub(crate) fn agnhost(references: &[String]) -> Result<Vec<u8>> {
    let agnhost = kubernetes_program("agnhost")?;
    let agnhost = std::fs::read(&agnhost).with_context(|| format!("reading {}", agnhost.display()))?;
    let busybox = busybox()?;
    let mut entries = root();
    let files = [("agnhost", agnhost.as_slice()), ("bin/busybox", &busybox), ("bin/curl", CURL.as_bytes())];
    for (path, bytes) in files {
        entries.insert(path.to_owned(), Entry::File { mode: 0o755, bytes: Cow::Borrowed(bytes) });
    }
    for name in
        ["cat", "echo", "grep", "printf", "sed", "seq", "sh", "sleep", "test", "timeout", "tr", "xargs"]
    {
        entries.insert(format!("bin/{name}"), Entry::Link("busybox".to_owned()));
    }
    let image = |reference: &String| Image {
        reference: reference.clone(),
        layers: vec![0],
        entry_point: vec!["/agnhost"],
        command: vec!["pause"],
        user: "0:0",
        folder: "/",
        environment: vec!["PATH=/bin:/"],
        ..Image::default()
    };
    let images: Vec<Image<'_>> = references.iter().map(image).collect();
    oci::write(&[oci::layer(&entries)?], &images, Effort::Fast)
}

/// Folders that a runtime and programs expect.
fn root() -> Entries<'static> {
    let folder = |path: &str, mode| (path.to_owned(), Entry::Folder { mode, owner: 0 });
    ["dev", "etc", "proc", "sys"]
        .map(|path| folder(path, 0o755))
        .into_iter()
        .chain([folder("tmp", 0o1777)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::CURL;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::process::Command;

    /// The script as pods run it, but for the names of busybox.
    #[test]
    fn what_stands_in_for_curl_prints_the_body() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
            let mut asked = Vec::new();
            let mut buffer = [0; 512];
            while !asked.ends_with(b"\r\n\r\n") {
                let length = stream.read(&mut buffer).unwrap();
                assert!(length > 0, "the question ended early");
                asked.extend_from_slice(&buffer[..length]);
            }
            stream.write_all(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nthe body").unwrap();
            String::from_utf8(asked).unwrap()
        });
        let output = Command::new("sh")
            .args([
                "-c",
                CURL,
                "curl",
                "-g",
                "-q",
                "-s",
                "--connect-timeout",
                "20",
                "--interface",
                "192.0.2.1",
            ])
            .arg(format!("http://{place}/dial?a=b&c=d"))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "the body\n", "{output:?}");
        assert!(server.join().unwrap().starts_with("GET /dial?a=b&c=d HTTP/1.0\r\n"));
    }
}
