//! `convert`: old files and Kubernetes' policies in the current version.

use crate::harness::Shell;

#[test]
fn objects_of_the_first_version_become_current_ones() {
    let shell = Shell::embedded();
    let input = "\
- apiVersion: v1
  kind: ipPool
  metadata: {cidr: 10.1.0.0/16}
  spec: {ipip: {enabled: true, mode: cross-subnet}, nat-outgoing: true}
- apiVersion: v1
  kind: bgpPeer
  metadata: {scope: node, node: Rack_1, peerIP: 'aa::1'}
  spec: {asNumber: 64514}
- apiVersion: v1
  kind: policy
  metadata: {name: allow-db}
  spec:
    order: 10
    selector: calico/k8s_ns == 'shop'
    ingress:
    - {action: allow, protocol: tcp, source: {tag: web, net: 10.0.0.1/8}, destination: {ports: [80]}}
    egress:
    - {action: pass}
- apiVersion: v1
  kind: profile
  metadata: {name: k8s_ns.shop, tags: [web], labels: {a: b}}
  spec: {ingress: [{action: deny}]}
- apiVersion: v1
  kind: hostEndpoint
  metadata: {name: eth0, node: host1, labels: {x: y}}
  spec: {interfaceName: eth0, expectedIPs: ['::1', 10.0.0.1], profiles: [k8s_ns.shop]}
- apiVersion: v1
  kind: node
  metadata: {name: Host1}
  spec: {bgp: {ipv4Address: 10.0.0.1/24}}
";
    let expected = "\
- apiVersion: projectcalico.org/v3
  kind: IPPool
  metadata:
    name: 10-1-0-0-16
  spec:
    blockSize: 26
    cidr: 10.1.0.0/16
    ipipMode: CrossSubnet
    natOutgoing: true
    nodeSelector: all()
- apiVersion: projectcalico.org/v3
  kind: BGPPeer
  metadata:
    name: rack-1.00aa-0000-0000-0000-0000-0000-0000-0001
  spec:
    asNumber: 64514
    node: rack-1
    peerIP: aa::1
- apiVersion: projectcalico.org/v3
  kind: GlobalNetworkPolicy
  metadata:
    name: allow-db
  spec:
    egress:
    - action: Pass
    ingress:
    - action: Allow
      destination:
        ports:
        - 80
      protocol: TCP
      source:
        nets:
        - 10.0.0.0/8
        selector: web == ''
    order: 10
    selector: projectcalico.org/namespace == 'shop'
    types:
    - Ingress
    - Egress
- apiVersion: projectcalico.org/v3
  kind: Profile
  metadata:
    name: kns.shop
  spec:
    ingress:
    - action: Deny
    labelsToApply:
      a: b
      web: \"\"
- apiVersion: projectcalico.org/v3
  kind: HostEndpoint
  metadata:
    labels:
      x: \"y\"
    name: host1.eth0
  spec:
    expectedIPs:
    - 10.0.0.1
    - ::1
    interfaceName: eth0
    node: host1
    profiles:
    - kns.shop
- apiVersion: projectcalico.org/v3
  kind: Node
  metadata:
    name: host1
  spec:
    bgp:
      ipv4Address: 10.0.0.1/24
";
    let found = shell.pipe("convert -f -", input).text().replace("  status: {}\n", "");
    assert_eq!(found, expected);
    // The output is valid input.
    let text = shell.pipe("validate -f -", &found).text();
    assert_eq!(text, "Successfully validated 6 resource(s)\n");
}

#[test]
fn policies_of_kubernetes_become_ours() {
    let shell = Shell::embedded();
    let input = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {}}]
    ports: [{protocol: TCP, port: 80}]
";
    let found = shell.pipe("convert -o json -f -", input).text();
    for part in [
        "\"name\": \"knp.default.web\"",
        "\"namespace\": \"shop\"",
        "\"selector\": \"projectcalico.org/orchestrator == 'k8s' \\u0026\\u0026 app == 'web'\"",
        "\"order\": 1000",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
}

/// Without its peers, the rule would allow everything.
#[test]
fn a_rule_with_an_unusable_field_is_left_out_and_reported() {
    let shell = Shell::embedded();
    let input = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: out, namespace: shop}
spec:
  podSelector: {}
  policyTypes: [Egress]
  egress:
  - from: [{podSelector: {}}]
    ports: [{protocol: TCP, port: 80}]
  - ports: [{protocol: TCP, port: 443}]
";
    let found = shell.pipe("convert -f -", input);
    assert!(found.success, "{}", found.stderr);
    let reason =
        "NetworkPolicy shop/out: spec.egress[0].from is not a field of this rule: did you mean `to`?";
    assert!(found.stderr.starts_with(&format!("Warning: stdin: {reason}")), "{}", found.stderr);
    assert!(found.stdout.contains("- 443") && !found.stdout.contains("- 80"), "{}", found.stdout);
}

#[test]
fn current_objects_pass_and_others_are_refused() {
    let shell = Shell::embedded();
    let pool =
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: a\nspec:\n  cidr: 10.0.0.0/16\n";
    assert!(
        shell.pipe("convert -f -", pool).text().starts_with(pool.split("spec").next().unwrap_or_default())
    );
    for (input, message) in [
        ("", "no resources specified in file stdin\n"),
        (
            "apiVersion: v1\nkind: Pod\n",
            "failed to execute command: stdin: unknown resource type (Pod) and/or version (v1)\n",
        ),
        (
            "apiVersion: v1\nkind: workloadEndpoint\n",
            "failed to execute command: stdin: workload endpoints are created by",
        ),
        ("apiVersion: v1\nkind: ipPool\n", "failed to execute command: stdin: metadata.cidr is missing\n"),
        (
            "apiVersion: v1\nkind: ipPool\nmetadata: {cidr: 10.0.0.0/28}\n",
            "failed to execute command: stdin: the converted object is not valid",
        ),
        ("a: [", "failed to execute command: stdin: line "),
    ] {
        let error = shell.pipe("convert -f -", input).error();
        assert!(error.starts_with(message), "{input}: {error}");
    }
    let small = "apiVersion: v1\nkind: ipPool\nmetadata: {cidr: 10.0.0.0/28}\n";
    assert!(shell.pipe("convert --ignore-validation -f -", small).text().contains("cidr: 10.0.0.0/28"));
    assert_eq!(shell.pipe("convert -o ps -f -", pool).error(), "unrecognized output format 'ps'\n");
}
