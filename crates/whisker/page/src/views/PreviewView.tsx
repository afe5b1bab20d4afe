// What a policy would change, before anybody applies it: recorded flows, asked again with it.

import { useState } from "preact/hooks";
import { count } from "../format.ts";
import type { Change, Impact } from "../model.ts";
import { Message } from "../parts.tsx";
import { draft, send } from "../state.ts";

const EXAMPLE = `apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata:
  name: only-the-shop
spec:
  selector: all()
  types: [Ingress]
  ingress:
  - action: Allow
    source:
      selector: projectcalico.org/namespace == 'shop'
`;

const FATES: Record<Change["after"], { word: string; class: string }> = {
  allowed: { word: "allowed", class: "allow" },
  denied: { word: "denied", class: "deny" },
  depends: { word: "depends on the address", class: "would-deny" },
};

function Fate({ of }: { of: Change["after"] }) {
  return <span class={`badge ${FATES[of].class}`}>{FATES[of].word}</span>;
}

function Result({ impact }: { impact: Impact }) {
  const denied = impact.changes.filter((change) => change.after === "denied").length;
  const allowed = impact.changes.filter((change) => change.after === "allowed").length;
  const figures: [number, string, string][] = [
    [denied, "would be denied", "deny"],
    [allowed, "would be allowed", "allow"],
    [impact.changes.length - denied - allowed, "would depend on the address", "would"],
    [impact.unchanged, "as before", ""],
  ];
  return (
    <div class="result">
      <div class="tiles">
        {figures.filter(([number], place) => number > 0 || place !== 2).map(([number, label, name]) => (
          <div key={label} class={`tile ${number > 0 ? name : ""}`}><b>{count(number)}</b> {label}</div>
        ))}
      </div>
      {impact.changes.length === 0 ? (
        <p class="quiet">No recorded flow would be decided otherwise.</p>
      ) : (
        <div class="grid-scroll">
          <table class="changes">
            <thead><tr><th>flow</th><th>at</th><th>now</th><th>then</th><th class="num">packets</th><th>decided by</th></tr></thead>
            <tbody>
              {impact.changes.map((change) => (
                <tr key={`${change.flow} ${change.reporter}`}>
                  <td>{change.flow}</td>
                  <td>{change.reporter === "Src" ? "source" : "dest"}</td>
                  <td><Fate of={change.before} /></td>
                  <td><Fate of={change.after} /></td>
                  <td class="num">{count(change.packets)}</td>
                  <td class="reason">{change.reason}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <ul class="notes">
        {impact.outdated > 0 && <li>{count(impact.outdated)} flows were recorded with another verdict than policies give now: they changed since.</li>}
        {impact.left_out > 0 && <li>{count(impact.left_out)} flows were too many to ask about. Filter, or look back less far.</li>}
        {impact.unknown.map((text) => <li key={text}>not known: {text}</li>)}
        {impact.notes.map((text) => <li key={text}>{text}</li>)}
      </ul>
    </div>
  );
}

export function PreviewView() {
  const [state, setState] = useState<{ impact: Impact | null; problem: string; asking: boolean }>({ impact: null, problem: "", asking: false });
  const ask = () => {
    if (!draft.value.trim()) return;
    setState((last) => ({ ...last, asking: true, problem: "" }));
    send<Impact>("api/v1/impact", draft.value)
      .then((impact) => setState({ impact, problem: "", asking: false }))
      .catch((error: unknown) => setState({ impact: null, problem: error instanceof Error ? error.message : String(error), asking: false }));
  };
  return (
    <section class="preview" aria-label="preview of a policy">
      <form
        class="paste"
        onSubmit={(event) => {
          event.preventDefault();
          ask();
        }}
      >
        <label for="policy">Paste a policy to see which recorded flows it would change. Nothing is applied.</label>
        <textarea
          id="policy"
          spellcheck={false}
          placeholder={EXAMPLE}
          value={draft.value}
          onInput={(event) => (draft.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
          }}
        />
        <div class="buttons">
          <button class="primary" disabled={state.asking || !draft.value.trim()}>{state.asking ? "asking …" : "Preview"}</button>
          <small>Ctrl+Enter</small>
          <span class="spacer" />
          <button type="button" class="link" onClick={() => (draft.value = EXAMPLE)}>an example</button>
          {draft.value && <button type="button" class="link" onClick={() => { draft.value = ""; setState({ impact: null, problem: "", asking: false }); }}>clear</button>}
        </div>
      </form>
      {state.problem ? (
        <pre class="mistake" role="alert">{state.problem}</pre>
      ) : state.impact ? (
        <Result impact={state.impact} />
      ) : (
        <Message title="Calico's and Kubernetes' policies, staged ones too.">
          <p>A policy of the same name is replaced; a staged one counts as enforced, and its deletion as done.</p>
        </Message>
      )}
    </section>
  );
}
