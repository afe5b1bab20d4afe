// Why one may talk to another, or not: every place on the way, tier by tier, rule by rule, as policies are now.

import type { Explanation, PolicyReport, Stage } from "../model.ts";
import { Message } from "../parts.tsx";
import { useOnce } from "../once.ts";

export interface Pair {
  from: string;
  to: string;
  port: string;
  protocol: string;
}

function Policy({ policy }: { policy: PolicyReport }) {
  return (
    <li class={`asked ${policy.staged ? "staged" : ""}`}>
      <span class="asked-head">
        <b>{policy.name}</b>
        {policy.staged && <span class="tag">staged</span>}
        {policy.decision && <span class={`verb ${policy.decision.toLowerCase()}`}>{policy.decision}</span>}
      </span>
      <ol>
        {policy.rules.map((rule) => (
          <li key={rule.place} class={rule.matches ? "matches" : "fails"}>
            <span class="sign" aria-hidden="true">{rule.matches ? "●" : "○"}</span>
            <span>
              <code>{rule.place}</code> {rule.text}
              {rule.failed?.map((why) => <small key={why}>{why}</small>)}
            </span>
          </li>
        ))}
      </ol>
    </li>
  );
}

function Place({ stage }: { stage: Stage }) {
  return (
    <section class={`stage ${stage.outcome}`}>
      <h4>
        {stage.place} <span class={`verb ${stage.outcome === "through" ? "pass" : stage.outcome}`}>{stage.outcome}</span>
      </h4>
      <p>{stage.decidedBy}</p>
      {stage.tiers?.map((tier) => (
        <div key={tier.name} class="tier-of">
          <small>tier {tier.name}</small>
          <ul>{tier.policies.map((policy) => <Policy key={policy.name} policy={policy} />)}</ul>
          {tier.end && <p class="quiet">{tier.end}</p>}
        </div>
      ))}
      {stage.profiles?.length ? (
        <div class="tier-of">
          <small>profiles</small>
          <ul>{stage.profiles.map((policy) => <Policy key={policy.name} policy={policy} />)}</ul>
        </div>
      ) : null}
    </section>
  );
}

export function Explain({ pair, onClose }: { pair: Pair; onClose: () => void }) {
  const { value, problem } = useOnce<Explanation>("api/v1/explain", { ...pair });
  return (
    <aside class="details" aria-label="explanation">
      <header>
        {value && <span class={`badge ${value.verdict === "allow" ? "allow" : "deny"}`}>{value.verdict === "allow" ? "Allow" : value.verdict === "deny" ? "Deny" : "Partly"}</span>}
        <strong>{pair.from} → {pair.to}:{pair.port}</strong>
        <button class="icon" aria-label="close (Escape)" onClick={onClose}>×</button>
      </header>
      <div class="scroll">
        {!value && <Message title={problem || "Asking every policy …"} />}
        {value?.flows.map((flow) => (
          <div key={`${flow.source} ${flow.destination}`}>
            <p class="why">{flow.decidedBy}</p>
            {flow.ifStaged && <p class="would">{flow.ifStaged}</p>}
            {flow.stages.map((stage) => <Place key={stage.place} stage={stage} />)}
            {flow.notes?.map((note) => <p key={note} class="quiet">{note}</p>)}
          </div>
        ))}
        {value?.notes?.map((note) => <p key={note} class="quiet">{note}</p>)}
        {value && <p class="quiet">As policies are now. The same in a terminal: <code>calicoctl explain {pair.from} {pair.to}:{pair.port}</code></p>}
      </div>
    </aside>
  );
}
