import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Pool } from 'undici';
import { resolveConfig } from '../../../cli/config/resolve.ts';
import { engine } from '../../../cli/supervisor/components/engine.ts';
import { makePlan } from '../../../cli/supervisor/plan.ts';
import { sleep } from '../../../core/sleep.ts';
import { ENGINE_WEIGHT_VERSION } from '../engine/weight-version.ts';
import { startChild } from './child.ts';
import type { BenchEngine } from './engine.ts';

const NOTHING = { served: 0, streams: 0, rendered: 0, generated: 0, aborted: 0, tokens: 0 };

/** Starts the real vLLM as a deployment does, with the weight version of the benchmark's run. */
export async function startVllm(signal: AbortSignal): Promise<BenchEngine> {
  await using stack = new AsyncDisposableStack();
  const home = mkdtempSync(join(tmpdir(), 'trialgate-bench-vllm-'));
  stack.defer(() => rmSync(home, { recursive: true, force: true }));
  chmodSync(home, 0o755);
  const { config } = resolveConfig({ env: { TRIALGATE_HOME: home }, cwd: home });
  const plan = await makePlan(config);
  const component = engine(plan);
  await component.prepare?.(signal);
  const { file, args, env, cwd } = component.launch();
  const child = stack.use(
    await startChild({
      name: 'vLLM',
      file,
      args,
      env,
      cwd,
      ready: /Application startup complete/,
      readyWithinMs: component.readyWithinMs,
      signal,
    }),
  );
  while (!(await component.isReady(child.pid, signal).catch(() => false))) await sleep(100, signal);
  const pool = new Pool('http://engine', { socketPath: plan.engineSocket });
  const reply = await pool.request({
    method: 'POST',
    path: '/update_weight_version',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ new_version: ENGINE_WEIGHT_VERSION }),
  });
  await reply.body.dump();
  await pool.destroy();
  const owned = stack.move();
  return {
    pid: child.pid,
    url: `unix:${plan.engineSocket}`,
    set: () => Promise.resolve(),
    // vLLM has no such counts.
    counts: () => Promise.resolve(NOTHING),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
