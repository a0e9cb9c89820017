/**
 * Runs a small engine on a Unix socket, with a toy tokenizer, invented replies, and the routes for publications. It reports the
 * checksum of the checkpoint's files and the canary that the trainer measured. It logs what it sampled under which weight version, and events
 * that must never happen to an engine.
 *
 *   node bench/chaos/engine.ts SOCKET LOG
 */
import { createHash } from 'node:crypto';
import { appendFileSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { TokenEngine } from '../../tests/support/fakes/token-engine.ts';
import { answerTo, markOf } from './answers.ts';
import type { EngineEntry } from '../../tests/support/fakes/chaos-engine-log.ts';
import { VOCABULARY } from '../../tests/support/harness/tiny-model.ts';

const RELOAD_MS = 400;
const BUSY_MS = 500;

const manifest = z.object({ canary: z.object({ token_ids: z.array(z.number()), logprobs: z.array(z.number()) }) });
const reloading = z.object({ kwargs: z.object({ weights_path: z.string() }) });
const newWeightVersion = z.object({ new_version: z.string() });
const completing = z.object({ prompt: z.array(z.number()), prompt_logprobs: z.number() });

const [socket = '', log = ''] = process.argv.slice(2);
const engine = new TokenEngine();
let weights = { folder: 'none', checksum: 'none', canary: [] as number[] };
const state = { paused: false };
let staleCache = false;

const note = (entry: Omit<EngineEntry, 'at'>): void =>
  appendFileSync(log, `${JSON.stringify({ at: Date.now(), ...entry })}\n`);

function reload(folder: string): void {
  const made = manifest.parse(JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8')));
  const checksum = createHash('sha256')
    .update(readFileSync(join(folder, 'model.safetensors')))
    .digest('hex');
  weights = { folder, checksum, canary: made.canary.logprobs };
  staleCache = true;
}

async function control(path: string, body: unknown): Promise<unknown> {
  switch (path) {
    case '/pause':
      state.paused = true;
      return {};
    case '/resume':
      if (staleCache && !engine.weightVersion.startsWith('loading:'))
        note({ fault: `${engine.weightVersion} was resumed with the cache of the weights before` });
      state.paused = false;
      return {};
    case '/collective_rpc': {
      await sleep(RELOAD_MS);
      try {
        reload(reloading.parse(body).kwargs.weights_path);
      } catch (error) {
        // Like vLLM, it ends when a reload fails.
        console.error(error);
        process.exit(1);
      }
      return {};
    }
    case '/update_weight_version':
      engine.weightVersion = newWeightVersion.parse(body).new_version;
      note({ weightVersion: engine.weightVersion, weights: weights.folder });
      return {};
    case '/reset_prefix_cache':
      staleCache = false;
      return {};
    case '/is_paused':
      return { is_paused: state.paused };
    case '/server_info':
      return {
        vllm_config: {
          parallel_config: { worker_extension_cls: 'trialgate_gpu.vllm_extension.TrialgateWorker' },
          device_config: { device: 'cpu' },
        },
      };
    case '/weight_checker':
      return { checksums: { model: weights.checksum } };
    case '/v1/completions':
      return canary(body);
    default:
      return undefined;
  }
}

function canary(body: unknown): unknown {
  const asked = completing.safeParse(body);
  if (!asked.success) return undefined;
  const entries = asked.data.prompt.slice(1).map((token, i) => ({ [token]: { logprob: weights.canary[i] ?? 0 } }));
  return { choices: [{ prompt_logprobs: [null, ...entries] }] };
}

rmSync(socket, { force: true });
engine.context = 4096;
// Nearly the log-probability under the model's random weights, so that the trainer's ratios are near 1.
engine.logprob = () => -Math.log(VOCABULARY);
engine.answer = ({ messages, answer }) => answer ?? { text: answerTo(messages) };
engine.route = (_method, path, body) => control(path.split('?')[0] ?? '', body);
engine.before = async ({ path, body }) => {
  if (path !== '/v1/chat/completions' && path !== '/inference/v1/generate') return;
  await sleep(Math.random() * BUSY_MS);
  while (state.paused) await sleep(20);
  const line = engine.answer({ ...body, messages: body.messages ?? [] });
  body.answer = line;
  note({
    serial: markOf(line.text)?.serial,
    weightVersion: engine.weightVersion,
    salt: String(body.cache_salt),
    weights: weights.folder,
  });
};
await engine.start(socket);
note({ weightVersion: engine.weightVersion, weights: weights.folder });
console.log(`engine ready at ${socket}`);
for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, () => process.exit(0));
