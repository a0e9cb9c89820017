import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { EXIT, report } from '../cli/exit.ts';
import { TrialgateError } from '../core/errors.ts';
import { provenance } from './deployment.ts';

type Default = number | string | boolean | null;
type OptionValues<T extends Record<string, Default>> = {
  [Key in keyof T]: T[Key] extends number
    ? number
    : T[Key] extends boolean
      ? boolean
      : T[Key] extends string
        ? string
        : string | null;
};

/**
 * Parses a benchmark's options. An option is a number if its default is one, a flag if its default is false, otherwise text, or null if it is not
 * given and has no default. `--help` and an invalid option print the comment at the head of the file with the defaults, and end the process.
 */
export function optionsOf<const T extends Record<string, Default>>(file: string, defaults: T): OptionValues<T> {
  provenance();
  const typeOf = (value: Default) => (typeof value === 'boolean' ? 'boolean' : 'string');
  const options = Object.fromEntries(
    Object.entries(defaults).map(([name, value]) => [name, { type: typeOf(value) } as const]),
  );
  try {
    const { values } = parseArgs({ options: { ...options, help: { type: 'boolean' as const, short: 'h' } } });
    if (values.help === true) {
      console.log(helpOf(file, defaults));
      process.exit(EXIT.done);
    }
    const given = Object.entries(defaults).map(([name, value]) => [name, read(name, Reflect.get(values, name), value)]);
    return Object.fromEntries(given) as OptionValues<T>;
  } catch (error) {
    const reason = error instanceof TypeError ? new TrialgateError('bad_input', `${error.message}; see --help`) : error;
    process.exit(report(reason));
  }
}

function read(name: string, given: unknown, value: Default): Default {
  if (typeof given === 'boolean') return given;
  if (typeof given !== 'string') return value;
  if (typeof value !== 'number') return given;
  if (given.trim() === '' || !(Number(given) >= 0))
    throw new TrialgateError('bad_input', `--${name}: expected a number from 0, found ${given}`);
  return Number(given);
}

function helpOf(file: string, defaults: Record<string, Default>): string {
  const head = /^\/\*\*\n([\s\S]*?)\n \*\//.exec(readFileSync(new URL(file), 'utf8'))?.[1] ?? '';
  const flags = Object.entries(defaults).map(([name, value]) => {
    if (value === null) return `[--${name} …]`;
    return typeof value === 'boolean' ? `[--${name}]` : `--${name} ${value}`;
  });
  return `${head.replace(/^ \* ?/gm, '')}\n\nDefaults: ${flags.join(' ')}`;
}
