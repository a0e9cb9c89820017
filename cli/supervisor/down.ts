import { setTimeout as sleep } from 'node:timers/promises';
import { isAlive, send, type ProcessId } from './processes.ts';
import { reap } from './reap.ts';
import { livingState, readState, writeState } from './state.ts';

/** Longer than a component and those that wait for it may take to stop, so a supervisor that takes longer hangs. */
const PATIENCE_MS = 120_000;

/** Stops the deployment and returns the names of the components that ran. No process is left, even if the supervisor was dead. */
export async function down(home: string): Promise<string[]> {
  const living = livingState(home);
  if (!living) return reapDead(home);
  send(living.supervisor.pid, 'SIGTERM');
  if (!(await endsWithin(living.supervisor, PATIENCE_MS))) send(living.supervisor.pid, 'SIGKILL');
  if (!(await endsWithin(living.supervisor, PATIENCE_MS)))
    throw new Error(`the supervisor (pid ${living.supervisor.pid}) does not end, not even by SIGKILL`);
  await reapDead(home);
  return living.components.map(({ name }) => name);
}

async function endsWithin(process: ProcessId, milliseconds: number): Promise<boolean> {
  const end = Date.now() + milliseconds;
  while (isAlive(process) && Date.now() < end) await sleep(50);
  return !isAlive(process);
}

async function reapDead(home: string): Promise<string[]> {
  const ended = await reap(home);
  const state = readState(home);
  if (!state || state.status === 'stopped') return ended;
  const components = state.components.map((each) => ({ ...each, status: 'stopped' as const, process: null }));
  writeState(home, { ...state, status: 'stopped', components });
  return ended;
}
