// Small parts that several views use. Texts are children of elements, so no name can become markup.

import type { ComponentChildren } from "preact";
import { because, kind, policyName, VERDICTS, verdict } from "./format.ts";
import type { Flow, Hit } from "./model.ts";

export function Badge({ flow }: { flow: Pick<Flow, "action" | "would"> }) {
  const found = verdict(flow);
  const words = { allow: "Allow", deny: "Deny", "would-deny": "Allow", "would-allow": "Deny" }[found];
  const would = found === "would-deny" ? "would deny" : found === "would-allow" ? "would allow" : "";
  return (
    <span class={`badge ${found}`} title={VERDICTS[found]}>
      {words}
      {would && <small>{would}</small>}
    </span>
  );
}

export function Peer({ namespace, name }: { namespace: string; name: string }) {
  const isGlobal = namespace === "-" || namespace === "" || namespace === "Global";
  return (
    <span class="peer" title={isGlobal ? name : `${namespace}/${name}`}>
      {!isGlobal && <span class="ns">{namespace}/</span>}
      <span class="name">{name}</span>
    </span>
  );
}

/** A decision; `children` is what more there is to say of it. */
export function HitRow({ hit, onPolicy, children }: { hit: Hit; onPolicy: (hit: Hit) => void; children?: ComponentChildren }) {
  const policy = hit.kind === "EndOfTier" ? hit.trigger : hit;
  const canFilter = policy !== null && hit.kind !== "Profile";
  return (
    <li class={`hit ${hit.action.toLowerCase()}`}>
      <span class="tier">{hit.kind === "Profile" ? "profiles" : hit.tier}</span>
      <span class="what">
        {canFilter && policy ? (
          <button class="link" title="show the flows of this policy" onClick={() => onPolicy(policy)}>
            {policyName(policy)}
          </button>
        ) : (
          <span>{hit.kind === "Profile" ? because(hit) : hit.tier}</span>
        )}
        <small>
          {hit.kind === "EndOfTier"
            ? "no rule matched: end of the tier"
            : hit.kind === "Profile"
              ? hit.name
              : `${kind(hit.kind)}, rule ${hit.rule_index}`}
        </small>
      </span>
      <span class={`verb ${hit.action.toLowerCase()}`}>{hit.action}</span>
      {children}
    </li>
  );
}

export function Message({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="message" role="status">
      <strong>{title}</strong>
      {children}
    </div>
  );
}
