import type { ShownCall } from '../../clients/typescript/client.ts';

/** Returns the tools of each call's request as sent. `calls` are all calls of an attempt. A call whose tools are those of another one has its list. */
export function toolsOfCalls(calls: readonly Pick<ShownCall, 'shares_tools' | 'tools'>[]): (readonly unknown[])[] {
  const lists: (readonly unknown[])[] = [];
  for (const { shares_tools: shared, tools } of calls) {
    const whole = shared ? (lists[shared.number - 1] ?? []) : [];
    const isWhole = tools === null && whole.length === (shared?.tools ?? 0);
    lists.push(isWhole ? whole : [...whole.slice(0, shared?.tools ?? 0), ...(tools ?? [])]);
  }
  return lists;
}
