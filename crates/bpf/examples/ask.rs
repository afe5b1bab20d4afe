//! A process in a control group that sends one request to a service: `ask GROUP HOW ADDRESS`. Prints who answered, or
//! the kind of error. Tests run it as a process, because programs are attached to groups, which contain whole
//! processes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn ask(how: &str, target: SocketAddr) -> std::io::Result<(SocketAddr, String)> {
    let mut answer = [0; 64];
    if how == "tcp" {
        let mut stream = TcpStream::connect_timeout(&target, PATIENCE)?;
        let peer = stream.peer_addr()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"hello")?;
        let length = stream.read(&mut answer)?;
        return Ok((peer, String::from_utf8_lossy(&answer[..length]).into_owned()));
    }
    let any: SocketAddr = if target.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    if how == "connected" {
        socket.connect(target)?;
        socket.send(b"hello")?;
    } else {
        socket.send_to(b"hello", target)?;
    }
    let (length, from) = socket.recv_from(&mut answer)?;
    Ok((from, String::from_utf8_lossy(&answer[..length]).into_owned()))
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, group, how, target] = arguments.as_slice() else { panic!("ask GROUP HOW ADDRESS") };
    let joined = std::fs::write(format!("{group}/cgroup.procs"), std::process::id().to_string());
    joined.expect("joining the group");
    let outcome = match ask(how, target.parse().expect("an address with a port")) {
        Ok((from, answer)) => format!("{answer} from {from}"),
        Err(error) => format!("{:?}", error.kind()),
    };
    std::io::stdout().write_all(outcome.as_bytes()).expect("writing standard output");
}
