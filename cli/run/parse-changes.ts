import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { parse } from 'yaml';
import { mergeSettings } from '../../core/run-config/merge-settings.ts';
import { TrialgateError } from '../../core/errors.ts';

/** Keys whose values are folders. A relative one is resolved from where the command runs. */
const FOLDERS = ['tasks', 'evaluation.tasks'];

/**
 * Parses settings of a run file from the command line. Each is `key=value`, with dots for sections and the value in YAML.
 * @throws TrialgateError `bad_input`
 */
export function parseChanges(settings: string[], cwd: string = process.cwd()): Record<string, unknown> {
  return settings.map((each) => parseChange(each, cwd)).reduce(mergeSettings, {});
}

function parseChange(setting: string, cwd: string): Record<string, unknown> {
  const [key, ...rest] = setting.split('=');
  const path = (key ?? '').split('.');
  if (rest.length === 0 || path.some((part) => !/^\w+$/.test(part))) {
    throw new TrialgateError('bad_input', `expected a setting such as optim.lr=1e-5, found ${JSON.stringify(setting)}`);
  }
  const value = FOLDERS.includes(path.join('.'))
    ? folders(valueOf(setting, rest.join('=')), cwd)
    : valueOf(setting, rest.join('='));
  return path
    .toReversed()
    .reduce<Record<string, unknown>>((inner, part, i) => ({ [part]: i === 0 ? value : inner }), {});
}

function valueOf(setting: string, text: string): unknown {
  try {
    return parse(text);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.split('\n')[0] : String(cause);
    throw new TrialgateError('bad_input', `${setting}: not a YAML value: ${why}`, { cause });
  }
}

const folders = (value: unknown, cwd: string): unknown =>
  Array.isArray(value) ? value.map((each: unknown) => (typeof each === 'string' ? folderOf(each, cwd) : each)) : value;

/** Returns the resolved folder if it exists. Another one may still exist relative to the project's folder. */
export const folderOf = (folder: string, cwd: string = process.cwd()): string =>
  existsSync(resolve(cwd, folder)) ? resolve(cwd, folder) : folder;
