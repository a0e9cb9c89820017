import { jsonReply } from './reply-formats.ts';
import { requestIdHeader } from './request-id.ts';
import type { Fault } from '../store/schema.ts';
import { isTransient } from '../core/transient.ts';
import { TrialgateError, type ErrorCode } from '../core/errors.ts';

/** The reason why a request fails: what the agent is told, and what is recorded. */
export class Failure extends Error {
  readonly status: number;
  /** A stable name in `snake_case`: the `code` of the reply's error and the start of the recorded reason. */
  readonly code: string;
  readonly headers: Record<string, string>;
  /** Fields that the reply has next to its error. */
  readonly beside: Record<string, unknown>;
  /** The body that the agent gets instead of the usual error envelope. */
  readonly body: Record<string, unknown> | null;
  /** The party that caused the failure, if the code does not say it (`faultOf`). */
  fault: Fault | null;
  /** The path of the invalid part of the request: `messages.3.content.1`. */
  readonly item: string | null;
  constructor(status: number, code: string, message: string, options: FailureOptions = {}) {
    super(message, { cause: options.cause });
    this.name = 'Failure';
    this.status = status;
    this.code = code;
    this.body = options.body ?? null;
    this.fault = options.fault ?? null;
    this.item = options.item ?? null;
    this.beside = options.beside ?? {};
    this.headers = { ...options.headers, ...(options.retryable === false ? { 'x-should-retry': 'false' } : {}) };
  }
}

type FailureOptions = {
  headers?: Record<string, string>;
  retryable?: boolean;
  body?: Record<string, unknown>;
  beside?: Record<string, unknown>;
  fault?: Fault;
  item?: string;
  cause?: unknown;
};

const STATUS: Record<ErrorCode, number> = {
  bad_input: 400,
  unauthorized: 401,
  not_found: 404,
  attempt_closed: 409,
  reward_refused: 409,
  take_superseded: 409,
  pool_busy: 409,
  budget_exhausted: 429,
  missing_prerequisite: 500,
  engine_unavailable: 503,
  store_unavailable: 503,
};

export function toFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  if (error instanceof TrialgateError) {
    const status = STATUS[error.code];
    return new Failure(status, error.code, error.message, {
      retryable: status >= 500 && error.code !== 'missing_prerequisite',
      cause: error,
    });
  }
  if (isTransient(error)) return storeUnavailable(error);
  return new Failure(500, 'internal_error', 'the gateway failed: its log has the reason', { cause: error });
}

export const storeUnavailable = (cause?: unknown) =>
  new Failure(503, 'store_unavailable', 'the database cannot be reached: nothing was lost, try again', {
    headers: { 'retry-after': '2' },
    cause,
  });

export const shuttingDown = () => new Failure(503, 'shutting_down', 'the gateway is stopping: try again');

export const engineSilent = (silentMs: number) =>
  new Failure(504, 'engine_timeout', `the engine was silent for ${silentMs / 1000} s`);

export const clientGone = () => new Failure(499, 'agent_disconnected', 'the agent closed its connection');

export const attemptClosed = (message: string) => new Failure(409, 'attempt_closed', message, { retryable: false });

export const attemptEnded = (trialId: string, attempt: number) =>
  attemptClosed(`attempt ${attempt} of trial ${trialId} has ended`);

/** Returns OpenAI's error envelope. */
export function errorBody({ status, code, message, body, beside }: Failure): Record<string, unknown> {
  return body ?? { ...beside, error: { message, type: errorType(status), param: null, code } };
}

type Envelope = { idHeader: string; errorBody: (failure: Failure) => Record<string, unknown> };

/** Returns the reply to a failed request. If it was a call, the reply carries the call's id. */
export function errorResponse(failure: Failure, protocol: Envelope | null = null): Response {
  const headers = { ...failure.headers, ...requestIdHeader(protocol, failure.headers['x-trialgate-call']) };
  return jsonReply((protocol?.errorBody ?? errorBody)(failure), headers, failure.status);
}

function errorType(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 429) return 'rate_limit_error';
  return status < 500 ? 'invalid_request_error' : 'server_error';
}
