import { chmodSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { Agent, request } from 'undici';
import { TrialgateError } from '../../../core/errors.ts';
import { resolveModel } from '../../../activities/run/resolve-paths.ts';
import { INSTALLS } from '../../folders.ts';
import { environment, type Component } from '../component.ts';
import { deviceOf } from '../device.ts';
import type { Plan } from '../plan.ts';

/** Returns our own vLLM. It listens on a Unix socket that no sandbox can reach, because its control routes have no authentication. */
export function engine(plan: Plan): Component {
  const { engineSocket: socket, config } = plan;
  const model = resolveModel(config.model);
  return {
    name: 'vllm',
    address: `unix:${socket}, model ${model}`,
    needs: [],
    async prepare() {
      if (path.isAbsolute(model) && !existsSync(model)) {
        throw new TrialgateError(
          'missing_prerequisite',
          `the model ${model} is not there: run \`npx trialgate install\`, or name another with --model`,
        );
      }
      mkdirSync(path.dirname(socket), { recursive: true, mode: 0o700 });
      chmodSync(path.dirname(socket), 0o700);
      rmSync(socket, { force: true });
    },
    launch: () => ({
      file: INSTALLS.python,
      args: [
        '-m',
        'vllm.entrypoints.openai.api_server',
        '--model',
        model,
        '--served-model-name',
        'policy',
        '--uds',
        socket,
        '--enforce-eager',
        '--logprobs-mode',
        'processed_logprobs',
        '--enable-scale-out',
        '--max-model-len',
        String(config.max_model_len),
        '--dtype',
        'bfloat16',
        '--disable-uvicorn-access-log',
        '--worker-extension-cls',
        'trialgate_gpu.vllm_extension.TrialgateWorker',
        ...headArguments(config.head_dtype),
        ...executorOn(deviceOf(config.device)),
        ...config.engine_args,
      ],
      env: engineEnvironment(plan, model),
      cwd: plan.folders.home,
    }),
    isReady: async (_pid, signal) => existsSync(socket) && (await healthOf(socket, signal)) === 200,
    isHealthy: async (signal) => (await healthOf(socket, signal)) !== 503,
    readyWithinMs: 900_000,
    stopSignal: 'SIGTERM',
    stopWithinMs: 10_000,
  };
}

/** Returns the arguments for our executor on a CPU. vLLM's own would spin on a second core and start a third process. */
export const executorOn = (device: 'cpu' | 'cuda'): string[] =>
  device === 'cpu' ? ['--distributed-executor-backend', 'trialgate_gpu.vllm_executor.InProcessExecutor'] : [];

/** Returns vLLM's arguments for the output head's dtype. A run with another `head_dtype` refuses this engine. */
export const headArguments = (dtype: 'model' | 'float32'): string[] =>
  dtype === 'float32' ? ['--hf-overrides', '{"head_dtype": "float32"}'] : [];

function engineEnvironment(plan: Plan, model: string): NodeJS.ProcessEnv {
  const { cache } = plan.folders;
  const local = path.isAbsolute(model);
  const onCpu = deviceOf(plan.config.device) === 'cpu';
  return environment({
    VLLM_SERVER_DEV_MODE: '1',
    PYTHONPATH: INSTALLS.gpuWorkers,
    ...(onCpu ? { VLLM_CPU_KVCACHE_SPACE: process.env['VLLM_CPU_KVCACHE_SPACE'] ?? '1' } : {}),
    ...(local ? { HF_HUB_OFFLINE: '1' } : {}),
    VLLM_NO_USAGE_STATS: '1',
    VLLM_CACHE_ROOT: INSTALLS.vllmCache,
    VLLM_CONFIG_ROOT: path.join(cache, 'vllm-config'),
    XDG_CACHE_HOME: cache,
    TRITON_CACHE_DIR: path.join(cache, 'triton'),
    TORCHINDUCTOR_CACHE_DIR: path.join(cache, 'inductor'),
    PYTHONUNBUFFERED: '1',
  });
}

/** Returns the status of GET /health on a Unix socket. Rejects when nothing answers within 5 s. */
export async function healthOf(socketPath: string, signal: AbortSignal): Promise<number> {
  const dispatcher = new Agent({ connect: { socketPath }, headersTimeout: 5000, bodyTimeout: 5000 });
  try {
    const reply = await request('http://engine/health', { dispatcher, signal });
    await reply.body.dump();
    return reply.statusCode;
  } finally {
    await dispatcher.destroy();
  }
}
