import { readFileSync } from 'node:fs';
import path from 'node:path';
import { isMap, isScalar, LineCounter, parseDocument } from 'yaml';
import { TrialgateError } from '../../core/errors.ts';
import { decodeUtf8 } from '../../core/utf8.ts';
import { valueOfText } from '../../gateway/settings.ts';
import { SETTING_KEYS, flagOf, settingOf, variableOf, type SettingKey } from './settings.ts';

/** A given value and its origin: `from` names the default, the file and line, the variable or the flag. */
export type SourcedValue = { value: unknown; from: string };
export type Source = Partial<Record<SettingKey, SourcedValue>>;

export function defaults(): Source {
  return collect((key) => {
    const value = settingOf(key).default;
    return value === undefined ? undefined : { value, from: 'default' };
  });
}

export function fromEnvironment(env: NodeJS.ProcessEnv): Source {
  return collect((key) => {
    const text = env[variableOf(key)];
    return text ? { value: readText(key, text, variableOf(key)), from: variableOf(key) } : undefined;
  });
}

/** Returns the settings that flags give. `flags` has text by setting key, from commander. */
export function fromFlags(flags: Partial<Record<SettingKey, string>>): Source {
  return collect((key) => {
    const text = flags[key];
    return text === undefined ? undefined : { value: readText(key, text, flagOf(key)), from: flagOf(key) };
  });
}

/** Reads the file named with --config, or `trialgate.yaml` in `cwd` if it exists. */
export function fromFile(cwd: string, named: string | undefined): Source {
  const file = path.resolve(cwd, named ?? 'trialgate.yaml');
  let content: Buffer;
  try {
    content = readFileSync(file);
  } catch (cause) {
    if (!named) return {};
    throw new TrialgateError('bad_input', `cannot read the configuration ${file}: ${messageOf(cause)}`);
  }
  const name = path.relative(cwd, file) || file;
  return parseFile(name, decodeUtf8(content, name));
}

function parseFile(name: string, content: string): Source {
  const lines = new LineCounter();
  const document = parseDocument(content, { lineCounter: lines, prettyErrors: false });
  const lineAt = (offset: number | undefined): string => `${name}:${lines.linePos(offset ?? 0).line}`;
  const fault = document.errors[0];
  if (fault) throw new TrialgateError('bad_input', `${lineAt(fault.pos[0])}: not valid YAML: ${fault.message}`);
  if (document.contents === null) return {};
  if (!isMap(document.contents)) {
    throw new TrialgateError('bad_input', `${name}:1: expected settings such as \`gateway_port: 8700\``);
  }
  const source: Source = {};
  for (const pair of document.contents.items) {
    const key = isScalar(pair.key) ? String(pair.key.value) : '';
    const from = lineAt(isScalar(pair.key) ? pair.key.range?.[0] : undefined);
    const known = SETTING_KEYS.find((each) => each === key);
    if (!known)
      throw new TrialgateError(
        'bad_input',
        `${from}: unknown setting \`${key}\`; known are ${SETTING_KEYS.join(', ')}`,
      );
    source[known] = { value: document.toJS()[known], from };
  }
  return source;
}

function readText(key: SettingKey, text: string, from: string): unknown {
  const type = settingOf(key).from;
  if (type !== 'list') return valueOfText(text, type);
  if (!text.trim().startsWith('['))
    return text
      .split(',')
      .map((part) => part.trim())
      .filter(Boolean);
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new TrialgateError(
      'bad_input',
      `${from}: expected a JSON list or URLs with commas between, found ${text} (${messageOf(cause)})`,
    );
  }
}

function collect(give: (key: SettingKey) => SourcedValue | undefined): Source {
  const source: Source = {};
  for (const key of SETTING_KEYS) {
    const given = give(key);
    if (given) source[key] = given;
  }
  return source;
}

const messageOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));
