import type { StackState } from './state.ts';

/** Writes a line whenever a component's status changes. */
export function stackLog(): (state: StackState) => void {
  const known = new Map<string, string>();
  return ({ components }) => {
    for (const { name, status, process, detail } of components) {
      const text = `${name} ${status}${process ? ` (pid ${process.pid})` : ''}${detail ? `: ${detail}` : ''}`;
      if (known.get(name) === text) continue;
      known.set(name, text);
      console.log(`${new Date().toISOString()} ${text}`);
    }
  };
}
