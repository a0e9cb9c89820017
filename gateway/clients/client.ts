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
};

/** A program of others that talks to a model. */
export type Client = {
  name: string;
  protocol: ProtocolName;
  /** From where it comes; `own`: it is among this repository's own packages. */
  install: { pip: readonly string[] } | { npm: string } | { own: string };
  start: (place: Place) => Start;
  /** Whether what it asks without tools is beside its conversation. */
  bringsTools: boolean;
  /** Whether it writes its history anew at each turn: then each is a branch. */
  rewrites?: boolean;
  /** Whether it ends by an error where the model's reply is a few tokens that call nothing. */
  givesUp?: boolean;
  /** What a model that follows says at each turn of its conversation. */
  says: readonly string[];
};
