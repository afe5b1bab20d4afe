// What was lost, in words: how much, where, and which nodes say nothing.

import type { Status } from "./model.ts";
import { age } from "./format.ts";

/** All losses together. */
export function total(status: Status | null): number {
  return status?.losses.reduce((sum, loss) => sum + loss.count, 0) ?? 0;
}

/** A line for each loss and each silent node; what is known where there are none. */
export function lines(status: Status | null): string[] {
  if (status === null) return ["nothing is known of losses yet"];
  const lost = status.losses.map((loss) => `${loss.node ? `node ${loss.node}` : "here"}: ${loss.count} ${loss.what}`);
  const silent = status.silent.map((node) => `node ${node.node}: not heard from for ${age(node.age)}, its flows may be missing`);
  if (lost.length + silent.length > 0) return [...lost, ...silent];
  if (status.nodes === null) return ["nothing was lost here; this Goldmane keeps no account of losses on nodes"];
  const nodes = status.nodes === 1 ? "one node" : `${status.nodes} nodes`;
  return [`nothing was lost in the last hour, as far as ${nodes} and this server know`];
}
