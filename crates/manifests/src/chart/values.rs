//! The values of the chart with their defaults, and a description of each. The templates are not known here.

/// Scheduling of components that may run on control plane nodes.
const CONTROL_PLANE: &str = "  resources: {}
  nodeSelector:
    kubernetes.io/os: linux
  tolerations:
    - key: node-role.kubernetes.io/master
      effect: NoSchedule
    - key: node-role.kubernetes.io/control-plane
      effect: NoSchedule
  affinity: {}
";

pub(super) fn values(version: &str, registry: &str) -> String {
    format!(
        r#"# Made by `cargo xtask generate`. Names are those of Calico's charts where they have the value.

# calico: the whole network. flannel: policy beside flannel (canal). none: policy beside another network.
network: calico
# kubernetes, or etcd: where Calico's data is.
datastore: kubernetes
# Whether packets between nodes go through VXLAN, without BGP; otherwise BGP, and IP in IP.
vxlan: false
# Whether the chart has the custom resource definitions. It brings them up to date with every upgrade; `helm uninstall`
# deletes them, and Calico's data with them, unless this is false and they were applied by `tortie crds`.
includeCRDs: true
# Whether they are those of projectcalico.org/v3, with Calico's admission policies and webhooks: kubectl then works on the same
# kinds as calicoctl, without an API server.
useV3CRDs: false

# Images are REGISTRY/node, cni, kube-controllers and typha; calico, goldmane and whisker-backend for what is optional.
registry: {registry}
version: {version}
imagePullPolicy: IfNotPresent
imagePullSecrets: []

# The MTU of pods and tunnels; "0" for what fits the node.
mtu: "0"
# Which addresses pods have.
ipv4: true
ipv6: false
# The default pools, made when there are none. Empty: kubeadm's range, or 192.168.0.0/16.
ipv4Pool:
  cidr: ""
  ipipMode: ""
  vxlanMode: ""
ipv6Pool:
  cidr: ""
# How a node's address is found, such as can-reach=10.0.0.1 or interface=eth.*; empty for the first one found.
ipAutodetectionMethod: ""

# Where the Kubernetes API is, where its service cannot be used.
kubernetesServiceEndpoint:
  host: ""
  port: "443"

cni:
  binDir: /opt/cni/bin
  confDir: /etc/cni/net.d

# Figures for Prometheus; deploy/monitoring has what finds and shows them.
metrics:
  enabled: false

node:
  # Variables as Kubernetes writes them: a list of name and value (or valueFrom).
  env: []
  resources:
    requests:
      cpu: 250m
  nodeSelector:
    kubernetes.io/os: linux
  tolerations:
    - effect: NoSchedule
      operator: Exists
    - key: CriticalAddonsOnly
      operator: Exists
    - effect: NoExecute
      operator: Exists
  affinity: {{}}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 1

typha:
  # Above 50 nodes; essential above 100.
  enabled: false
  replicas: 1
  env: []
  resources: {{}}
  nodeSelector:
    kubernetes.io/os: linux
  tolerations:
    - key: CriticalAddonsOnly
      operator: Exists
    - effect: NoSchedule
      operator: Exists
    - effect: NoExecute
      operator: Exists
  affinity: {{}}

kubeControllers:
  env: []
  resources: {{}}
  nodeSelector:
    kubernetes.io/os: linux
  tolerations:
    - key: CriticalAddonsOnly
      operator: Exists
    - key: node-role.kubernetes.io/master
      effect: NoSchedule
    - key: node-role.kubernetes.io/control-plane
      effect: NoSchedule
  affinity: {{}}

# The aggregated API server. Its certificate is in the secret calico-apiserver/calico-apiserver-certs (apiserver.crt,
# apiserver.key; for calico-api.calico-apiserver.svc); who signed it is said in base64.
apiServer:
  enabled: false
  caBundle: ""
{CONTROL_PLANE}
# The webhooks of useV3CRDs. Their certificate is in the secret kube-system/calico-webhooks-tls (tls.crt, tls.key; for
# calico-webhooks.kube-system.svc); who signed it is said in base64.
webhooks:
  caBundle: ""
{CONTROL_PLANE}
# Flows of all nodes. The secret kube-system/goldmane-tls has tls.crt (for goldmane.kube-system.svc), tls.key and ca.crt.
goldmane:
  enabled: false
  # An address of the service range, by which nodes find it.
  clusterIP: ""
{CONTROL_PLANE}
# The page that shows them: kubectl -n kube-system port-forward deployment/whisker 8081
whisker:
  enabled: false
{CONTROL_PLANE}
etcd:
  endpoints: ""
  # In base64.
  tls:
    ca: ""
    crt: ""
    key: ""

flannel:
  image: docker.io/flannel/flannel:v0.24.4
  network: 10.244.0.0/16
"#
    )
}
