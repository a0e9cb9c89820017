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
  secret: { about: "derives the agents' keys; generated when absent", placeholder: 'SECRET', secret: true },
  engines: {
    about: "engines that already run, in place of the deployment's own vLLM",
    placeholder: 'URL,URL',
    default: [],
    from: 'list',
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
      "dtype in which the output head of the deployment's vLLM computes: `model` (bfloat16) or `float32`; must equal the run file's",
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
} as const satisfies Record<string, Setting>;

export type SettingKey = keyof typeof SETTINGS;

export const SETTING_KEYS = Object.keys(SETTINGS).filter((key): key is SettingKey => key in SETTINGS);

export const settingOf = (key: SettingKey): Setting => SETTINGS[key];
export const variableOf: (key: SettingKey) => string = variableOfKey;
export const flagOf = (key: SettingKey): string => `--${key.replaceAll('_', '-')}`;
