import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { environment } from '../../../cli/supervisor/component.ts';
import { LOOPBACK } from '../../../cli/supervisor/gateways.ts';
import { freePort } from '../../../core/free-port.ts';
import { plainTarget, type Target } from '../cell.ts';
import { startChild, type Child } from '../parts/child.ts';
import { fromNpm, fromPyPI } from './install.ts';

/** Another gateway in front of the same engine, with its default settings. None of them records token ids. */
export type Peer = { name: string; start: (engine: string, signal: AbortSignal) => Promise<Target> };

const vllmRouter: Peer = {
  name: 'vllm-router 0.1.17',
  async start(engine, signal) {
    const file = await fromPyPI('vllm-router', signal);
    const port = await freePort(LOOPBACK);
    const args = ['--host', LOOPBACK, '--port', port, '--worker-urls', engine, '--policy', 'round_robin', '--prometheus-port', await freePort(LOOPBACK)].map(String);
    return targetOf(this.name, port, await startChild({ name: this.name, file, args, env: environment({}), ready: /Starting server/, signal }));
  },
};

const KEY = 'sk-benchmark-0123456789abcdef';

const litellm: Peer = {
  name: 'LiteLLM 1.106.0',
  async start(engine, signal) {
    const file = await fromPyPI('litellm', signal);
    const port = await freePort(LOOPBACK);
    const folder = mkdtempSync(join(tmpdir(), 'trialgate-bench-litellm-'));
    const clear = () => rmSync(folder, { recursive: true, force: true });
    const config = join(folder, 'config.yaml');
    // JSON is YAML.
    writeFileSync(config, JSON.stringify({ model_list: [{ model_name: 'policy', litellm_params: { model: 'hosted_vllm/policy', api_base: `${engine}/v1`, api_key: 'none' } }] }));
    const args = ['--config', config, '--host', LOOPBACK, '--port', `${port}`, '--telemetry', 'False'];
    const env = environment({ LITELLM_MASTER_KEY: KEY, LITELLM_LOCAL_MODEL_COST_MAP: 'True' });
    try {
      const child = await startChild({ name: this.name, file, args, env, cwd: folder, ready: /Uvicorn running on/, readyWithinMs: 120_000, signal });
      return targetOf(this.name, port, child, { key: KEY, clear });
    } catch (error) {
      clear();
      throw error;
    }
  },
};

const portkey: Peer = {
  name: 'Portkey 1.15.2',
  async start(engine, signal) {
    const file = await fromNpm('portkey', '@portkey-ai/gateway/build/start-server.js', signal);
    const port = await freePort(LOOPBACK);
    const child = await startChild({ name: this.name, file: process.execPath, args: [file, `--port=${port}`, '--headless'], env: environment({}), ready: /Ready for connections/, signal });
    return targetOf(this.name, port, child, { headers: `x-portkey-provider: openai\r\nx-portkey-custom-host: ${engine}/v1\r\n` });
  },
};

export const PEERS: readonly Peer[] = [vllmRouter, litellm, portkey];

type More = { key?: string; headers?: string; clear?: () => void };

function targetOf(name: string, port: number, child: Child, { key, headers, clear }: More = {}): Target {
  const plain = plainTarget(name, `http://${LOOPBACK}:${port}`, async () => {
    await child.stop();
    clear?.();
  });
  const lines: Target['lines'] = async (count) => (await plain.lines(count)).map((line) => ({ ...line, key: key ?? line.key }));
  return { ...plain, pid: child.pid, headers, lines, lastError: child.lastError };
}
