// Asking again every few seconds, while a view is open and the page is to be seen.

import { useEffect, useState } from "preact/hooks";
import type { Question } from "./filters.ts";
import { ask, filters } from "./state.ts";

const EVERY = 3000;

export interface Polled<T> {
  value: T | null;
  problem: string;
}

export function usePoll<T>(path: string, more: Question): Polled<T> {
  const [found, setFound] = useState<Polled<T>>({ value: null, problem: "" });
  const key = JSON.stringify(more);
  const current = filters.value;
  useEffect(() => {
    const stop = new AbortController();
    let shown = "";
    let timer: ReturnType<typeof setTimeout> | undefined;
    const round = async (): Promise<void> => {
      if (!document.hidden) {
        try {
          const value = await ask<T>(path, more, stop.signal);
          // The same answer is the same picture: nothing is drawn anew.
          const text = JSON.stringify(value);
          setFound((last) => (last.problem === "" && text === shown ? last : { value, problem: "" }));
          shown = text;
        } catch (error) {
          if (stop.signal.aborted) return;
          setFound((last) => ({ ...last, problem: error instanceof Error ? error.message : String(error) }));
        }
      }
      if (!stop.signal.aborted) timer = setTimeout(() => void round(), EVERY);
    };
    void round();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, key, current]);
  return found;
}
