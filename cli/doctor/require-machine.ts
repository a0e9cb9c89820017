import { TrialgateError } from '../../core/errors.ts';
import type { ResolvedConfig } from '../config/resolve.ts';
import { inOneMessage } from '../prerequisites.mjs';
import { livingState } from '../supervisor/state.ts';
import { examine, NEEDED_TO_START } from './examine.ts';

/**
 * Examines, before the minutes of installing, what this machine must have to install and start a deployment that does not run yet.
 * @throws TrialgateError `missing_prerequisite` with all that is missing
 */
export async function requireMachine(
  asked: Pick<ResolvedConfig, 'config' | 'origins'>,
  { installs }: { installs: boolean } = { installs: true },
): Promise<void> {
  if (livingState(asked.config.home)) return;
  const findings = await examine(asked, { only: NEEDED_TO_START, installs });
  const lacks = findings.flatMap(({ result, finding }) => (result === 'missing' ? [finding] : []));
  if (lacks.length > 0) throw new TrialgateError('missing_prerequisite', inOneMessage(lacks));
}
