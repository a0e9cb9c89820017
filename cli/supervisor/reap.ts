import { endGroup, isAlive } from './processes.ts';
import { readState } from './state.ts';

/** Ends the components that a dead supervisor left running and returns their names. Does nothing while the supervisor lives. */
export async function reap(home: string): Promise<string[]> {
  const state = readState(home);
  if (!state || (isAlive(state.supervisor) && state.supervisor.pid !== process.pid)) return [];
  const left = state.components.flatMap(({ name, process, stopSignal }) =>
    process ? [{ name, process, stopSignal }] : [],
  );
  await Promise.all(
    left.map(({ name, process, stopSignal }) =>
      endGroup(process, signalOf(stopSignal), name === 'postgres' ? 15_000 : 3_000),
    ),
  );
  return left.map(({ name }) => name);
}

const signalOf = (name: string): NodeJS.Signals => (name === 'SIGINT' ? 'SIGINT' : 'SIGTERM');
