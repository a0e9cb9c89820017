import type { TrialNow } from '../../store/queries/find-trials.ts';
import type { ModelRequest } from '../protocols/model-request.ts';
import type { Retry } from '../record/retry.ts';

/** `size` is the body's number of bytes, `client` the client's `User-Agent`, `traceparent` names the client's span. */
export type ReceivedRequest = ModelRequest & {
  size: number;
  client: string | null;
  traceparent: string | null;
  retry: Retry;
};

/** The connection of the client. */
export type AgentConnection = {
  /** Aborts when the client leaves. */
  signal: AbortSignal;
  /** Breaks the connection, for a runtime in which an unfinished body does not. */
  cut: (() => Promise<void>) | undefined;
  /** Resolves when the reply has ended: true if the client received all of it. */
  delivered: () => Promise<boolean>;
};

/** A request of the model as it enters the pipeline: its key opens an attempt of the trial, its body is read and admitted. */
export type ReceivedCall = {
  trial: TrialNow;
  request: ReceivedRequest;
  agent: AgentConnection;
  /** Reads the trial again after a wait. Throws when its attempt has ended. */
  reopen: () => Promise<TrialNow>;
  /** Gives back the request's part of the trial's admission. May be called more than once. */
  release: () => void;
};
