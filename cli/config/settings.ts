import { GATEWAY_SETTINGS, variableOf as variableOfKey } from '../../gateway/settings.ts';
import { INSTALLS } from '../folders.ts';

/** A setting of a deployment. Its key is the YAML key; `variableOf` and `flagOf` give its other names. */
export type Setting = {
  about: string;
  placeholder: string;
  default?: unknown;
  secret?: true;
  /** The type to which the text of a flag or variable is converted. Without it the text itself is the value. */
  from?: 'number' | 'boolean' | 'list';
};

/** The settings of a deployment. `--help` reads this file, so of what it imports only zod takes time to load. */
export const SETTINGS = {
  home: { about: 'folder of the deployment: data, logs, checkpoints', placeholder: 'DIR', default: INSTALLS.root },
  device: { about: 'auto, cpu or cuda', placeholder: 'DEVICE', default: 'auto' },
  dtype: {
    about:
      "number format in which the deployment's vLLM and trainer compute: auto, bfloat16 or float32; auto is float32 on a processor without instructions for bfloat16",
    placeholder: 'DTYPE',
    default: 'auto',
  },
  python: { about: 'Python 3.11 or newer that the installer uses', placeholder: 'PATH' },
  database_url: {
    about: "a PostgreSQL that already runs, in place of the deployment's own",
    placeholder: 'URL',
    secret: true,
  },
  temporal_address: {
    about: "a Temporal that already runs, in place of the deployment's own",
    placeholder: 'HOST:PORT',
  },
  gateway_url: {
    about:
      'address at which agents reach the gateway (default: its host and port); of several, each attempt gets one that answers',
    placeholder: 'URL,URL',
    from: 'list',
  },
  gateway_host: { about: 'address that the gateway listens on', placeholder: 'HOST', default: '127.0.0.1' },
  gateway_port: { about: 'port of the gateway; 0: any free one', placeholder: 'PORT', default: 8700, from: 'number' },
  gateways: {
    about: 'number of gateway processes, on gateway_port and the ports after it; each can use a whole processor core',
    placeholder: 'N',
    default: 1,
    from: 'number',
  },
  temporal_port: { about: 'port of Temporal; 0: any free one', placeholder: 'PORT', default: 7233, from: 'number' },
  temporal_ui_port: { about: "port of Temporal's web page; absent: no page", placeholder: 'PORT', from: 'number' },
  postgres_port: { about: 'port of PostgreSQL; 0: any free one', placeholder: 'PORT', default: 5433, from: 'number' },
  admin_key: { about: "key of the gateway's session routes; generated when absent", placeholder: 'KEY', secret: true },
  read_key: {
    about: 'a second key of the page and of the routes that read, which changes nothing; absent: there is none',
    placeholder: 'KEY',
    secret: true,
  },
  secret: { about: "derives the agents' keys; generated when absent", placeholder: 'SECRET', secret: true },
  engines: {
    about: "engines that already run, in place of the deployment's own vLLM",
    placeholder: 'URL,URL',
    default: [],
    from: 'list',
  },
  engine_keys: {
    about:
      'API keys of `openai+` engines: HOST=VARIABLE names the environment variable that has the key of the engine at this host, HOST=/path the file',
    placeholder: 'HOST=VARIABLE,…',
    default: [],
    from: 'list',
    // A person may give the key itself by mistake.
    secret: true,
  },
  trainer_keys: {
    about:
      'API keys of trainer servers: HOST=VARIABLE names the environment variable that has the key of the server at this host, HOST=/path the file',
    placeholder: 'HOST=VARIABLE,…',
    default: [],
    from: 'list',
    // A person may give the key itself by mistake.
    secret: true,
  },
  engine_gpus: {
    about: "GPUs of the deployment's own vLLM, as in CUDA_VISIBLE_DEVICES (default: the first ones)",
    placeholder: 'N,N',
    from: 'list',
  },
  trainer_gpus: {
    about: 'GPUs of the trainer, one a rank (default: those after the engine’s; all when there are too few)',
    placeholder: 'N,N',
    from: 'list',
  },
  ranks: {
    about: 'processes that the trainer divides a model over, one a GPU',
    placeholder: 'N',
    default: 1,
    from: 'number',
  },
  launch: {
    about:
      "command that starts the trainer's ranks; `{python}` and `{ranks}` are filled in (default: torchrun on this machine)",
    placeholder: 'COMMAND',
  },
  group_address: {
    about: 'address at which ranks on other machines reach the GPU worker',
    placeholder: 'HOST:PORT',
  },
  pack_tokens: {
    about: 'tokens that the trainer computes at once (default 2048 on a CPU, 16384 on a GPU)',
    placeholder: 'TOKENS',
    from: 'number',
  },
  activation_checkpointing: {
    about: "compute a layer's activations again in the backward pass: less memory, about a third more time",
    placeholder: 'BOOL',
    default: false,
    from: 'boolean',
  },
  cpu_offload: {
    about: "keep a rank's weights and moments in main memory (FSDP2)",
    placeholder: 'BOOL',
    default: false,
    from: 'boolean',
  },
  trainer_threads: {
    about: 'CPU threads of a rank (default: its share of what the GPU worker may use)',
    placeholder: 'N',
    from: 'number',
  },
  peak_tflops: {
    about: "a device's dense bfloat16 TFLOP/s, for the metric MFU (default: those of known NVIDIA GPUs)",
    placeholder: 'TFLOPS',
    from: 'number',
  },
  metrics_address: {
    about:
      'address at which a worker answers Prometheus at /metrics; of a deployment, the workflow worker there, the activity worker and the GPU worker at the next two ports (default: nowhere)',
    placeholder: 'HOST:PORT',
  },
  log_format: {
    about:
      "form of the logs: text, json (a record a line), or auto: json in a deployment's log files, text of a process that you start yourself",
    placeholder: 'FORMAT',
    default: 'auto',
  },
  engines_file: {
    about:
      'file with a list of engines, JSON or YAML (`- http://host:port`, or `- {url: …, drain: true}`), which the gateways read again as it changes',
    placeholder: 'PATH',
  },
  engines_kubernetes: {
    about: 'label selector of the pods in Kubernetes that are engines, such as app=vllm; the gateways follow them',
    placeholder: 'SELECTOR',
  },
  engines_kubernetes_namespace: {
    about: "namespace of these pods (default: that of the gateway's pod)",
    placeholder: 'NAME',
  },
  engines_kubernetes_port: {
    about: 'port on which the engine of each pod listens',
    placeholder: 'PORT',
    default: 8000,
    from: 'number',
  },
  engines_kubernetes_api: {
    about:
      "address at which Kubernetes' API server needs no key, as through `kubectl proxy`; absent: the gateway runs in a pod, and uses its service account",
    placeholder: 'URL',
  },
  model: {
    about: "model that the deployment's vLLM starts with",
    placeholder: 'NAME_OR_DIR',
    default: INSTALLS.smallModel,
  },
  max_model_len: {
    about: "longest sequence of the deployment's vLLM, in tokens",
    placeholder: 'TOKENS',
    default: 2048,
    from: 'number',
  },
  head_dtype: {
    about:
      "dtype in which the output head of the deployment's vLLM computes: `model` (that of the model, see dtype) or `float32`; must equal the run file's",
    placeholder: 'DTYPE',
    default: 'model',
  },
  engine_args: {
    about:
      "further arguments of the deployment's vLLM; for agents with tools: --enable-auto-tool-choice --tool-call-parser NAME",
    placeholder: 'ARGS',
    default: [],
  },
  ...GATEWAY_SETTINGS,
  unsandboxed: {
    about:
      'let agents run without bubblewrap where it does not work; docs/threat-model.md lists the guarantees that are then missing',
    placeholder: 'BOOL',
    default: false,
    from: 'boolean',
  },
  max_sandboxes: { about: 'sandboxes that one worker holds at once', placeholder: 'N', default: 64, from: 'number' },
  sandboxes_per_second: {
    about: 'sandboxes that one worker opens each second, at most',
    placeholder: 'N',
    default: 20,
    from: 'number',
  },
  warm_sandboxes: {
    about: 'sandboxes that one worker starts before trials ask for them, for kinds whose start takes long (container)',
    placeholder: 'N',
    default: 0,
    from: 'number',
  },
  wait_for_memory: {
    about: 'let new trials wait while the host of a worker is short of memory',
    placeholder: 'BOOL',
    default: true,
    from: 'boolean',
  },
} as const satisfies Record<string, Setting>;

export type SettingKey = keyof typeof SETTINGS;

/** The settings that tell the gateways where else than in a list they find engines. */
export const DISCOVERY_KEYS = [
  'engines_file',
  'engines_kubernetes',
  'engines_kubernetes_namespace',
  'engines_kubernetes_port',
  'engines_kubernetes_api',
] as const satisfies SettingKey[];

/** The settings of the GPU worker's ranks. */
export const RANK_KEYS = [
  'trainer_gpus',
  'ranks',
  'launch',
  'group_address',
  'pack_tokens',
  'activation_checkpointing',
  'cpu_offload',
  'trainer_threads',
  'peak_tflops',
] as const satisfies SettingKey[];

export const SETTING_KEYS = Object.keys(SETTINGS).filter((key): key is SettingKey => key in SETTINGS);

export const settingOf = (key: SettingKey): Setting => SETTINGS[key];
export const variableOf: (key: SettingKey) => string = variableOfKey;
export const flagOf = (key: SettingKey): string => `--${key.replaceAll('_', '-')}`;
