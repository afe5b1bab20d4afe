// The frame: header, views, keys.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Message } from "./parts.tsx";
import { connection, explained, filters, help, paused, rows, selected, setView, start, unlock, view, VIEWS, type View } from "./state.ts";
import { rowKey } from "./rows.ts";
import { BoardView } from "./views/BoardView.tsx";
import { Details } from "./views/Details.tsx";
import { Explain } from "./views/Explain.tsx";
import { FilterBar } from "./views/FilterBar.tsx";
import { FlowTable, rowHeight } from "./views/FlowTable.tsx";
import { GraphView } from "./views/GraphView.tsx";
import { MatrixView } from "./views/MatrixView.tsx";
import { PreviewView } from "./views/PreviewView.tsx";
import { StatusLine } from "./views/StatusLine.tsx";
import { SuggestView } from "./views/SuggestView.tsx";
import { TopView } from "./views/TopView.tsx";

const NAMES: Record<View, string> = {
  flows: "Flows",
  graph: "Graph",
  board: "Policies",
  matrix: "Matrix",
  preview: "Preview",
  suggest: "Suggest",
  top: "Top",
};
const KEYS: [string, string][] = [
  ["/", "filter"],
  ["j k ↓ ↑", "next and previous flow"],
  ["Enter", "details"],
  ["Esc", "close"],
  ["p", "pause"],
  ["1 … 7", "views"],
  ["↑ ↓ ← →", "cells of the matrix"],
  ["t", "light or dark"],
  ["?", "these keys"],
];

const THEME = "whisker-theme";
type Theme = "light" | "dark";

function theme(): Theme {
  const set = document.documentElement.dataset["theme"];
  if (set === "light" || set === "dark") return set;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function setTheme(next: Theme): void {
  document.documentElement.dataset["theme"] = next;
  try {
    localStorage.setItem(THEME, next);
  } catch {
    // Then it is for this visit only.
  }
}

/** Moves the open row, and scrolls it into sight. */
function move(by: number): void {
  const list = rows.value;
  const open = selected.value;
  const place = open ? list.findIndex((flow) => rowKey(flow) === rowKey(open)) : -1;
  const next = Math.min(list.length - 1, Math.max(0, place + by));
  const flow = list[next];
  if (!flow) return;
  selected.value = flow;
  const body = document.getElementById("rows");
  if (!body) return;
  const height = rowHeight();
  if (next * height < body.scrollTop) body.scrollTop = next * height;
  else if ((next + 1) * height > body.scrollTop + body.clientHeight) body.scrollTop = (next + 1) * height - body.clientHeight;
}

function onKey(event: KeyboardEvent): void {
  const target = event.target;
  if (event.key === "Escape") {
    if (help.value) help.value = false;
    else if (explained.value) explained.value = null;
    else selected.value = null;
    if (target instanceof HTMLElement) target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target instanceof HTMLInputElement || target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement) return;
  const flows = view.value === "flows";
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("filter-text")?.focus();
  } else if (event.key === "?") help.value = !help.value;
  else if (event.key === "p") paused.value = !paused.value;
  else if (event.key === "t") setTheme(theme() === "dark" ? "light" : "dark");
  else if (flows && (event.key === "j" || event.key === "ArrowDown")) {
    event.preventDefault();
    move(1);
  } else if (flows && (event.key === "k" || event.key === "ArrowUp")) {
    event.preventDefault();
    move(-1);
  } else if (flows && event.key === "Enter" && target === document.body && !selected.value) move(1);
  else {
    const chosen = VIEWS[Number(event.key) - 1];
    if (chosen) setView(chosen);
  }
}

function Lock() {
  const [text, setText] = useState("");
  return (
    <Message title="This server asks for a token.">
      <form
        class="lock"
        onSubmit={(event) => {
          event.preventDefault();
          unlock(text.trim());
        }}
      >
        <input type="password" aria-label="token" autocomplete="off" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button class="toggle">open</button>
      </form>
      <p>It stays in this tab, and goes to this server only.</p>
    </Message>
  );
}

function App() {
  useEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  // On a phone not all names of views are to be seen.
  useEffect(() => document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }), [view.value]);
  // The views ask again when filters change.
  void filters.value;
  const open = selected.value;
  const pair = explained.value;
  return (
    <>
      <header class="top-bar">
        <span class="brand"><img src="icon.svg" alt="" width="22" height="22" /> Whisker</span>
        <nav aria-label="views">
          {VIEWS.map((one) => (
            <button key={one} aria-current={view.value === one ? "page" : undefined} onClick={() => setView(one)}>
              {NAMES[one]}
            </button>
          ))}
        </nav>
        <StatusLine />
        <button class="icon" aria-label="light or dark (t)" title="light or dark" onClick={() => setTheme(theme() === "dark" ? "light" : "dark")}>◐</button>
        <button class="icon" aria-label="keys (?)" title="keys" onClick={() => (help.value = !help.value)}>?</button>
      </header>
      {connection.value.state === "locked" ? (
        <Lock />
      ) : (
        <>
          <FilterBar />
          <main class={(open && view.value === "flows") || (pair && view.value === "matrix") ? "with-details" : ""}>
            {view.value === "flows" && <FlowTable />}
            {view.value === "graph" && <GraphView />}
            {view.value === "board" && <BoardView />}
            {view.value === "matrix" && <MatrixView />}
            {view.value === "preview" && <PreviewView />}
            {view.value === "suggest" && <SuggestView />}
            {view.value === "top" && <TopView />}
            {open && view.value === "flows" && !pair && <Details key={rowKey(open)} flow={open} />}
            {pair && view.value === "flows" && <Explain key={JSON.stringify(pair)} pair={pair} onClose={() => (explained.value = null)} />}
          </main>
        </>
      )}
      {help.value && (
        <div class="help" role="dialog" aria-label="keys">
          <dl>
            {KEYS.map(([keys, meaning]) => (
              <>
                <dt><kbd>{keys}</kbd></dt>
                <dd>{meaning}</dd>
              </>
            ))}
          </dl>
        </div>
      )}
    </>
  );
}

try {
  const kept = localStorage.getItem(THEME);
  if (kept === "light" || kept === "dark") document.documentElement.dataset["theme"] = kept;
} catch {
  // The system's choice holds.
}
start();
const root = document.getElementById("app");
if (root) render(<App />, root);
