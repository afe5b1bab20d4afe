// How old the data is, what was lost, and whether the stream stands: on every view, always.

import { age, count } from "../format.ts";
import { connection, now, status, statusAt } from "../state.ts";

const STATES = { connecting: "connecting", live: "live", broken: "connection lost: trying again", locked: "a token is needed" };
/** From this age on, in seconds, data is old. */
const OLD = 45;

export function StatusLine() {
  const { state, problem } = connection.value;
  const known = status.value;
  const seconds = known?.age === null || known === null ? null : known.age + Math.max(0, (now.value - statusAt.value) / 1000 - 1);
  const lost = known?.losses.reduce((sum, loss) => sum + loss.count, 0) ?? 0;
  const trouble = known?.problem ?? problem;
  return (
    <div class="status" role="status" aria-live="polite">
      <span class={`dot ${state}`} title={trouble || known?.source || ""}><i /> {STATES[state]}</span>
      <span class={seconds !== null && seconds > OLD ? "warn" : ""} title="the age of the newest data">
        data {seconds === null ? "none yet" : `${age(seconds)} old`}
      </span>
      <span class={lost > 0 ? "warn" : ""} title={known?.losses.map((loss) => `${loss.count} ${loss.what}`).join("\n") || "nothing was lost on the way here, as far as this server knows"}>
        {lost > 0 ? `${count(lost)} lost` : "0 lost"}
      </span>
      {trouble && <span class="warn problem" title={trouble}>{trouble}</span>}
    </div>
  );
}
