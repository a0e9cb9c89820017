import { join } from 'node:path';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { taskWith, temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { tryWithoutEngine } from './try-without-engine.ts';

const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });

test.each([
  ['a command', 'agent oneshot is not run, '],
  ['a function', 'agent solve is imported and not run, '],
])(
  'a try without an engine of an agent that is %s says first what it does, and why the agent is not run',
  async (kind, what) => {
    await using place = await temporaryHome();
    const { home } = place;
    await writeFiles(home, { 'agent/solve.py': 'def work(task, model):\n    raise SystemExit("it was run")\n' });
    const { folder } = await taskWith(home, 'echo 0 > $LOGS_DIR/verifier/reward.txt');
    const agent = kind === 'a command' ? 'oneshot' : `${join(home, 'agent/solve.py')}:work`;
    const said: string[] = [];
    const report = (line: string): void => void said.push(line);
    const there = { gatewayUrl: 'http://127.0.0.1:9', home, unsandboxed: true, report };
    await tryWithoutEngine({ task: folder, agent, config }, there, new AbortController().signal);
    expect(said).toContain(
      `${what}because no engine can be asked now; the verifier of task task judges the untouched task`,
    );
  },
);
