import { TrialgateError } from '../core/errors.ts';

export const EXIT = {
  done: 0,
  attackPays: 1,
  badInput: 2,
  missingPrerequisite: 3,
  failed: 4,
  interrupted: 130,
} as const;

/** The user interrupted the verb. */
export class Interrupted extends Error {
  constructor() {
    super('interrupted');
    this.name = 'Interrupted';
  }
}

/** True for an interruption, also as the cause of another error: aborted timers and streams wrap the reason. */
const isInterruption = (error: unknown): boolean =>
  error instanceof Interrupted || (error instanceof Error && error.cause instanceof Interrupted);

/** Returns the exit code of a failure. No other place decides it. */
export function exitCodeOf(error: unknown): number {
  if (isInterruption(error)) return EXIT.interrupted;
  if (!(error instanceof TrialgateError)) return EXIT.failed;
  switch (error.code) {
    case 'bad_input':
    case 'not_found':
    case 'unauthorized':
      return EXIT.badInput;
    case 'missing_prerequisite':
      return EXIT.missingPrerequisite;
    default:
      return EXIT.failed;
  }
}

/** Prints the failure as a sentence, with its stack only if TRIALGATE_DEBUG=1. Returns the exit code. */
export function report(error: unknown): number {
  if (isInterruption(error)) console.error('interrupted');
  else console.error(`error: ${error instanceof Error ? error.message || error.name : String(error)}`);
  if (process.env['TRIALGATE_DEBUG'] === '1' && error instanceof Error) console.error(error.stack, error.cause ?? '');
  return exitCodeOf(error);
}
