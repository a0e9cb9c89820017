import type { ProtocolName } from '../../store/schema.ts';
import type { JsonObject } from '../../gateway/json.ts';

/** The address that a client speaks to, and its own folders. */
export type Place = {
  /** The gateway's URL with the trial, without `/v1`. */
  trialUrl: string;
  key: string;
  home: string;
  /** The working folder, within its home. */
  work: string;
  /** The folder in which it is installed. */
  folder: string;
  /** The folder of this repository's test scripts. */
  scripts: string;
};

export type Start = {
  file: string;
  args: string[];
  env?: Record<string, string>;
  /** Files that its home must have, by path. */
  files?: Record<string, string>;
  /** A `node_modules` that the working folder links to. */
  packages?: string;
};

/** One way to use a client. Its prompt contains the name in parentheses, which identifies its calls. */
export type Mode = {
  name: string;
  /** The replies of a model that follows instructions, one a turn. If absent, the client's `says`. */
  says?: readonly string[];
  /** The replies in a second conversation of the mode, which begins with another message. If absent, those of the first. */
  saysLater?: readonly string[];
  /** The number of its calls that a grammar or a forced tool makes untrainable; 0 if absent. */
  constrained?: number;
};

/** The source of the client: a lock of `python/` or of `npm/`, one of this repository's own packages, or a program of the machine. */
export type Install =
  | { python: 'sdks' | 'litellm' | 'aider' | 'google' | 'crewai' | 'llama-index' | 'google-adk' }
  | { npm: 'js-sdks' | 'claude-code' | 'codex' | 'gemini-cli' | 'opencode' }
  | { own: string }
  | { program: string; why: string };

/** A program by others that talks to a model. */
export type Client = {
  name: string;
  /** The version. Absent when a package or the machine's own program reports it. */
  version?: string;
  protocol: ProtocolName;
  install: Install;
  /** Runs these modes one after the other. */
  start: (place: Place, modes: readonly string[]) => Start;
  modes: readonly Mode[];
  /** True when it runs one mode at a time. */
  oneMode?: boolean;
  /** True when it sends HTTP in forms that a proxy would change. */
  direct?: boolean;
  /** True when the tests also send its requests to vLLM itself. */
  besideVllm?: boolean;
  /** True when its conversations have tools. Then a request without tools is beside them, such as one for a title. */
  bringsTools: boolean;
  /** True when each of its calls is a branch: it rewrites its history at each turn, or asks only once. */
  branches?: boolean;
  /** True when it ends with an error if the model's reply is a few tokens without a tool call. */
  givesUp?: boolean;
  /** The replies of a model that follows instructions, one for each turn of its conversation. */
  says: readonly string[];
};

/** The mode in which the connection breaks once before a reply. A client that retries sends the request a second time. */
export const RETRY = 'retry';

export const asking = (mode: string): string => `Look into the folder (${mode}), then say what you saw.`;

/** Returns the mode of a request. */
export const modeIn = ({ modes }: Pick<Client, 'modes'>, request: string): Mode | null =>
  modes.find(({ name }) => request.includes(`(${name})`)) ?? null;

/** True when a request is beside the client's conversation in this mode, such as one for a title. */
export const isBeside = (client: Pick<Client, 'bringsTools'>, mode: Mode | null, { tools }: JsonObject): boolean =>
  client.bringsTools && !mode?.says && !(Array.isArray(tools) && tools.length > 0);
