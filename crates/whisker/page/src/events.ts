// Server-sent events over fetch: a browser's own reader can neither show a token nor say where to go on after a reload.

export interface ServerEvent {
  type: string;
  data: string;
}

/** Reads the text of a stream, in pieces of any size. */
export class EventParser {
  #rest = "";
  #type = "";
  #data: string[] = [];
  #id: string | undefined;
  /** The place to go on from. */
  lastId = "";

  push(piece: string): ServerEvent[] {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    const events: ServerEvent[] = [];
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.#id !== undefined) this.lastId = this.#id;
        if (this.#data.length) events.push({ type: this.#type || "message", data: this.#data.join("\n") });
        this.#type = "";
        this.#data = [];
        this.#id = undefined;
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "data") this.#data.push(value);
      else if (name === "event") this.#type = value;
      else if (name === "id") this.#id = value;
    }
    return events;
  }
}

export type ConnectionState = "connecting" | "live" | "broken" | "locked";

export interface Listener {
  event(event: ServerEvent): void;
  state(state: ConnectionState, problem: string): void;
  /** The token to show, where there is one. */
  token(): string;
}

/** After how many failures in a row how long to wait, in milliseconds. */
export function pause(failures: number): number {
  return Math.min(10_000, 500 * 2 ** Math.min(failures, 5));
}

/** Follows a stream until it is stopped; goes on where a broken connection ended. */
export function follow(url: string, listener: Listener): () => void {
  const stop = new AbortController();
  let lastId = "";
  let failures = 0;
  const round = async (): Promise<void> => {
    listener.state("connecting", "");
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (lastId) headers["last-event-id"] = lastId;
    const token = listener.token();
    if (token) headers["authorization"] = `Bearer ${token}`;
    const response = await fetch(url, { headers, signal: stop.signal, cache: "no-store" });
    if (response.status === 401) throw new Locked();
    if (!response.ok || !response.body) throw new Error(await problemOf(response));
    listener.state("live", "");
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new Error("the stream ended");
      for (const event of parser.push(value)) listener.event(event);
      if (parser.lastId) lastId = parser.lastId;
      failures = 0;
    }
  };
  const run = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      try {
        await round();
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof Locked) {
          listener.state("locked", "a token is needed");
          return;
        }
        listener.state("broken", error instanceof Error ? error.message : String(error));
        await new Promise((resolve) => setTimeout(resolve, pause(failures)));
        failures += 1;
      }
    }
  };
  void run();
  return () => stop.abort();
}

export class Locked extends Error {}

export async function problemOf(response: Response): Promise<string> {
  try {
    const body: unknown = await response.json();
    if (typeof body === "object" && body !== null && "error" in body) return String(body.error);
  } catch {
    // Not every answer is ours.
  }
  return `the server answers ${response.status}`;
}
