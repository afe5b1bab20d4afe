// The policy board: tiers as columns, what each policy decided, staged policies beside enforced ones.

import { useState } from "preact/hooks";
import { bytes, count, kind } from "../format.ts";
import { none } from "../filters.ts";
import type { Board, BoardPolicy, Decided } from "../model.ts";
import { Message } from "../parts.tsx";
import { usePoll } from "../poll.ts";
import { ask, draft, filters, setFilters, setView } from "../state.ts";
import { asWritten, type StoredPolicy } from "../yaml.ts";

const DECISIONS = [
  { of: "allowed", class: "allow", word: "allow" },
  { of: "denied", class: "deny", word: "deny" },
  { of: "passed", class: "pass", word: "pass" },
] as const;

function Bar({ decided, staged }: { decided: Decided; staged: boolean }) {
  const total = DECISIONS.reduce((sum, one) => sum + decided[one.of].packets, 0) || 1;
  return (
    <>
      <div class="bar" aria-hidden="true">
        {DECISIONS.map((one) => {
          const share = decided[one.of].packets / total;
          return share > 0 ? <i key={one.of} class={one.class} style={{ flexGrow: String(share) }} /> : null;
        })}
      </div>
      <div class="figures">
        {DECISIONS.map((one) => {
          const sum = decided[one.of];
          return sum.packets > 0 ? (
            <span key={one.of} class={one.class} title={`${bytes(sum.bytes)}, ${count(sum.connections)} connections`}>
              {staged ? `would ${one.word}` : one.of} {count(sum.packets)}
            </span>
          ) : null;
        })}
      </div>
    </>
  );
}

/** Opens the policy where changes to it can be tried. */
function Try({ policy, tier }: { policy: BoardPolicy; tier: string }) {
  const [problem, setProblem] = useState("");
  const open = () => {
    ask<StoredPolicy>("api/v1/policy", { kind: policy.kind, namespace: policy.namespace, name: policy.name, tier }, new AbortController().signal)
      .then((stored) => {
        draft.value = asWritten(stored);
        setView("preview");
      })
      .catch((error: unknown) => setProblem(error instanceof Error ? error.message : String(error)));
  };
  return problem ? <small class="problem">{problem}</small> : <button class="link more" title="open it in the preview, to see what a change would do" onClick={open}>try a change</button>;
}

function Card({ policy, tier }: { policy: BoardPolicy; tier: string }) {
  const [open, setOpen] = useState(false);
  const showFlows = () => {
    setFilters({
      ...none(),
      minutes: filters.value.minutes,
      policies: [{ kind: policy.kind, name: policy.name, ...(tier ? { tier } : {}), ...(policy.namespace ? { namespace: policy.namespace } : {}) }],
    });
    setView("flows");
  };
  return (
    <article class={`card ${policy.staged ? "staged" : ""}`}>
      <header>
        <button class="link" title="show its flows" onClick={showFlows}>
          {policy.namespace && <span class="ns">{policy.namespace}/</span>}
          {policy.name}
        </button>
        {policy.staged && <span class="tag">staged</span>}
      </header>
      <small>{kind(policy.kind)}</small>
      <Bar decided={policy} staged={policy.staged} />
      <div class="doors">
        <button class="link more" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "hide rules" : `${policy.rules.length} rule${policy.rules.length === 1 ? "" : "s"} hit`}
        </button>
        {policy.kind !== "Profile" && <Try policy={policy} tier={tier} />}
      </div>
      {open && (
        <ul class="rules">
          {policy.rules.map((rule) => (
            <li key={`${rule.direction}${rule.rule}`}>
              <span>{rule.direction} {rule.rule < 0 ? "no rule matched" : `rule ${rule.rule}`}</span>
              <Bar decided={rule} staged={policy.staged} />
            </li>
          ))}
        </ul>
      )}
    </article>
  );
}

export function BoardView() {
  const { value: board, problem } = usePoll<Board>("api/v1/board", {});
  if (!board) return <Message title={problem || "Counting …"} />;
  if (!board.tiers.length) return <Message title="No policy decided anything in this time."><p>Look further back, or remove filters.</p></Message>;
  return (
    <section class="board" aria-label="policy board">
      {board.tiers.map((tier) => {
        const ended = DECISIONS.some((one) => tier.end[one.of].packets > 0);
        return (
          <div class="tier" key={tier.name}>
            <h2>{tier.name || "profiles"} <small>{tier.policies.length}</small></h2>
            {tier.policies.map((policy) => (
              <Card key={`${policy.kind}/${policy.namespace}/${policy.name}`} policy={policy} tier={tier.name} />
            ))}
            {ended && (
              <article class="card end">
                <small>end of the tier: no rule matched</small>
                <Bar decided={tier.end} staged={false} />
              </article>
            )}
          </div>
        );
      })}
    </section>
  );
}
