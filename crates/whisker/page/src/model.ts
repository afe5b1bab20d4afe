// What the server sends. Names are texts of strangers: they are shown as texts, and never become markup.

export type Action = "Allow" | "Deny" | "Pass" | "ActionUnspecified";

export interface Hit {
  kind: string;
  name: string;
  namespace: string;
  tier: string;
  action: Action;
  policy_index: number;
  rule_index: number;
  trigger: Hit | null;
}

export interface Flow {
  id: number;
  start_time: string;
  end_time: string;
  action: Action;
  source_name: string;
  source_namespace: string;
  source_labels: string;
  dest_name: string;
  dest_namespace: string;
  dest_labels: string;
  protocol: string;
  dest_port: number;
  reporter: "Src" | "Dst" | "ReporterUnspecified";
  policies: { enforced: Hit[] | null; pending: Hit[] | null };
  packets_in: number;
  packets_out: number;
  bytes_in: number;
  bytes_out: number;
  source_type: string;
  dest_type: string;
  service?: { namespace: string; name: string; port: string };
  connections_started: number;
  connections_completed: number;
  connections_live: number;
  would?: Action;
}

export interface Status {
  source: string;
  problem: string | null;
  age: number | null;
  received: number | null;
  keys: number | null;
  losses: { node?: string; what: string; count: number }[];
  /** How many nodes tell what they lost; null where the source keeps no account of that. */
  nodes: number | null;
  /** Nodes that say nothing any more, and for how many seconds. */
  silent: { node: string; age: number }[];
}

export interface Sum {
  bytes: number;
  packets: number;
  connections: number;
}

export interface Fates {
  allow: Sum;
  deny?: Sum;
  would_deny?: Sum;
  would_allow?: Sum;
}

export interface GraphNode {
  namespace: string;
  name: string;
  type: string;
}

export interface GraphEdge extends Fates {
  from: number;
  to: number;
  ports: string[];
}

export interface Graph {
  nodes: GraphNode[];
  edges: GraphEdge[];
  collapsed: boolean;
  left_out: number;
}

export interface Decided {
  allowed: Sum;
  denied: Sum;
  passed: Sum;
}

export interface BoardPolicy extends Decided {
  kind: string;
  namespace: string;
  name: string;
  staged: boolean;
  rules: (Decided & { direction: string; rule: number })[];
}

export interface Board {
  tiers: { name: string; policies: BoardPolicy[]; end: Decided }[];
}

export interface TopItem extends Fates {
  source?: string;
  dest?: string;
  port?: string;
}

export interface MatrixCell {
  /** What policies say. */
  v: "allow" | "deny" | "partly";
  /** The place of the reason. */
  r?: number;
  /** Packets that were seen: those that passed, and those that were dropped. */
  a?: number;
  d?: number;
}

export interface Matrix {
  namespaces: Record<string, number>;
  too_many: boolean;
  senders: string[];
  receivers: string[];
  cells: MatrixCell[][];
  reasons: string[];
}

export interface RuleReport {
  place: string;
  text: string;
  matches: boolean;
  failed?: string[];
}

export interface PolicyReport {
  name: string;
  staged: boolean;
  rules: RuleReport[];
  decision?: string;
}

export interface Stage {
  place: string;
  outcome: "allow" | "deny" | "through";
  decidedBy: string;
  tiers?: { name: string; policies: PolicyReport[]; end?: string }[];
  profiles?: PolicyReport[];
}

export interface Explanation {
  verdict: "allow" | "deny" | "partly";
  flows: { source: string; destination: string; decidedBy: string; stages: Stage[]; ifStaged?: string; notes?: string[] }[];
  notes?: string[];
}

export interface Change {
  flow: string;
  reporter: string;
  before: "allowed" | "denied" | "depends";
  after: "allowed" | "denied" | "depends";
  reason: string;
  packets: number;
  connections: number;
}

export interface Impact {
  changes: Change[];
  unchanged: number;
  outdated: number;
  unknown: string[];
  notes: string[];
  flows: number;
  left_out: number;
}

export interface Recommendation {
  yaml: string;
  policies: number;
  notes: string[];
  allowed: number;
  denied: number;
  differences: number;
  flows: number;
  left_out: number;
}
