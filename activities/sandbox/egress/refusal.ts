import { TrialgateError } from '../../../core/errors.ts';

/** The ways in which the egress proxy refuses, with the HTTP status of each. `failed`: the host is allowed, and could not be reached. */
export const STATUS = { bad_request: 400, forbidden: 403, failed: 502, busy: 503 } as const;

/** Thrown when the egress proxy does not connect a sandbox. Its message completes the sentence "refused: …". */
export class Refusal extends TrialgateError {
  readonly kind: keyof typeof STATUS;

  constructor(kind: keyof typeof STATUS, reason: string) {
    super('bad_input', reason);
    this.name = 'Refusal';
    this.kind = kind;
  }
}
