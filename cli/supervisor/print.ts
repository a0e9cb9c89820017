import { isAlive } from './processes.ts';
import { readState, type StackState } from './state.ts';

/** Returns the recorded state, corrected by which processes live, because a killed supervisor cannot record its end. */
export function currentState(home: string): StackState | null {
  const state = readState(home);
  if (!state || state.status === 'failed') return state;
  // Its notes are of a deployment that runs, such as its ports.
  if (state.status === 'stopped') return { ...state, notes: [] };
  if (isAlive(state.supervisor)) return state;
  const components = state.components.map((each) => {
    const left = each.process !== null && isAlive(each.process);
    const detail = left ? 'still running after its supervisor was killed' : null;
    return { ...each, status: 'stopped' as const, process: left ? each.process : null, detail };
  });
  return {
    ...state,
    status: 'stopped',
    components,
    notes: ['the supervisor was killed: `npx trialgate up` starts it again, `npx trialgate down` ends what is left'],
  };
}

export function printStatus(state: StackState): void {
  const rows = state.components.map(({ name, status, process, since, restarts, address }) => [
    name,
    status,
    process ? String(process.pid) : '–',
    ago(since),
    String(restarts),
    address,
  ]);
  const table = [['component', 'status', 'pid', 'for', 'restarts', 'address'], ...rows];
  const widths = table[0]?.map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0))) ?? [];
  for (const row of table)
    console.log(
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    );
  for (const { name, detail, log } of state.components) if (detail) console.log(`${name}: ${detail} (log: ${log})`);
  if (state.failure) console.log(`failed: ${state.failure.message}`);
  for (const note of state.notes) console.log(`note: ${note}`);
}

function ago(since: string): string {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(since)) / 1000));
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
