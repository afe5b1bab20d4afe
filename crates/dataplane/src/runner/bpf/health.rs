//! Load balancers query every node over HTTP: whether it has endpoints of a service (`healthCheckNodePort`), and
//! whether services are served at all (`BPFKubeProxyHealthzPort`). One thread answers like kube-proxy.
//!
//! A silent client does not keep others waiting, and a port that another program still uses is not given up.

use bpf_services::HealthCheck;
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time limit for a client.
const MOMENT: Duration = Duration::from_secs(2);
/// The maximum number of simultaneous clients; the oldest is dropped for a new one.
const MOST_CLIENTS: usize = 64;
/// How soon a port in use is retried.
const PAUSE: Duration = Duration::from_secs(5);
/// More than a request needs.
const MOST: usize = 4096;

#[derive(Debug)]
struct State {
    /// The port on which the state of services is reported.
    port: Option<u16>,
    checks: BTreeMap<u16, HealthCheck>,
    is_healthy: bool,
    updated: Timestamp,
}

/// The open ports. The thread ends when this value is dropped.
#[derive(Debug)]
pub(super) struct HealthPorts {
    state: Arc<Mutex<State>>,
    wake: UnixStream,
}

impl HealthPorts {
    /// Starts the thread, in the network namespace of this one.
    pub(super) fn start(port: Option<u16>) -> io::Result<Self> {
        let state = State { port, checks: BTreeMap::new(), is_healthy: false, updated: Timestamp::now() };
        let state = Arc::new(Mutex::new(state));
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let shared = Arc::clone(&state);
        std::thread::Builder::new()
            .name("service-health".to_owned())
            .spawn(move || serve(&shared, &woken))?;
        Ok(Self { state, wake })
    }

    /// Sets the answers from now on.
    pub(super) fn tell(&self, checks: Vec<HealthCheck>, is_healthy: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.checks = checks.into_iter().map(|check| (check.port, check)).collect();
        state.is_healthy = is_healthy;
        state.updated = Timestamp::now();
        drop(state);
        // A thread that is behind has been woken already.
        let _ = (&self.wake).write(&[0]);
    }
}

fn serve(state: &Mutex<State>, woken: &UnixStream) {
    let mut listeners: BTreeMap<u16, TcpListener> = BTreeMap::new();
    // Logged once, and not with every attempt.
    let mut refused = BTreeSet::new();
    let mut clients: VecDeque<Client> = VecDeque::new();
    loop {
        let wanted: Vec<u16> = {
            let state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.port.iter().chain(state.checks.keys()).copied().collect()
        };
        listeners.retain(|port, _| wanted.contains(port));
        for port in &wanted {
            if !listeners.contains_key(port) {
                match listen(*port) {
                    Ok(listener) => {
                        refused.remove(port);
                        listeners.insert(*port, listener);
                    }
                    Err(error) if refused.insert(*port) => {
                        tracing::warn!(port, %error, "cannot answer load balancers; retrying");
                    }
                    Err(_) => {}
                }
            }
        }
        let pause = (listeners.len() < wanted.len()).then_some(PAUSE);
        let ends = clients.front().map(|client| client.ends.saturating_duration_since(Instant::now()));
        let ready: Vec<bool> = {
            let mut all: Vec<PollFd<'_>> = vec![PollFd::new(woken, PollFlags::IN)];
            all.extend(listeners.values().map(|listener| PollFd::new(listener, PollFlags::IN)));
            all.extend(clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::IN)));
            let timeout = pause.into_iter().chain(ends).min().and_then(|wait| Timespec::try_from(wait).ok());
            // An interrupted wait only leads to another look.
            let _ = poll(&mut all, timeout.as_ref());
            all.iter().map(|one| !one.revents().is_empty()).collect()
        };
        if ready.first() == Some(&true) {
            let mut bytes = [0; 64];
            match (&*woken).read(&mut bytes) {
                Ok(0) => return,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
        let (ports, asking) = ready[1..].split_at(listeners.len());
        let now = Instant::now();
        let mut asking = asking.iter();
        clients.retain_mut(|client| {
            let is_ready = asking.next() == Some(&true);
            (!is_ready || client.listen(state)) && now < client.ends
        });
        for ((port, listener), _) in listeners.iter().zip(ports).filter(|(_, is_ready)| **is_ready) {
            if let Ok((stream, _)) = listener.accept()
                && stream.set_nonblocking(true).is_ok()
            {
                if clients.len() == MOST_CLIENTS {
                    clients.pop_front();
                }
                clients.push_back(Client { stream, port: *port, question: Vec::new(), ends: now + MOMENT });
            }
        }
    }
}

