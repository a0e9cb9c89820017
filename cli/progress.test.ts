import { expect, onTestFinished, test, vi } from 'vitest';
import { progressLine, stackProgress } from './progress.ts';
import type { ComponentState } from './supervisor/state.ts';

/** Returns a log in place of a terminal, and its lines. */
function log() {
  const lines: string[] = [];
  return { lines, write: (text: string) => void lines.push(text) };
}
const textsOf = ({ lines }: ReturnType<typeof log>) => lines.map((line) => /^\[ *\d+ s\] (.*)\n$/.exec(line)?.[1]);

test('a log gets a line for each piece of news, and the whole text again when there was none for a while', () => {
  const [quiet, often] = [log(), log()];
  for (const line of [progressLine(quiet), progressLine(often, 0)])
    for (const count of [1, 2]) line.show(`rollout: ${count} scored`, 'rollout');
  expect(textsOf(quiet)).toEqual(['rollout']);
  expect(textsOf(often)).toEqual(['rollout', 'rollout: 2 scored']);
});

test('the clock of a progress line counts from the start of the command, not of the line', () => {
  const uptime = vi.spyOn(process, 'uptime').mockReturnValue(50.2);
  onTestFinished(() => uptime.mockRestore());
  const shown = log();
  progressLine(shown).print('published');
  expect(shown.lines).toEqual(['[ 50 s] published\n']);
});

test('a stack that starts names what it waits for: the supervisor, then its components, and at the end that all are ready', () => {
  const shown = log();
  const progress = stackProgress(shown);
  const state = {
    status: 'starting' as const,
    supervisor: { pid: 1, ticks: 1 },
    failure: null,
    ports: {},
    engines: [],
    settings: null,
    ranks: null,
    notes: [],
  };
  const vllm = (status: ComponentState['status'], detail: string | null = null): ComponentState => ({
    name: 'vllm',
    status,
    detail,
    process: null,
    address: '',
    since: '',
    restarts: 0,
    log: null,
    stopSignal: 'SIGTERM',
  });
  progress.show({ ...state, components: [] });
  for (const status of ['waiting', 'starting', 'ready'] as const)
    progress.show({ ...state, components: [vllm(status)] });
  progress.show({ ...state, status: 'ready', components: [vllm('ready')] });
  expect(textsOf(shown)).toEqual(['starting: the supervisor', 'vllm starting', 'all ready']);
});
