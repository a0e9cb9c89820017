/** A failure that a caller can tell apart by its code. The gateway maps `code` to a status, the CLI to an exit code. */
export class TrialgateError extends Error {
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'TrialgateError';
    this.code = code;
  }
}

export type ErrorCode =
  | 'bad_input'
  | 'not_found'
  | 'unauthorized'
  | 'attempt_closed'
  | 'reward_refused'
  | 'budget_exhausted'
  | 'missing_prerequisite'
  | 'engine_unavailable'
  | 'store_unavailable'
  | 'take_superseded'
  | 'pool_busy';