/// A connected client; they are queued oldest first.
struct Client {
    stream: TcpStream,
    port: u16,
    question: Vec<u8>,
    ends: Instant,
}

impl Client {
    /// Reads the available data, and answers a complete request; returns whether more is to come.
    fn listen(&mut self, state: &Mutex<State>) -> bool {
        let mut part = [0; 512];
        match self.stream.read(&mut part) {
            Ok(0) => return false,
            Ok(count) => self.question.extend_from_slice(&part[..count]),
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
        if self.question.len() < MOST && !self.question.windows(4).any(|end| end == b"\r\n\r\n") {
            return true;
        }
        let answer = answer(&state.lock().unwrap_or_else(PoisonError::into_inner), self.port);
        // The answer fits into the socket buffer of a new connection; a client that is gone needs none.
        let _ = self.stream.write_all(answer.as_bytes());
        false
    }
}

/// Listens on all addresses, of both IP versions if the kernel has both.
fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn answer(state: &State, port: u16) -> String {
    let (status, body, more) = match state.checks.get(&port) {
        Some(check) => {
            let (status, body) = check.answer(state.is_healthy);
            let weight = format!("X-Load-Balancing-Endpoint-Weight: {}\r\n", check.endpoints);
            (status, body, weight)
        }
        None => {
            let status = if state.is_healthy { 200 } else { 503 };
            let body = format!(
                "{{\"lastUpdated\": \"{}\",\"currentTime\": \"{}\", \"nodeEligible\": true}}",
                state.updated,
                Timestamp::now()
            );
            (status, body, String::new())
        }
    };
    let reason = if status == 200 { "OK" } else { "Service Unavailable" };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         {more}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(port: u16) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        stream.set_read_timeout(Some(testkit::PATIENCE)).ok()?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text).filter(|text| !text.is_empty())
    }

    #[test]
    fn load_balancers_learn_which_endpoints_this_node_has() {
        let [own, service] = [(); 2].map(|()| testkit::free_port().expect("a port"));
        let ports = HealthPorts::start(Some(own)).expect("a thread");
        let check =
            |endpoints| HealthCheck { namespace: "ns".into(), name: "one".into(), port: service, endpoints };
        let says = |port, words: &[&str]| {
            testkit::eventually("the answer", || {
                ask(port).is_some_and(|text| words.iter().all(|word| text.contains(word)))
            })
            .expect("an answer");
        };
        says(own, &["503 ", "nodeEligible"]);
        ports.tell(vec![check(2)], true);
        says(own, &["200 OK", "lastUpdated"]);
        says(service, &["200 OK", "Endpoint-Weight: 2", "\"localEndpoints\": 2"]);
        // Clients that only connect do not keep others waiting.
        let silent: Vec<_> =
            (0..100).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, own)).expect("a connection")).collect();
        says(own, &["200 OK"]);
        drop(silent);
        ports.tell(vec![check(0)], true);
        says(service, &["503 ", "\"localEndpoints\": 0"]);
        ports.tell(Vec::new(), true);
        testkit::eventually("the port to be given back", || ask(service).is_none()).expect("closed");
    }
}
