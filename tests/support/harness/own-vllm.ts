import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { INSTALLS } from '../../../cli/folders.ts';
import { executorOn, NO_COMPILER } from '../../../cli/supervisor/components/engine.ts';
import { deviceOf, dtypeOn } from '../../../cli/supervisor/device.ts';
import { freePort } from '../../../core/free-port.ts';
import { ON_SHARED_CORES } from './temporary-deployment.ts';
import { endGroup, identify } from '../../../cli/supervisor/processes.ts';
import { sleep } from '../../../core/sleep.ts';
import { shallowModel } from './shallow-model.ts';

/** `args` are more arguments of vLLM, `cacheGiB` is the size of its KV cache, and `layers` keeps only the model's first layers. */
type Options = { args?: readonly string[]; cacheGiB?: number; layers?: number };

/** Runs `body` with a real vLLM that parses tool calls. */
export async function withVllm<T>(
  body: (url: string) => Promise<T>,
  signal: AbortSignal,
  { args: more = [], cacheGiB = 1, layers }: Options = {},
): Promise<T> {
  const home = await mkdtemp(join(tmpdir(), 'trialgate-vllm-'));
  const model = layers === undefined ? INSTALLS.smallModel : await shallowModel(join(home, 'model'), layers);
  const port = await freePort('127.0.0.1');
  const args = [
    '-m',
    'vllm.entrypoints.openai.api_server',
    '--model',
    model,
    '--served-model-name',
    'policy',
    '--host',
    '127.0.0.1',
    '--port',
    String(port),
    '--enforce-eager',
    '--dtype',
    dtypeOn(deviceOf('auto'), 'auto').dtype,
    '--logprobs-mode',
    'processed_logprobs',
    '--enable-scale-out',
    '--enable-auto-tool-choice',
    '--tool-call-parser',
    'hermes',
    '--disable-uvicorn-access-log',
    ...executorOn(deviceOf('auto')),
    ...more,
  ];
  const env = {
    ...ON_SHARED_CORES,
    PATH: process.env['PATH'] ?? '',
    HOME: home,
    XDG_CACHE_HOME: home,
    VLLM_CACHE_ROOT: INSTALLS.vllmCache,
    PYTHONPATH: INSTALLS.gpuWorkers,
    VLLM_CPU_KVCACHE_SPACE: String(cacheGiB),
    ...(deviceOf('auto') === 'cpu' ? NO_COMPILER : {}),
    HF_HUB_OFFLINE: '1',
    VLLM_NO_USAGE_STATS: '1',
    VLLM_SERVER_DEV_MODE: '1',
    VLLM_ENABLE_RESPONSES_API_STORE: '1',
    VLLM_ALLOW_LONG_MAX_MODEL_LEN: '1',
  };
  const child = spawn(INSTALLS.python, args, { cwd: home, env, stdio: ['ignore', 'ignore', 'pipe'], detached: true });
  let said = '';
  child.stderr.on('data', (bytes: Buffer) => (said = (said + bytes.toString()).slice(-4_000)));
  const url = `http://127.0.0.1:${port}`;
  try {
    while (
      !(await fetch(`${url}/health`, { signal }).then(
        ({ ok }) => ok,
        () => false,
      ))
    ) {
      signal.throwIfAborted();
      if (child.exitCode !== null) throw new Error(`vLLM did not start: ${said}`);
      await sleep(250);
    }
    return await body(url);
  } finally {
    await endGroup(identify(child.pid ?? 0), 'SIGTERM', 5_000);
    await rm(home, { recursive: true, force: true });
  }
}
