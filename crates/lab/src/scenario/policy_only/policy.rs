//! Policy: first deny everything, then allow one port from one pod to another; and a common mistake.

use crate::matrix::Columns;
use crate::measure;
use crate::scenario::Play;
use anyhow::Result;
use std::time::Duration;

const DENY_ALL: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: denyall, namespace: default}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
";
const ALLOW: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web-in, namespace: default}
spec:
  podSelector: {matchLabels: {app: test1}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: test2}}}], ports: [{port: 80, protocol: TCP}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web-out, namespace: default}
spec:
  podSelector: {matchLabels: {app: test2}}
  policyTypes: [Egress]
  egress: [{to: [{podSelector: {matchLabels: {app: test1}}}], ports: [{port: 80, protocol: TCP}]}]
";
/// A common mistake: `from` where `to` belongs.
const MISTAKEN: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web-out, namespace: default}
spec:
  podSelector: {matchLabels: {app: test2}}
  policyTypes: [Egress]
  egress: [{from: [{podSelector: {matchLabels: {app: test1}}}], ports: [{port: 80, protocol: TCP}]}]
";

pub(super) fn policy(play: &mut Play<'_>) -> Result<()> {
    play.step("6. Policy");
    play.lab.apply(DENY_ALL)?;
    let between = |play: &Play<'_>| -> Result<(Vec<String>, bool, String)> {
        let matrix = measure::matrix(&play.lab, &Columns::default(), Duration::from_secs(30))?;
        let mut open = Vec::new();
        for (sender, row) in matrix.senders.iter().zip(&matrix.cells) {
            for (receiver, cell) in matrix.receivers.iter().zip(row) {
                let is_ours = |name: &str| name.starts_with("default/");
                if cell.reached == Some(true) && (is_ours(&sender.pod) || is_ours(&receiver.pod)) {
                    open.push(format!("{} -> {}:{}", sender.pod, receiver.pod, receiver.port));
                }
            }
        }
        Ok((open, matrix.agrees(), matrix.to_text(false)))
    };
    let (open, agrees, text) = between(play)?;
    play.check("denyall stops everything to and from its namespace", open.is_empty() && agrees, &text);
    // The mistake is reported when it is applied, and explained when the policy is examined.
    let refused = play.lab.kubectl(&["apply", "--validate=strict", "-f", "-"], Some(MISTAKEN));
    let told = refused.as_ref().err().map(ToString::to_string).unwrap_or_default();
    play.check("a policy with `from` under egress is reported", told.contains("from"), &told);
    let file = play.lab.folder.file("mistaken.yaml");
    std::fs::write(&file, MISTAKEN)?;
    let (_, warned) = play.calicoctl_streams(&["convert", "-f", &file.display().to_string()])?;
    play.check("calicoctl convert reports it, too", warned.contains("did you mean `to`?"), &warned);
    let words = [
        "explain",
        "--with",
        &file.display().to_string(),
        "--from",
        "default/test-web2",
        "--to",
        "default/test-web1:80",
    ];
    let output = play.lab.calicoctl(&words, "")?;
    play.show(&output);
    let holds =
        output.contains("DENIED") && output.contains("spec.egress[0].from is not a field of this rule");
    play.check("and explain shows that the packet is dropped, and why", holds, &output);
    play.lab.apply(ALLOW)?;
    let (open, agrees, text) = between(play)?;
    play.show(&text);
    let wanted = ["default/test-web2 -> default/test-web1:80".to_owned()];
    play.check("test-web2 reaches test-web1 on 80, and nothing else works", open == wanted && agrees, &text);
    play.lab.kubectl(&["delete", "networkpolicy", "-n", "default", "--all"], None)?;
    Ok(())
}
