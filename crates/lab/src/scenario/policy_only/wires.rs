//! The state of the node and a pod: routes, devices, neighbours, and two pods that reach each other.

use super::NODE;
use crate::scenario::Play;
use anyhow::Result;

pub(super) fn wires(play: &mut Play<'_>) -> Result<()> {
    play.step("4. On the node and in the pod");
    let routes = play.at(NODE, &["ip", "route"])?;
    let wanted = "192.168.1.2 dev cali2aa1a9aa779 scope link";
    // Current Calico versions give their routes a metric.
    let is_it =
        |line: &str| line.strip_prefix(wanted).is_some_and(|rest| ["", "metric 1024"].contains(&rest.trim()));
    play.check(wanted, routes.lines().any(is_it), &routes);
    let count =
        routes.lines().filter(|line| line.contains(" dev cali") && line.contains("scope link")).count();
    play.check("such a route per pod", count == play.lab.state().pods.len(), &routes);
    let links = play.at(NODE, &["ip", "-o", "link"])?;
    let devices: Vec<&str> =
        links.lines().filter_map(|line| line.split_whitespace().nth(1)?.split('@').next()).collect();
    let ours: Vec<&str> = devices.iter().copied().filter(|name| name.starts_with("cali")).collect();
    let macs =
        links.lines().filter(|line| line.contains(": cali") && line.contains("ee:ee:ee:ee:ee:ee")).count();
    let holds = ours.len() == play.lab.state().pods.len() && macs == ours.len();
    play.check("the node's end of each has the address ee:ee:ee:ee:ee:ee", holds, &links);
    let is_tunnel =
        |name: &&str| name.starts_with("vxlan") || name.starts_with("tunl") || name.starts_with("wireguard");
    // If the kernel supports IP in IP, its own device exists in each namespace, and is down.
    let is_idle = |name: &str| {
        name.starts_with("tunl0")
            && links.lines().any(|line| line.contains("tunl0") && line.contains("state DOWN"))
    };
    let holds = !devices.iter().any(|name| is_tunnel(name) && !is_idle(name));
    play.check("there is no tunnel device", holds, &links);
    let mut files: Vec<String> =
        ours.iter().map(|name| format!("/proc/sys/net/ipv4/conf/{name}/proxy_arp")).collect();
    files.push("/proc/sys/net/ipv4/conf/eth0/proxy_arp".to_owned());
    let words: Vec<&str> = std::iter::once("cat").chain(files.iter().map(String::as_str)).collect();
    let found = play.at(NODE, &words)?;
    let values: Vec<&str> = found.split_whitespace().collect();
    let holds = values.len() == files.len()
        && values.iter().rev().skip(1).all(|value| *value == "1")
        && values.last() == Some(&"0");
    play.check("proxy_arp is 1 on each of them and 0 on eth0", holds, &found);
    let pod = "default/test-web1";
    let address = play.address(pod)?;
    let addresses = play.at(pod, &["ip", "-4", "addr", "show", "dev", "eth0"])?;
    let holds = addresses.contains(&format!("inet {address}/32 ")) && addresses.contains("mtu 1460 ");
    play.check(&format!("in the pod: eth0 with {address}/32 and MTU 1460"), holds, &addresses);
    let routes = play.at(pod, &["ip", "route"])?;
    let lines: Vec<&str> = routes.lines().map(str::trim).collect();
    let holds = lines == ["default via 169.254.1.1 dev eth0", "169.254.1.1 dev eth0 scope link"];
    play.check(
        "its routes: default via 169.254.1.1 dev eth0, 169.254.1.1 dev eth0 scope link",
        holds,
        &routes,
    );
    Ok(())
}

pub(super) fn neighbours(play: &mut Play<'_>) -> Result<()> {
    play.step("4 and 5. Two pods of one node reach each other");
    let (from, to) = ("default/test-web2", play.address("default/test-web1")?);
    let before = play.at(from, &["ip", "-4", "neigh"])?;
    play.check("a pod's ARP table is empty until it speaks", before.trim().is_empty(), &before);
    let ping = play.at(from, &["busybox", "ping", "-c", "2", "-W", "2", &to])?;
    play.show(&ping);
    play.check("they ping each other with a TTL of 63", ping.matches("ttl=63").count() == 2, &ping);
    let after = play.at(from, &["ip", "-4", "neigh"])?;
    let holds = after.contains("169.254.1.1") && after.contains("ee:ee:ee:ee:ee:ee");
    play.check("then 169.254.1.1 is at ee:ee:ee:ee:ee:ee", holds, &after);
    Ok(())
}
