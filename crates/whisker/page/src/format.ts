// Figures, times and reasons as short texts.

import type { Flow, Hit } from "./model.ts";

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${short(value)} ${UNITS[unit] ?? ""}`;
}

export function count(value: number): string {
  if (value < 10_000) return String(Math.round(value));
  if (value < 1_000_000) return `${short(value / 1000)} k`;
  if (value < 1e9) return `${short(value / 1e6)} M`;
  return `${short(value / 1e9)} G`;
}

function short(value: number): string {
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

export function age(seconds: number): string {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h`;
}

/** The time of day of an instant, in the browser's zone. */
export function clock(instant: string): string {
  const date = new Date(instant);
  const two = (value: number) => String(value).padStart(2, "0");
  return Number.isNaN(date.getTime())
    ? instant
    : `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** A namespace as people say it. */
export function namespace(text: string): string {
  return text === "-" || text === "" ? "Global" : text;
}

export function port(flow: Pick<Flow, "protocol" | "dest_port">): string {
  return flow.dest_port ? `${flow.protocol}/${flow.dest_port}` : flow.protocol;
}

const KINDS: Record<string, string> = {
  CalicoNetworkPolicy: "NetworkPolicy (Calico)",
  NetworkPolicy: "NetworkPolicy",
  GlobalNetworkPolicy: "GlobalNetworkPolicy",
  StagedNetworkPolicy: "staged NetworkPolicy",
  StagedGlobalNetworkPolicy: "staged GlobalNetworkPolicy",
  StagedKubernetesNetworkPolicy: "staged NetworkPolicy (Kubernetes)",
  EndOfTier: "end of tier",
};

export function kind(text: string): string {
  return KINDS[text] ?? text;
}

export function isStaged(text: string): boolean {
  return text.startsWith("Staged");
}

export function policyName(hit: Pick<Hit, "namespace" | "name">): string {
  return hit.namespace ? `${hit.namespace}/${hit.name}` : hit.name;
}

/** What a decision was due to, in a few words. */
export function because(hit: Hit): string {
  if (hit.kind === "EndOfTier") {
    const policy = hit.trigger ? ` (${policyName(hit.trigger)} applies)` : "";
    return `no rule of tier ${hit.tier} matched${policy}`;
  }
  if (hit.kind === "Profile") return hit.action === "Deny" ? "no profile allows it" : "no policy applies";
  return `${policyName(hit)}, rule ${hit.rule_index}`;
}

/** The decision that ended the matter. */
export function decider(hits: Hit[] | null): Hit | undefined {
  return hits?.at(-1);
}

export function reason(flow: Flow): string {
  const hit = decider(flow.policies.enforced);
  return hit ? because(hit) : "no policy applies";
}

export type Verdict = "allow" | "deny" | "would-deny" | "would-allow";

/** What became of a flow, and what would. */
export function verdict(flow: Pick<Flow, "action" | "would">): Verdict {
  if (flow.action === "Deny") return flow.would === "Allow" ? "would-allow" : "deny";
  return flow.would === "Deny" ? "would-deny" : "allow";
}

export const VERDICTS: Record<Verdict, string> = {
  allow: "allowed",
  deny: "denied",
  "would-deny": "allowed, would be denied",
  "would-allow": "denied, would be allowed",
};
