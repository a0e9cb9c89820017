import { setTimeout as sleep } from 'node:timers/promises';
import { isAlive, send } from './processes.ts';
import { reap } from './reap.ts';
import { livingState, readState, writeState } from './state.ts';

/** Stops the deployment. Returns the names of what ran; nothing of it is left, also when its supervisor was dead. */
export async function down(home: string): Promise<string[]> {
  const living = livingState(home);
  if (!living) return reapDead(home);
  send(living.supervisor.pid, 'SIGTERM');
  while (isAlive(living.supervisor)) await sleep(50);
  await reapDead(home);
  return living.components.map(({ name }) => name);
}

async function reapDead(home: string): Promise<string[]> {
  const ended = await reap(home);
  const state = readState(home);
  if (!state || state.status === 'stopped') return ended;
  const components = state.components.map((each) => ({ ...each, status: 'stopped' as const, process: null }));
  writeState(home, { ...state, status: 'stopped', components });
  return ended;
}
