// Least privilege from what was seen: staged policies that allow it and nothing else.

import { useState } from "preact/hooks";
import { count } from "../format.ts";
import type { Recommendation } from "../model.ts";
import { Message } from "../parts.tsx";
import { usePoll } from "../poll.ts";
import { draft, setView } from "../state.ts";

/** Lines of the file: comments are quieter than what counts. */
function Yaml({ text }: { text: string }) {
  return (
    <pre class="yaml" tabIndex={0}>
      {text.split("\n").map((line, place) => (
        <span key={place} class={line.trimStart().startsWith("#") ? "comment" : ""}>{`${line}\n`}</span>
      ))}
    </pre>
  );
}

export function SuggestView() {
  const [chosen, setChosen] = useState<string[]>([]);
  const [copied, setCopied] = useState("");
  const { value: namespaces } = usePoll<{ items: { value: string }[] | null }>("flows-filter-hints", { type: "DestNamespace", pageSize: "200" });
  const { value: made, problem } = usePoll<Recommendation>("api/v1/recommend", { namespace: chosen });
  if (!made) return <Message title={problem || "Reading flows …"} />;
  const copy = () => {
    navigator.clipboard
      .writeText(made.yaml)
      .then(() => setCopied("copied"))
      .catch(() => setCopied("the browser does not allow it: select the text"));
    setTimeout(() => setCopied(""), 2500);
  };
  const names = (namespaces?.items ?? []).map((item) => item.value).filter((name) => name !== "Global");
  return (
    <section class="suggest" aria-label="recommended policies">
      <div class="toolbar">
        {names.map((name) => (
          <button key={name} class="toggle" aria-pressed={chosen.includes(name)} onClick={() => setChosen(chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name])}>
            {name}
          </button>
        ))}
        <span class="spacer" />
        <button class="toggle" onClick={copy} disabled={made.policies === 0}>{copied || "copy"}</button>
        <button class="toggle" disabled={made.policies === 0} onClick={() => { draft.value = made.yaml; setView("preview"); }}>preview them</button>
      </div>
      {problem && <p class="notice">{problem}</p>}
      {made.policies === 0 ? (
        <Message title="Nothing to recommend."><p>Only workloads with labels in common get policies, and only for what was recorded. Look further back, or remove filters.</p></Message>
      ) : (
        <>
          <div class="tiles">
            <div class="tile"><b>{made.policies}</b> staged {made.policies === 1 ? "policy" : "policies"}</div>
            <div class="tile allow"><b>{count(made.allowed)}</b> flows stay allowed</div>
            <div class="tile"><b>{count(made.denied)}</b> flows stay denied</div>
            <div class={`tile ${made.differences ? "deny" : ""}`}><b>{count(made.differences)}</b> would be decided otherwise</div>
          </div>
          {made.left_out > 0 && <p class="notice">{count(made.left_out)} flows were too many and are left out: filter, or look back less far.</p>}
          <Yaml text={made.yaml} />
        </>
      )}
    </section>
  );
}
