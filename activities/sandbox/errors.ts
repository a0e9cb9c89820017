import { TrialgateError } from '../../core/errors.ts';

/**
 * The reason why a verification gave no reward. `killed`: a signal ended the verifier. `ended_early`: it reached a limit. `no_reward`: it
 * wrote no valid reward. `too_much`: the work is too large to be judged.
 */
export type VerifierFailure = 'killed' | 'ended_early' | 'no_reward' | 'too_much';

/** The sandbox is healthy but there is no valid reward. `judgeWork` decides whether the verifier or the judged work caused it. */
export class VerifierError extends TrialgateError {
  readonly failure: VerifierFailure;
  constructor(message: string, failure: VerifierFailure = 'no_reward') {
    super('bad_input', message);
    this.name = 'VerifierError';
    this.failure = failure;
  }
}

/** The host could not make a sandbox (disk full, no permission). The outcome is `infra_error`, and the trial runs again. */
export class SandboxError extends TrialgateError {
  constructor(message: string, options?: ErrorOptions) {
    super('missing_prerequisite', message, options);
    this.name = 'SandboxError';
  }
}

/** Runs file work of the host. Its failure is the host's fault, never the agent's. */
export async function hostWork<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof TrialgateError) throw error;
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    const hint = ['ENOSPC', 'EDQUOT'].includes(code) ? 'the disk is full; free some space' : String(error);
    throw new SandboxError(`${what}: ${hint}`, { cause: error });
  }
}
