// How old the data is, what was lost, and whether the stream stands: on every view, always.

import { age, count } from "../format.ts";
import { lines, total } from "../losses.ts";
import { connection, now, status, statusAt } from "../state.ts";

const STATES = { connecting: "connecting", live: "live", broken: "connection lost: trying again", locked: "a token is needed" };
/** From this age on, in seconds, data is old. */
const OLD = 45;

export function StatusLine() {
  const { state, problem } = connection.value;
  const known = status.value;
  const seconds = known?.age === null || known === null ? null : known.age + Math.max(0, (now.value - statusAt.value) / 1000 - 1);
  const lost = total(known);
  const silent = known?.silent.length ?? 0;
  const trouble = known?.problem ?? problem;
  return (
    <div class="status" role="status" aria-live="polite">
      <span class={`dot ${state}`} title={trouble || known?.source || ""}><i /> {STATES[state]}</span>
      <span class={seconds !== null && seconds > OLD ? "warn" : ""} title="the age of the newest data">
        data {seconds === null ? "none yet" : `${age(seconds)} old`}
      </span>
      <details class="losses">
        <summary class={lost + silent > 0 ? "warn" : ""} title="what was lost, and where">
          {count(lost)} lost{silent > 0 ? `, ${count(silent)} silent` : ""}
        </summary>
        <ul>{lines(known).map((line) => <li key={line}>{line}</li>)}</ul>
      </details>
      {trouble && <span class="warn problem" title={trouble}>{trouble}</span>}
    </div>
  );
}
