import { TrialgateError } from '../../store/errors.ts';

/** A healthy sandbox, but no valid reward: the outcome is `verifier_error`. */
export class VerifierError extends TrialgateError {
  constructor(message: string, options?: ErrorOptions) {
    super('bad_input', message, options);
    this.name = 'VerifierError';
  }
}

/** The host could not give a sandbox (disk full, no permission): the outcome is `infra_error`; run it again. */
export class SandboxError extends TrialgateError {
  constructor(message: string, options?: ErrorOptions) {
    super('missing_prerequisite', message, options);
    this.name = 'SandboxError';
  }
}

/** Runs file work of the host itself; its failure is the host's, never the agent's. */
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
