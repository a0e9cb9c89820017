import { INSTALLS } from '../folders.ts';

/** A setting of a deployment. Its key is the YAML key; `variableOf` and `flagOf` give its other names. */
export type Setting = {
  about: string;
  placeholder: string;
  default?: unknown;
  secret?: true;
  /** How the text of a flag or variable becomes a value. Without it the text is the value. */
  from?: 'number' | 'boolean' | 'list';
};

/** The settings of a deployment. This file imports nothing that is slow to load, because `--help` reads it. */
export const SETTINGS = {
  home: { about: 'folder of the deployment: data, logs, checkpoints', placeholder: 'DIR', default: INSTALLS.root },
  device: { about: 'auto, cpu or cuda', placeholder: 'DEVICE', default: 'auto' },
  python: { about: 'Python 3.11 or newer that the installer uses', placeholder: 'PATH' },
  database_url: { about: 'a PostgreSQL that already runs, instead of our own', placeholder: 'URL', secret: true },
  temporal_address: { about: 'a Temporal that already runs, instead of our own', placeholder: 'HOST:PORT' },
  gateway_url: { about: 'where agents reach the gateway, when not at its host and port; of several, each attempt gets one that answers', placeholder: 'URL,URL', from: 'list' },
  gateway_host: { about: 'address that the gateway listens on', placeholder: 'HOST', default: '127.0.0.1' },
  gateway_port: { about: 'port of the gateway; 0: any free one', placeholder: 'PORT', default: 8700, from: 'number' },
  gateways: { about: 'gateway processes of a deployment, on gateway_port and those after it; each fills a processor core', placeholder: 'N', default: 1, from: 'number' },
  temporal_port: { about: 'port of Temporal; 0: any free one', placeholder: 'PORT', default: 7233, from: 'number' },
  temporal_ui_port: { about: "port of Temporal's web page; absent: no page", placeholder: 'PORT', from: 'number' },
  postgres_port: { about: 'port of PostgreSQL; 0: any free one', placeholder: 'PORT', default: 5433, from: 'number' },
  admin_key: { about: "key of the gateway's session routes; generated when absent", placeholder: 'KEY', secret: true },
  secret: { about: "derives the agents' keys; generated when absent", placeholder: 'SECRET', secret: true },
  engines: { about: 'engines that already run, instead of our own vLLM', placeholder: 'URL,URL', default: [], from: 'list' },
  model: { about: 'model that our own vLLM starts with', placeholder: 'NAME_OR_DIR', default: INSTALLS.smallModel },
  max_model_len: { about: 'longest sequence of our own vLLM, in tokens', placeholder: 'TOKENS', default: 2048, from: 'number' },
  head_dtype: { about: 'what the output head of our own vLLM computes in: `model` (bfloat16) or `float32`, as the run file says', placeholder: 'DTYPE', default: 'model' },
  engine_args: { about: 'more arguments of our own vLLM; for agents with tools: --enable-auto-tool-choice --tool-call-parser NAME', placeholder: 'ARGS', default: [] },
  token_in: { about: 'continue conversations from their recorded ids where the engine can', placeholder: 'BOOL', default: true, from: 'boolean' },
  budget_end: { about: "at a budget's end: `length` (an empty reply) or `refuse` (429)", placeholder: 'HOW', default: 'length' },
  strict_model: { about: "true: a model name that is not the policy's is 404", placeholder: 'BOOL', default: false, from: 'boolean' },
  hold_seconds: { about: 'how long a call waits for an engine in rotation', placeholder: 'SECONDS', default: 20, from: 'number' },
  idle_seconds: { about: 'how long an engine may be silent within a stream; before a reply it is then asked whether it is alive; and how long a call waits for a budget that others have reserved', placeholder: 'SECONDS', default: 600, from: 'number' },
  keep_alive_seconds: { about: 'how long a stream may bring its agent nothing before it gets a comment line', placeholder: 'SECONDS', default: 15, from: 'number' },
  store_wait_seconds: { about: 'how long a reply waits for PostgreSQL', placeholder: 'SECONDS', default: 10, from: 'number' },
  max_calls_in_flight: { about: 'calls and streams that one trial may have open at once', placeholder: 'N', default: 256, from: 'number' },
  conversation_memory_mb: { about: 'MiB of open trials\' conversations that each of a gateway\'s two threads may hold; others are read from PostgreSQL', placeholder: 'MB', default: 128, from: 'number' },
  max_body_bytes: { about: 'bytes of one request, once it is decoded', placeholder: 'BYTES', default: 32 * 2 ** 20, from: 'number' },
  max_body_nodes: { about: 'values and keys of one request, counted by brackets, commas and colons', placeholder: 'N', default: 500_000, from: 'number' },
  max_body_depth: { about: 'levels of one request, at most 500', placeholder: 'N', default: 500, from: 'number' },
  max_body_bytes_in_flight: { about: 'bytes that the bodies of open calls may hold together, in each of a gateway\'s two threads; one trial may hold a quarter', placeholder: 'BYTES', default: 256 * 2 ** 20, from: 'number' },
  compat: { about: "`verl`: sessions outside any run also open by their URL alone, for verl-recipe PR 83's client", placeholder: 'WHOSE', default: 'none' },
  unsandboxed: { about: 'let agents run where bubblewrap is missing or does not work: docs/threat-model.md lists the guarantees that are then missing', placeholder: 'BOOL', default: false, from: 'boolean' },
  max_sandboxes: { about: 'sandboxes that one worker holds at once', placeholder: 'N', default: 64, from: 'number' },
  sandboxes_per_second: { about: 'sandboxes that one worker opens each second, at most', placeholder: 'N', default: 20, from: 'number' },
} as const satisfies Record<string, Setting>;

export type SettingKey = keyof typeof SETTINGS;

export const SETTING_KEYS = Object.keys(SETTINGS).filter((key): key is SettingKey => key in SETTINGS);

export const settingOf = (key: SettingKey): Setting => SETTINGS[key];
export const variableOf = (key: SettingKey): string => `TRIALGATE_${key.toUpperCase()}`;
export const flagOf = (key: SettingKey): string => `--${key.replaceAll('_', '-')}`;
