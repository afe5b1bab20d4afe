// What the page knows, and the one stream that feeds it.

import { effect, signal } from "@preact/signals";
import { follow, Locked, problemOf, type ConnectionState, type ServerEvent } from "./events.ts";
import { format, parameters, parse, type Filters, type Question } from "./filters.ts";
import type { Flow, Status } from "./model.ts";
import { Rows, type Sort } from "./rows.ts";
import type { Pair } from "./views/Explain.tsx";

export type View = "flows" | "graph" | "board" | "matrix" | "preview" | "suggest" | "top";
export const VIEWS: readonly View[] = ["flows", "graph", "board", "matrix", "preview", "suggest", "top"];

/** How often rows are painted at most, in milliseconds. */
const REPAINT = 250;
const TOKEN = "whisker-token";

export const filters = signal<Filters>(parse(location.search));
export const view = signal<View>(viewOf(location.hash));
export const connection = signal<{ state: ConnectionState; problem: string }>({ state: "connecting", problem: "" });
export const status = signal<Status | null>(null);
/** When the status came, by this machine's clock. */
export const statusAt = signal(Date.now());
export const now = signal(Date.now());
export const sort = signal<Sort>({ by: "time", reversed: false });
/** The rows on the page. */
export const rows = signal<Flow[]>([]);
/** How many rows came since the page was held. */
export const waiting = signal(0);
/** Held by hand. */
export const paused = signal(false);
/** The flow whose details are open. */
export const selected = signal<Flow | null>(null);
export const left = signal(0);
/** The pair that is explained. */
export const explained = signal<Pair | null>(null);
/** The policy whose effect is asked about. */
export const draft = signal("");
export const help = signal(false);

const all = new Rows();
let shown = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

export const isHeld = (): boolean => paused.value || selected.value !== null;

function viewOf(hash: string): View {
  const name = hash.replace("#", "");
  return VIEWS.find((one) => one === name) ?? "flows";
}

/** Paints the rows soon; while the page is held, counts what waits. */
function repaint(): void {
  if (timer !== undefined) return;
  timer = setTimeout(() => {
    timer = undefined;
    if (isHeld()) {
      waiting.value = Math.max(0, all.length + all.gone - shown);
    } else {
      show();
    }
  }, REPAINT);
}

export function show(): void {
  rows.value = all.list(sort.value);
  left.value = all.gone;
  shown = all.length + all.gone;
  waiting.value = 0;
}

function take(event: ServerEvent): void {
  if (event.type === "flows") {
    all.add(JSON.parse(event.data) as Flow[]);
    repaint();
  } else if (event.type === "reset") {
    // What follows does not go on from the rows that are here: numbers may mean other flows.
    all.clear();
    shown = 0;
  } else if (event.type === "status") {
    status.value = JSON.parse(event.data) as Status;
    statusAt.value = Date.now();
  }
}

/** The token of this tab. It may come behind `#token=`, which no server sees. */
export function token(): string {
  try {
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}

export function unlock(text: string): void {
  try {
    sessionStorage.setItem(TOKEN, text);
  } catch {
    // Without storage the token is asked for again.
  }
  filters.value = { ...filters.value };
}

/** Asks the server. */
export function ask<T>(path: string, more: Question, signal: AbortSignal): Promise<T> {
  return request<T>(path, more, { signal });
}

/** Asks the server about a policy. */
export function send<T>(path: string, body: string): Promise<T> {
  return request<T>(path, {}, { method: "POST", body, headers: { "content-type": "application/yaml" } });
}

async function request<T>(path: string, more: Question, options: Omit<RequestInit, "headers"> & { headers?: Record<string, string> }): Promise<T> {
  const headers: Record<string, string> = { accept: "application/json", ...options.headers };
  if (token()) headers["authorization"] = `Bearer ${token()}`;
  const url = `${path}?${parameters(filters.value, more).toString()}`;
  const response = await fetch(url, { ...options, headers, cache: "no-store" });
  if (response.status === 401) {
    connection.value = { state: "locked", problem: "a token is needed" };
    throw new Locked("a token is needed");
  }
  if (!response.ok) throw new Error(await problemOf(response));
  return (await response.json()) as T;
}

export function setFilters(next: Filters): void {
  filters.value = next;
  const query = format(next, location.search);
  history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
}

export function setView(next: View): void {
  if (next !== view.value) explained.value = null;
  view.value = next;
  history.replaceState(null, "", `${location.pathname}${location.search}#${next}`);
}

export function setSort(by: Sort["by"]): void {
  sort.value = { by, reversed: sort.value.by === by ? !sort.value.reversed : false };
  show();
}

export function start(): void {
  const given = /[#&]token=([^&]+)/.exec(location.hash);
  if (given?.[1]) {
    unlock(decodeURIComponent(given[1]));
    history.replaceState(null, "", `${location.pathname}${location.search}`);
  }
  effect(() => {
    const query = parameters(filters.value).toString();
    all.clear();
    show();
    return follow(`api/v1/live?${query}`, {
      event: take,
      state: (state, problem) => (connection.value = { state, problem }),
      token,
    });
  });
  // What waited is shown when the page is no longer held.
  effect(() => {
    if (!paused.value && selected.value === null) repaint();
  });
  setInterval(() => (now.value = Date.now()), 1000);
  addEventListener("hashchange", () => (view.value = viewOf(location.hash)));
  addEventListener("popstate", () => (filters.value = parse(location.search)));
}
