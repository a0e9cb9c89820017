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

/** The settings of a deployment. This file imports nothing that is slow to load, because `--help` reads it. */
export const SETTINGS = {
  home: { about: 'folder of the deployment: data, logs, checkpoints', placeholder: 'DIR', default: INSTALLS.root },
  device: { about: 'auto, cpu or cuda', placeholder: 'DEVICE', default: 'auto' },
  python: { about: 'Python 3.11 or newer that the installer uses', placeholder: 'PATH' },
  database_url: { about: 'a PostgreSQL that already runs, in place of the deployment\'s own', placeholder: 'URL', secret: true },
  temporal_address: { about: 'a Temporal that already runs, in place of the deployment\'s own', placeholder: 'HOST:PORT' },
  gateway_url: { about: 'address at which agents reach the gateway (default: its host and port); of several, each attempt gets one that answers', placeholder: 'URL,URL', from: 'list' },
  gateway_host: { about: 'address that the gateway listens on', placeholder: 'HOST', default: '127.0.0.1' },
  gateway_port: { about: 'port of the gateway; 0: any free one', placeholder: 'PORT', default: 8700, from: 'number' },
  gateways: { about: 'number of gateway processes, on gateway_port and the ports after it; each can use a whole processor core', placeholder: 'N', default: 1, from: 'number' },
  temporal_port: { about: 'port of Temporal; 0: any free one', placeholder: 'PORT', default: 7233, from: 'number' },
  temporal_ui_port: { about: "port of Temporal's web page; absent: no page", placeholder: 'PORT', from: 'number' },
  postgres_port: { about: 'port of PostgreSQL; 0: any free one', placeholder: 'PORT', default: 5433, from: 'number' },
  admin_key: { about: "key of the gateway's session routes; generated when absent", placeholder: 'KEY', secret: true },
  secret: { about: "derives the agents' keys; generated when absent", placeholder: 'SECRET', secret: true },
  engines: { about: 'engines that already run, in place of the deployment\'s own vLLM', placeholder: 'URL,URL', default: [], from: 'list' },
  model: { about: 'model that the deployment\'s vLLM starts with', placeholder: 'NAME_OR_DIR', default: INSTALLS.smallModel },
  max_model_len: { about: 'longest sequence of the deployment\'s vLLM, in tokens', placeholder: 'TOKENS', default: 2048, from: 'number' },
  head_dtype: { about: 'dtype in which the output head of the deployment\'s vLLM computes: `model` (bfloat16) or `float32`; must equal the run file\'s', placeholder: 'DTYPE', default: 'model' },
  engine_args: { about: 'further arguments of the deployment\'s vLLM; for agents with tools: --enable-auto-tool-choice --tool-call-parser NAME', placeholder: 'ARGS', default: [] },
  token_in: { about: 'continue conversations from their recorded ids where the engine can', placeholder: 'BOOL', default: true, from: 'boolean' },
  budget_end: { about: "at a budget's end: `length` (an empty reply) or `refuse` (429)", placeholder: 'HOW', default: 'length' },
  strict_model: { about: "true: answer 404 to a model name other than the policy's", placeholder: 'BOOL', default: false, from: 'boolean' },
  hold_seconds: { about: 'seconds that a call waits for an engine in rotation', placeholder: 'SECONDS', default: 20, from: 'number' },
  idle_seconds: { about: 'seconds that an engine may be silent within a stream (before a reply, the gateway then checks that it is alive), and that a call waits for a reserved budget', placeholder: 'SECONDS', default: 600, from: 'number' },
  keep_alive_seconds: { about: 'seconds without a token after which a stream sends its agent a comment line', placeholder: 'SECONDS', default: 15, from: 'number' },
  store_wait_seconds: { about: 'seconds that a reply waits for PostgreSQL', placeholder: 'SECONDS', default: 10, from: 'number' },
  max_calls_in_flight: { about: 'calls that one trial may have open at once', placeholder: 'N', default: 256, from: 'number' },
  conversation_memory_mb: { about: 'MiB of open trials\' conversations that each of a gateway\'s two threads may hold; others are read from PostgreSQL', placeholder: 'MB', default: 128, from: 'number' },
  max_body_bytes: { about: 'largest request in bytes, after decoding', placeholder: 'BYTES', default: 32 * 2 ** 20, from: 'number' },
  max_body_nodes: { about: 'most values and keys of one request, counted by brackets, commas and colons', placeholder: 'N', default: 500_000, from: 'number' },
  max_body_depth: { about: 'deepest nesting of one request, at most 500', placeholder: 'N', default: 500, from: 'number' },
  max_body_bytes_in_flight: { about: 'bytes that the bodies of all open calls may have together, in each of a gateway\'s two threads; one trial may have a quarter', placeholder: 'BYTES', default: 256 * 2 ** 20, from: 'number' },
  compat: { about: "`verl`: sessions outside any run also open by their URL, without a key, for verl-recipe PR 83's client", placeholder: 'WHOSE', default: 'none' },
  unsandboxed: { about: 'let agents run without bubblewrap where it does not work; docs/threat-model.md lists the guarantees that are then missing', placeholder: 'BOOL', default: false, from: 'boolean' },
  max_sandboxes: { about: 'sandboxes that one worker holds at once', placeholder: 'N', default: 64, from: 'number' },
  sandboxes_per_second: { about: 'sandboxes that one worker opens each second, at most', placeholder: 'N', default: 20, from: 'number' },
} as const satisfies Record<string, Setting>;

export type SettingKey = keyof typeof SETTINGS;

export const SETTING_KEYS = Object.keys(SETTINGS).filter((key): key is SettingKey => key in SETTINGS);

export const settingOf = (key: SettingKey): Setting => SETTINGS[key];
export const variableOf = (key: SettingKey): string => `TRIALGATE_${key.toUpperCase()}`;
export const flagOf = (key: SettingKey): string => `--${key.replaceAll('_', '-')}`;
