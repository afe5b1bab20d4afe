// Who talks most.

import { useState } from "preact/hooks";
import { bytes, count } from "../format.ts";
import type { TopItem } from "../model.ts";
import { Message } from "../parts.tsx";
import { usePoll } from "../poll.ts";

const OF = [["pair", "pairs"], ["source", "sources"], ["dest", "destinations"], ["port", "ports"]] as const;
const BY = [["bytes", "bytes"], ["packets", "packets"], ["connections", "connections"], ["denied", "denied packets"]] as const;
type By = (typeof BY)[number][0];

export function value(item: TopItem, by: By): number {
  return by === "denied" ? (item.deny?.packets ?? 0) : item.allow[by];
}

export function TopView() {
  const [of, setOf] = useState<string>("pair");
  const [by, setBy] = useState<By>("bytes");
  const { value: top, problem } = usePoll<{ items: TopItem[] }>("api/v1/top", { of, by, n: "50" });
  const items = top?.items ?? [];
  const most = Math.max(1, ...items.map((item) => value(item, by)));
  return (
    <section class="top" aria-label="who talks most">
      <div class="toolbar">
        {OF.map(([word, label]) => (
          <button key={word} class="toggle" aria-pressed={of === word} onClick={() => setOf(word)}>{label}</button>
        ))}
        <span class="spacer" />
        <label class="since">
          <span>by</span>
          <select value={by} onChange={(event) => setBy(event.currentTarget.value as By)}>
            {BY.map(([word, label]) => <option key={word} value={word}>{label}</option>)}
          </select>
        </label>
      </div>
      {items.length === 0 ? (
        <Message title={problem || (top ? "Nothing in this time." : "Counting …")} />
      ) : (
        <ol>
          {items.map((item) => {
            const name = item.port ?? [item.source, item.dest].filter(Boolean).join(" → ");
            const figure = value(item, by);
            return (
              <li key={name}>
                <span class="label">{name}</span>
                <span class="track"><i class={by === "denied" ? "deny" : "allow"} style={{ width: `${(100 * figure) / most}%` }} /></span>
                <span class="num">{by === "bytes" ? bytes(figure) : count(figure)}</span>
              </li>
            );
          })}
        </ol>
      )}
    </section>
  );
}
