import { readFile, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { parseDocument } from 'yaml';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import { resolvePaths } from '../../activities/run/resolve-paths.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { TrialgateError } from '../../core/errors.ts';
import { meantPath } from '../../core/nearest-path.ts';
import { decodeUtf8 } from '../../core/utf8.ts';

/**
 * Reads a run file, YAML or JSON, and fills in every default. Relative paths are resolved from the file's folder.
 * @throws TrialgateError `bad_input` with the file, and the line or the field.
 */
export async function readRunFile(path: string, changes: Partial<RunConfig> = {}): Promise<RunConfig> {
  return resolvePaths(parseRunConfig({ ...(await readSettings(path)), ...changes }, path), dirname(resolve(path)));
}

/**
 * Reads the settings of a run file as they are written, whatever they are.
 * @throws TrialgateError `bad_input` with the file, and the line if it has one
 */
export async function readSettings(path: string): Promise<object> {
  const bytes = await readFile(path).catch(async (error: unknown) => {
    throw new TrialgateError('bad_input', await whyUnread(path), { cause: error });
  });
  return parseSettings(decodeUtf8(bytes, path), path);
}

/**
 * Parses the settings in the text of a run file, whatever they are.
 * @param path what messages call the file
 * @throws TrialgateError `bad_input` with the line if it has one
 */
export function parseSettings(text: string, path: string): object {
  const raw = valueOf(text, path);
  if (raw === null || typeof raw !== 'object' || Array.isArray(raw)) {
    throw new TrialgateError(
      'bad_input',
      `${path}: expected settings such as "iterations: 3", found ${JSON.stringify(raw)}`,
    );
  }
  return raw;
}

function valueOf(text: string, path: string): unknown {
  try {
    const document = parseDocument(text);
    const [fault] = document.errors;
    if (fault) throw fault;
    // An alias can name nothing, too much, or what it is in. The document alone does not have that as a fault.
    const value: unknown = document.toJS();
    requireEnd(value, new Set());
    return value;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    const isTooDeep = why.startsWith('Maximum call stack size exceeded');
    throw new TrialgateError('bad_input', `${path}: ${isTooDeep ? 'it is nested too deep' : why}`, { cause: error });
  }
}

/** Refuses a value that contains itself. */
function requireEnd(value: unknown, outer: Set<object>): void {
  if (typeof value !== 'object' || value === null) return;
  if (outer.has(value)) throw new Error('an alias is within what it names: write out what is meant');
  outer.add(value);
  for (const each of Object.values(value)) requireEnd(each, outer);
  outer.delete(value);
}

async function whyUnread(path: string): Promise<string> {
  const found = await stat(path).catch(() => null);
  if (found === null) return `there is no run file ${path}${await meantPath(path)}`;
  return found.isDirectory()
    ? `${path} is a folder: name the run file in it, such as ${join(path, 'run.yaml')}`
    : `cannot read the run file ${path}`;
}
