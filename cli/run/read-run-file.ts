import { readFile, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { parseDocument, type Document } from 'yaml';
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
  const document = parseDocument(decodeUtf8(bytes, path));
  const [fault] = document.errors;
  if (fault) throw new TrialgateError('bad_input', `${path}: ${fault.message}`);
  const raw = valueOf(document, path);
  if (raw === null || typeof raw !== 'object' || Array.isArray(raw)) {
    throw new TrialgateError(
      'bad_input',
      `${path}: expected settings such as "iterations: 3", found ${JSON.stringify(raw)}`,
    );
  }
  return raw;
}

/** An alias can name nothing, or too much. The document alone does not have that as a fault. */
function valueOf(document: Document, path: string): unknown {
  try {
    return document.toJS();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new TrialgateError('bad_input', `${path}: ${why}`, { cause: error });
  }
}

async function whyUnread(path: string): Promise<string> {
  const found = await stat(path).catch(() => null);
  if (found === null) return `there is no run file ${path}${await meantPath(path)}`;
  return found.isDirectory()
    ? `${path} is a folder: name the run file in it, such as ${join(path, 'run.yaml')}`
    : `cannot read the run file ${path}`;
}
