import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { parseDocument } from 'yaml';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import { resolvePaths } from '../../activities/run/resolve-paths.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { TrialgateError } from '../../core/errors.ts';
import { decodeUtf8 } from '../../core/utf8.ts';

/**
 * Reads a run file, YAML or JSON, and fills in every default. Relative paths are resolved from the file's folder.
 * @throws TrialgateError `bad_input` with the file, and the line or the field.
 */
export async function readRunFile(path: string, changes: Partial<RunConfig> = {}): Promise<RunConfig> {
  const bytes = await readFile(path).catch((error: unknown) => {
    throw new TrialgateError('bad_input', `cannot read the run file ${path}`, { cause: error });
  });
  const document = parseDocument(decodeUtf8(bytes, path));
  const [fault] = document.errors;
  if (fault) throw new TrialgateError('bad_input', `${path}: ${fault.message}`);
  const raw: unknown = document.toJS();
  if (raw === null || typeof raw !== 'object' || Array.isArray(raw)) {
    throw new TrialgateError(
      'bad_input',
      `${path}: expected settings such as "iterations: 3", found ${JSON.stringify(raw)}`,
    );
  }
  return resolvePaths(parseRunConfig({ ...raw, ...changes }, path), dirname(resolve(path)));
}
