import type { ProtocolName } from '../../store/schema.ts';

/** Where a client speaks to, and the folders that are its own. */
export type Place = {
  /** The gateway with the trial, without `/v1`. */
  trialUrl: string;
  key: string;
  home: string;
  /** Its working folder, within its home. */
  work: string;
  /** Where it is installed. */
  folder: string;
  /** Where the scripts of this repository's tests lie. */
  scripts: string;
};

export type Start = {
  file: string;
  args: string[];
  env?: Record<string, string>;
  /** What its home has to hold, by path. */
  files?: Record<string, string>;
  /** Where its working folder finds packages: a link to this `node_modules`. */
  packages?: string;
};

/** One way to use a client. Its prompt holds the name in parentheses, so that its calls are told from others. */
export type Mode = {
  name: string;
  /** What a model that follows says at each turn; without it the client's `says`. */
  says?: readonly string[];
  /** How many of its calls a grammar or a forced tool makes useless for training; none where it is absent. */
  constrained?: number;
};

/** A lock of `python/`, several packages of npm in a folder of that name, one of this repository's own packages, or a program of the machine. */
export type Install = { python: 'sdks' | 'litellm' | 'aider' } | { npm: readonly string[]; folder: string } | { own: string } | { program: string; why: string };

/** A program of others that talks to a model. */
export type Client = {
  name: string;
  /** Absent where a package or the machine's own program says it. */
  version?: string;
  protocol: ProtocolName;
  install: Install;
  /** Runs these modes, one after the other. */
  start: (place: Place, modes: readonly string[]) => Start;
  modes: readonly Mode[];
  /** It runs one mode at a time. */
  oneMode?: boolean;
  /** It sends HTTP in forms that a proxy would change. */
  direct?: boolean;
  /** The tests ask vLLM itself for what it asks. */
  besideVllm?: boolean;
  /** Whether what it asks without tools is beside its conversation. */
  bringsTools: boolean;
  /** Each of its calls is a branch: it writes its history anew at each turn, or asks once. */
  branches?: boolean;
  /** Whether it ends by an error where the model's reply is a few tokens that call nothing. */
  givesUp?: boolean;
  /** What a model that follows says at each turn of its conversation. */
  says: readonly string[];
};

/** The mode in which the connection breaks once before a reply: a client that tries again sends the request a second time. */
export const RETRY = 'retry';

export const asking = (mode: string): string => `Look into the folder (${mode}), then say what you saw.`;

/** The mode that a request belongs to. */
export const modeIn = ({ modes }: Pick<Client, 'modes'>, request: string): Mode | null => modes.find(({ name }) => request.includes(`(${name})`)) ?? null;
