// Names of the matrix.

/** `shop/db:5432` is a workload and its port. */
export function splitReceiver(text: string): { name: string; port: string } {
  const colon = text.lastIndexOf(":");
  return colon < 0 ? { name: text, port: "" } : { name: text.slice(0, colon), port: text.slice(colon + 1) };
}

/** A flow's end as explanations name it; networks have no name that could be asked about. */
export function workload(namespace: string, name: string, type: string): string | null {
  return type === "WorkloadEndpoint" ? `${namespace}/${name}` : null;
}
