// Values as YAML, the way people write policies: only what a rule or a policy needs.

/** A text that YAML reads as itself. */
function plain(text: string): boolean {
  return /^[A-Za-z_/][A-Za-z0-9_./-]*$/.test(text) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(text);
}

/** The same where a text has a line of its own: selectors need no quotes there. */
function plainLine(text: string): boolean {
  return plain(text) || /^[A-Za-z_/][^:#\n\r\t]*[^:#\s]$/.test(text) && / /.test(text);
}

function scalar(value: unknown, isLine = false): string {
  if (typeof value === "string") return (isLine ? plainLine(value) : plain(value)) ? value : JSON.stringify(value);
  return JSON.stringify(value) ?? "null";
}

function isSimple(value: unknown): boolean {
  return typeof value !== "object" || value === null;
}

function lines(value: unknown): string[] {
  if (Array.isArray(value)) {
    if (value.length === 0) return ["[]"];
    if (value.every(isSimple)) return [`[${value.map((one) => scalar(one)).join(", ")}]`];
    return value.flatMap((one: unknown) => {
      const [first = "", ...rest] = lines(one);
      return [`- ${first}`, ...rest.map((line) => `  ${line}`)];
    });
  }
  if (typeof value === "object" && value !== null) {
    const fields = Object.entries(value).filter(([, field]) => field !== undefined);
    if (fields.length === 0) return ["{}"];
    return fields.flatMap(([name, field]) => {
      const key = plain(name) ? name : JSON.stringify(name);
      const below = lines(field);
      const isBlock = typeof field === "object" && field !== null && Object.keys(field).length > 0 && !(Array.isArray(field) && field.every(isSimple));
      if (!isBlock) return [`${key}: ${below[0] ?? ""}`];
      return [`${key}:`, ...below.map((line) => (Array.isArray(field) ? line : `  ${line}`))];
    });
  }
  return [scalar(value, true)];
}

export function toYaml(value: unknown): string {
  return lines(value).join("\n");
}

/** A stored policy as a user would write it: without what the cluster added. */
export function asWritten(policy: StoredPolicy): string {
  const { name, namespace, labels } = policy.metadata;
  const metadata = { name, ...(namespace ? { namespace } : {}), ...(labels ? { labels } : {}) };
  return `${toYaml({ apiVersion: policy.apiVersion, kind: policy.kind, metadata, spec: policy.spec })}\n`;
}

export interface StoredPolicy {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; labels?: Record<string, string> };
  spec: { selector?: string; order?: number; ingress?: unknown[]; egress?: unknown[] } & Record<string, unknown>;
}
