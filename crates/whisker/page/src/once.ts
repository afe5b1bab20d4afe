// Asking once, when a part of the page opens; the last answers are kept for as long as the page asks again anyway.

import { useEffect, useState } from "preact/hooks";
import type { Question } from "./filters.ts";
import type { Polled } from "./poll.ts";
import { ask } from "./state.ts";

const KEPT = 10_000;
const answers = new Map<string, { at: number; answer: Promise<unknown> }>();

function kept<T>(path: string, more: Question): Promise<T> {
  const key = `${path}?${JSON.stringify(more)}`;
  const known = answers.get(key);
  if (known && Date.now() - known.at < KEPT) return known.answer as Promise<T>;
  const answer = ask<T>(path, more, new AbortController().signal);
  if (answers.size > 200) answers.clear();
  answers.set(key, { at: Date.now(), answer });
  answer.catch(() => answers.delete(key));
  return answer;
}

export function useOnce<T>(path: string, more: Question | null): Polled<T> {
  const [found, setFound] = useState<Polled<T>>({ value: null, problem: "" });
  const key = JSON.stringify(more);
  useEffect(() => {
    if (!more) return;
    let wanted = true;
    setFound({ value: null, problem: "" });
    kept<T>(path, more)
      .then((value) => wanted && setFound({ value, problem: "" }))
      .catch((error: unknown) => wanted && setFound({ value: null, problem: error instanceof Error ? error.message : String(error) }));
    return () => {
      wanted = false;
    };
  }, [path, key]);
  return found;
}
