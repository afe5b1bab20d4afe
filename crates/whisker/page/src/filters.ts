// Filters, as they stand in the address: Whisker's names, so that its links work here.

export const KEYS = [
  "source_namespace",
  "source_name",
  "dest_namespace",
  "dest_name",
  "dest_port",
  "protocol",
  "action",
  "staged_action",
  "reporter",
] as const;
export type Key = (typeof KEYS)[number];

export interface PolicyFilter {
  kind?: string;
  tier?: string;
  namespace?: string;
  name?: string;
}

export interface Filters {
  values: Partial<Record<Key, string[]>>;
  policies: PolicyFilter[];
  /** How many minutes of history are wanted. */
  minutes: number;
}

export const DEFAULT_MINUTES = 5;
const MOST_MINUTES = 60;
const PARTS = ["kind", "tier", "namespace", "name"] as const;

export function none(): Filters {
  return { values: {}, policies: [], minutes: DEFAULT_MINUTES };
}

export function parse(search: string): Filters {
  const parameters = new URLSearchParams(search);
  const filters = none();
  for (const key of KEYS) {
    const given = [...parameters.getAll(key), ...(key === "staged_action" ? parameters.getAll("pending_action") : [])];
    const values = given.filter((value) => value !== "");
    if (values.length) filters.values[key] = [...new Set(values)];
  }
  filters.policies = policies(parameters.get("policy"));
  const minutes = Number(parameters.get("start_time") ?? DEFAULT_MINUTES);
  if (Number.isFinite(minutes)) filters.minutes = Math.min(MOST_MINUTES, Math.max(0, minutes));
  return filters;
}

function policies(text: string | null): PolicyFilter[] {
  let found: unknown;
  try {
    found = JSON.parse(text ?? "[]");
  } catch {
    return [];
  }
  if (!Array.isArray(found)) return [];
  return found.flatMap((one: unknown) => {
    if (typeof one !== "object" || one === null) return [];
    const filter: PolicyFilter = {};
    for (const part of PARTS) {
      const value: unknown = (one as Record<string, unknown>)[part];
      if (typeof value === "string" && value !== "") filter[part] = value;
    }
    return Object.keys(filter).length ? [filter] : [];
  });
}

/** The part of the address after `?`, with what else is in it. */
export function format(filters: Filters, search: string): string {
  const parameters = new URLSearchParams(search);
  for (const key of [...KEYS, "pending_action", "policy", "start_time"]) parameters.delete(key);
  for (const key of KEYS) {
    for (const value of filters.values[key] ?? []) parameters.append(key, value);
  }
  if (filters.policies.length) parameters.set("policy", JSON.stringify(filters.policies));
  if (filters.minutes !== DEFAULT_MINUTES) parameters.set("start_time", String(filters.minutes));
  return parameters.toString();
}

/** The filter as the server's APIs take it; nothing for none. */
export function request(filters: Filters): string {
  const { values } = filters;
  const exact = (texts: string[] | undefined) => texts?.map((value) => ({ value, type: "Exact" }));
  const ports = values.dest_port?.map(Number).filter((port) => Number.isInteger(port) && port >= 0);
  const query = {
    source_namespaces: exact(values.source_namespace),
    source_names: exact(values.source_name),
    dest_namespaces: exact(values.dest_namespace),
    dest_names: exact(values.dest_name),
    protocols: exact(values.protocol),
    dest_ports: ports?.length ? ports.map((value) => ({ value, type: "Exact" })) : undefined,
    actions: values.action,
    pending_actions: values.staged_action,
    reporter: values.reporter?.[0],
    policies: filters.policies.length
      ? filters.policies.map((policy) => ({
          ...(policy.kind ? { kind: policy.kind } : {}),
          ...Object.fromEntries(
            (["tier", "namespace", "name"] as const).flatMap((part) =>
              policy[part] ? [[part, { value: policy[part], type: "Exact" }]] : [],
            ),
          ),
        }))
      : undefined,
  };
  const json = JSON.stringify(query);
  return json === "{}" ? "" : json;
}

/** What else a question says; several values of a name are several parameters. */
export type Question = Record<string, string | string[]>;

/** The parameters of a question to the server. */
export function parameters(filters: Filters, more: Question = {}): URLSearchParams {
  const found = new URLSearchParams();
  for (const [name, values] of Object.entries(more)) {
    for (const value of [values].flat()) found.append(name, value);
  }
  // Zero minutes is "from now on" for a stream; pictures need something to show.
  found.set("startTimeGte", String(-60 * filters.minutes));
  const query = request(filters);
  if (query) found.set("filters", query);
  return found;
}

export function has(filters: Filters, key: Key, value: string): boolean {
  return filters.values[key]?.includes(value) ?? false;
}

/** The filters with one value more, or without it. Of a reporter there is one. */
export function toggled(filters: Filters, key: Key, value: string): Filters {
  const values = filters.values[key] ?? [];
  const others = values.filter((one) => one !== value);
  const kept = key === "reporter" ? [] : others;
  const next = others.length === values.length ? [...kept, value] : others;
  const { [key]: _gone, ...rest } = filters.values;
  return { ...filters, values: next.length ? { ...rest, [key]: next } : rest };
}

export function togglePolicy(filters: Filters, policy: PolicyFilter): Filters {
  const text = (one: PolicyFilter) => JSON.stringify(PARTS.map((part) => one[part] ?? ""));
  const others = filters.policies.filter((one) => text(one) !== text(policy));
  const found = others.length !== filters.policies.length;
  return { ...filters, policies: found ? others : [...others, policy] };
}

export function policyText(policy: PolicyFilter): string {
  const name = [policy.namespace, policy.name].filter(Boolean).join("/");
  return [policy.kind, policy.tier && `tier ${policy.tier}`, name].filter(Boolean).join(" ");
}
