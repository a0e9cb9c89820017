import { chmodSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { Agent, request } from 'undici';
import { TrialgateError } from '../../../core/errors.ts';
import { resolveModel } from '../../../activities/run/resolve-paths.ts';
import type { Deployment } from '../../config/schema.ts';
import { INSTALLS } from '../../folders.ts';
import { environment, type Component } from '../component.ts';
import { deviceOf, dtypeOf } from '../device.ts';
import { memoryArguments, onlyGpus } from '../gpus.ts';
import { vllmTemporaryFolder, type Plan } from '../plan.ts';
import { engineFault } from './engine-fault.ts';

/** Returns our own vLLM. It listens on a Unix socket that no sandbox can reach, because its control routes have no authentication. */
export function engine(plan: Plan): Component {
  const { engineSocket: socket, config } = plan;
  const model = resolveModel(config.model);
  const temporary = vllmTemporaryFolder(config.home);
  const { dtype, why } = engineDtype(config);
  return {
    name: 'vllm',
    address: `unix:${socket}, model ${model}, ${dtype} (${why})`,
    needs: [],
    async prepare() {
      if (path.isAbsolute(model) && !existsSync(model)) {
        throw new TrialgateError(
          'missing_prerequisite',
          `the model ${model} is not there: run \`npx trialgate install\`, or name another with --model`,
        );
      }
      // A killed vLLM leaves its sockets and files.
      rmSync(temporary, { recursive: true, force: true });
      for (const folder of [path.dirname(socket), path.dirname(temporary), temporary]) {
        mkdirSync(folder, { recursive: true, mode: 0o700 });
        chmodSync(folder, 0o700);
      }
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
        dtype,
        '--disable-uvicorn-access-log',
        '--worker-extension-cls',
        'trialgate_gpu.vllm_extension.TrialgateWorker',
        ...headArguments(config.head_dtype),
        ...executorOn(deviceOf(config.device)),
        ...memoryArguments(plan.gpus, config.engine_args),
        ...config.engine_args,
      ],
      env: engineEnvironment(plan, model),
      cwd: plan.folders.home,
    }),
    isReady: async (_pid, signal) => existsSync(socket) && (await healthOf(socket, signal)) === 200,
    faultIn: engineFault,
    afterEnd: () => rmSync(temporary, { recursive: true, force: true }),
    isHealthy: async (signal) => (await healthOf(socket, signal)) !== 503,
    readyWithinMs: 900_000,
    stopSignal: 'SIGTERM',
    stopWithinMs: 10_000,
  };
}

/** Returns the dtype of our own vLLM. `engine_args` come last, so a `--dtype` in them is in force. */
export function engineDtype(config: Pick<Deployment, 'device' | 'dtype' | 'engine_args'>): {
  dtype: string;
  why: string;
} {
  const given = /(?:^| )--dtype[= ](\S+)/.exec(config.engine_args.join(' '))?.[1];
  return given === undefined ? dtypeOf(config) : { dtype: given, why: 'as engine_args say' };
}

/** Returns the arguments for our executor on a CPU. vLLM's own would spin on a second core and start a third process. */
export const executorOn = (device: 'cpu' | 'cuda'): string[] =>
  device === 'cpu' ? ['--distributed-executor-backend', 'trialgate_gpu.vllm_executor.InProcessExecutor'] : [];

/** Returns vLLM's arguments for the output head's dtype. A run with another `head_dtype` refuses this engine. */
export const headArguments = (dtype: 'model' | 'float32'): string[] =>
  dtype === 'float32' ? ['--hf-overrides', '{"head_dtype": "float32"}'] : [];

/** On a CPU, PyTorch would compile a few small functions of vLLM's sampler in C++ during the first request, which takes longer than thousands of their calls. */
export const NO_COMPILER = { TORCH_COMPILE_DISABLE: '1' };

function engineEnvironment(plan: Plan, model: string): NodeJS.ProcessEnv {
  const { cache } = plan.folders;
  const local = path.isAbsolute(model);
  const onCpu = deviceOf(plan.config.device) === 'cpu';
  return environment({
    VLLM_SERVER_DEV_MODE: '1',
    // The routes that load LoRA adapters, as the others a control route that only we can reach. They refuse unless --enable-lora is given.
    VLLM_ALLOW_RUNTIME_LORA_UPDATING: '1',
    PYTHONPATH: INSTALLS.gpuWorkers,
    ...(onCpu ? { VLLM_CPU_KVCACHE_SPACE: process.env['VLLM_CPU_KVCACHE_SPACE'] ?? '1', ...NO_COMPILER } : {}),
    ...onlyGpus(plan.gpus?.engine),
    ...(local ? { HF_HUB_OFFLINE: '1' } : {}),
    VLLM_NO_USAGE_STATS: '1',
    TMPDIR: vllmTemporaryFolder(plan.config.home),
    VLLM_CACHE_ROOT: INSTALLS.vllmCache,
    VLLM_CONFIG_ROOT: path.join(cache, 'vllm-config'),
    XDG_CACHE_HOME: cache,
    TRITON_CACHE_DIR: path.join(cache, 'triton'),
    TORCHINDUCTOR_CACHE_DIR: path.join(cache, 'inductor'),
    PYTHONUNBUFFERED: '1',
    // The times of all logs are in UTC, so that `trialgate logs` can put their lines in order.
    TZ: 'UTC',
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
