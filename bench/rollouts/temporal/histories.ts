import type { Client } from '@temporalio/client';

/** The aim for a history. Temporal warns at 10,240 events and ends a workflow at 51,200 or 50 MB. */
export const AIM = { events: 10_000, bytes: 5_000_000 };

export type HistoryRow = {
  workflow: string;
  executions: number;
  events: { median: number; most: number };
  bytes: { median: number; most: number };
};

/** Returns the sizes of the histories of a run's workflows, by type, from the server. */
export async function historiesOf(client: Client, runId: string): Promise<HistoryRow[]> {
  const byType = new Map<string, { events: number[]; bytes: number[] }>();
  for await (const { type, historyLength, historySize } of client.workflow.list({
    query: `WorkflowId = "${runId}" OR WorkflowId STARTS_WITH "${runId}/"`,
    pageSize: 1000,
  })) {
    const sizes = byType.get(type) ?? { events: [], bytes: [] };
    sizes.events.push(historyLength);
    sizes.bytes.push(historySize ?? Number.NaN);
    byType.set(type, sizes);
  }
  return [...byType]
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([workflow, { events, bytes }]) => ({
      workflow,
      executions: events.length,
      events: spread(events),
      bytes: spread(bytes),
    }));
}

function spread(values: number[]): { median: number; most: number } {
  const sorted = values.toSorted((a, b) => a - b);
  return { median: sorted[Math.floor((sorted.length - 1) / 2)] ?? Number.NaN, most: sorted.at(-1) ?? Number.NaN };
}
