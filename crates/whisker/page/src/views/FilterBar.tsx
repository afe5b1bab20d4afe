// The filters: chips for what is set, one field to add more, and shortcuts for what is asked most.

import { useEffect, useRef, useState } from "preact/hooks";
import { has, KEYS, none, policyText, toggled, togglePolicy, type Key } from "../filters.ts";
import { ask, filters, setFilters } from "../state.ts";

const LABELS: Record<Key, string> = {
  source_namespace: "source namespace",
  source_name: "source",
  dest_namespace: "destination namespace",
  dest_name: "destination",
  dest_port: "port",
  protocol: "protocol",
  action: "action",
  staged_action: "staged action",
  reporter: "reporter",
};

const FIXED: Partial<Record<Key, string[]>> = {
  protocol: ["tcp", "udp", "icmp", "icmp6", "sctp"],
  action: ["Allow", "Deny", "Pass"],
  staged_action: ["Allow", "Deny", "Pass"],
  reporter: ["Src", "Dst"],
};

const HINTS: Partial<Record<Key | "policy", string>> = {
  source_namespace: "SourceNamespace",
  source_name: "SourceName",
  dest_namespace: "DestNamespace",
  dest_name: "DestName",
  policy: "PolicyName",
};

const SINCE = [0, 1, 5, 15, 30, 60];

function useHints(field: Key | "policy"): string[] {
  const [hints, setHints] = useState<string[]>([]);
  const current = filters.value;
  useEffect(() => {
    const type = HINTS[field];
    if (!type) {
      setHints(field === "policy" ? [] : (FIXED[field] ?? []));
      return;
    }
    const stop = new AbortController();
    ask<{ items: { value: string }[] | null }>("flows-filter-hints", { type, pageSize: "200" }, stop.signal)
      .then((found) => setHints((found.items ?? []).map((item) => item.value)))
      .catch(() => setHints([]));
    return () => stop.abort();
  }, [field, current]);
  return hints;
}

export function FilterBar() {
  const [field, setField] = useState<Key | "policy">("source_namespace");
  const [text, setText] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const hints = useHints(field);
  const current = filters.value;
  const add = (value: string) => {
    const clean = value.trim();
    if (!clean) return;
    setText("");
    setFilters(
      field === "policy"
        ? togglePolicy(current, { name: clean })
        : has(current, field, clean)
          ? current
          : toggled(current, field, clean),
    );
  };
  const only = (key: Key, value: string | undefined) => current.values[key]?.join() === value;
  const denied = only("action", "Deny") && only("staged_action", undefined);
  const wouldDeny = only("action", "Allow") && only("staged_action", "Deny");
  const shortcut = (on: boolean, values: typeof current.values) =>
    setFilters({
      ...current,
      values: { ...without(current.values, ["action", "staged_action"]), ...(on ? {} : values) },
    });
  const isSet = KEYS.some((key) => current.values[key]) || current.policies.length > 0;
  return (
    <div class="filters" role="search">
      <form
        class="add"
        onSubmit={(event) => {
          event.preventDefault();
          add(text);
        }}
      >
        <select
          aria-label="what to filter by"
          value={field}
          onChange={(event) => {
            setField(event.currentTarget.value as Key | "policy");
            input.current?.focus();
          }}
        >
          {KEYS.map((key) => (
            <option key={key} value={key}>
              {LABELS[key]}
            </option>
          ))}
          <option value="policy">policy</option>
        </select>
        <input
          ref={input}
          id="filter-text"
          aria-label="value"
          placeholder="filter …  ( / )"
          list="filter-hints"
          autocomplete="off"
          value={text}
          onInput={(event) => {
            const value = event.currentTarget.value;
            // What was chosen from the list needs no further key.
            if (hints.includes(value) && !("inputType" in event && event.inputType === "insertText")) add(value);
            else setText(value);
          }}
        />
        <datalist id="filter-hints">
          {hints.map((hint) => (
            <option key={hint} value={hint} />
          ))}
        </datalist>
      </form>
      <button class="toggle deny" aria-pressed={denied} onClick={() => shortcut(denied, { action: ["Deny"] })}>
        denied
      </button>
      <button
        class="toggle would-deny"
        aria-pressed={wouldDeny}
        onClick={() => shortcut(wouldDeny, { action: ["Allow"], staged_action: ["Deny"] })}
      >
        would be denied
      </button>
      <label class="since">
        <span>last</span>
        <select
          value={String(current.minutes)}
          onChange={(event) => setFilters({ ...current, minutes: Number(event.currentTarget.value) })}
        >
          {[...new Set([...SINCE, current.minutes])]
            .sort((one, two) => one - two)
            .map((minutes) => (
              <option key={minutes} value={String(minutes)}>
                {minutes === 0 ? "from now" : `${minutes} min`}
              </option>
            ))}
        </select>
      </label>
      {isSet && (
        <div class="chips">
          {KEYS.flatMap((key) =>
            (current.values[key] ?? []).map((value) => (
              <button
                key={`${key}=${value}`}
                class="chip"
                title="remove this filter"
                onClick={() => setFilters(toggled(current, key, value))}
              >
                <span>{LABELS[key]}</span> {value} <b aria-hidden="true">×</b>
              </button>
            )),
          )}
          {current.policies.map((policy) => (
            <button
              key={policyText(policy)}
              class="chip"
              title="remove this filter"
              onClick={() => setFilters(togglePolicy(current, policy))}
            >
              <span>policy</span> {policyText(policy)} <b aria-hidden="true">×</b>
            </button>
          ))}
          <button class="link" onClick={() => setFilters({ ...none(), minutes: current.minutes })}>
            clear
          </button>
        </div>
      )}
    </div>
  );
}

function without<T extends object, K extends keyof T>(values: T, keys: K[]): Omit<T, K> {
  const rest = { ...values };
  for (const key of keys) delete rest[key];
  return rest;
}
