import { TrialgateError } from '../../core/errors.ts';
import { RUN_ID } from '../../core/ids.ts';

/** Returns a default name for a run: the name it comes from, and the time. */
export function defaultRunName(from: string): string {
  const stem = from.replace(/[^A-Za-z0-9._-]/g, '-').replace(/^[^A-Za-z0-9]+/, '') || 'run';
  return `${stem.slice(0, 40)}-${new Date().toISOString().slice(2, 19).replace(/[-:T]/g, '')}`;
}

export type Policy = { runId: string; version: number };

/** Parses a policy version: `first@2` is version 2 of run `first`. @throws TrialgateError `bad_input` */
export function parsePolicy(text: string): Policy {
  const { runId, version } = parseRunOrPolicy(text);
  if (version === undefined)
    throw new TrialgateError(
      'bad_input',
      `expected a policy version such as ${text || 'first'}@2, found ${JSON.stringify(text)}`,
    );
  return { runId, version };
}

/** Parses `first` or `first@2`. @throws TrialgateError `bad_input` */
export function parseRunOrPolicy(text: string): { runId: string; version?: number } {
  const [, runId = '', version] = /^([^@]*)(?:@(\d+))?$/.exec(text) ?? [];
  if (!RUN_ID.test(runId))
    throw new TrialgateError('bad_input', `expected a run such as first, or first@2, found ${JSON.stringify(text)}`);
  return version === undefined ? { runId } : { runId, version: Number(version) };
}
