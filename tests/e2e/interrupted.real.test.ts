import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { INSTALLS } from '../../cli/folders.ts';
import { groupOf } from '../../cli/supervisor/processes.ts';
import { readState } from '../../cli/supervisor/state.ts';
import { TestDeployment } from '../support/harness/deployment.ts';

test('Ctrl-C ends the quickstart and each of its processes, with the exit code of an interrupted command', async () => {
  const deployment = await TestDeployment.create();
  try {
    const child = spawn(INSTALLS.node, [INSTALLS.main, 'quickstart'], {
      env: deployment.env,
      cwd: deployment.home,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
    const exit = once(child, 'exit');
    while (!output.includes('gateway ready') && child.exitCode === null)
      await new Promise((resolve) => setTimeout(resolve, 100));
    const leaders = (readState(deployment.home)?.components ?? []).flatMap(({ process }) => process ?? []);
    expect(leaders.length).toBeGreaterThan(3);
    child.kill('SIGINT');
    const [code] = await exit;
    expect(code, output).toBe(130);
    expect(output).not.toContain('    at ');
    expect(leaders.flatMap(groupOf)).toEqual([]);
  } finally {
    await deployment.remove();
  }
});
