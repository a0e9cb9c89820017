import { basename } from 'node:path';
import { sandboxVariables } from './all.ts';
import type { Client, Place } from './client.ts';

const PLACE: Place = {
  trialUrl: 'http://HOST:8700/TRIAL',
  key: 'KEY',
  home: '~',
  work: '.',
  folder: '.',
  scripts: '.',
};

/** Describes how a person starts a program as the tests do: its variables in addition to the sandbox's, its command, and the files of its home. */
export function setupOf(client: Client): string[] {
  const { file, args, env = {}, files = {} } = client.start(PLACE, ['task']);
  const given = sandboxVariables(PLACE);
  const variables = Object.entries(env).flatMap(([name, value]) =>
    name in given ? [] : [`export ${name}=${quoted(value)}`],
  );
  const command = basename(file) === 'python' ? [basename(args[0] ?? ''), ...args.slice(1)] : [basename(file), ...args];
  const shell = [...variables, command.map(quoted).join(' ')].join('\n');
  const inHome = Object.entries(files).map(
    ([name, content]) =>
      `${inlineName(name)}\n\n${fenced(name.endsWith('.json') ? 'json' : 'toml', content.trimEnd())}`,
  );
  return [...inHome, fenced('sh', shell)];
}

/** The benchmark's results for one mode of a client. `hinted` has the trainable calls with `constrained_decoding: hint`. */
export type ModeRow = { client: string; mode: string; calls: string; trainable: string; hinted: string };

export const MODE_HEAD = ['client', 'mode', 'calls', 'trainable', 'with hint', 'clean', 'why not'];

/** Reads the benchmark's table of modes. */
export function modeRowsIn(results: string): ModeRow[] {
  const lines = results.split('\n');
  const head = lines.findIndex((line) => line.trimEnd().split(/ {2,}/).join() === MODE_HEAD.join());
  const rows = head < 0 ? [] : lines.slice(head + 2);
  const end = rows.findIndex((line) => line.trim() === '');
  return rows.slice(0, end < 0 ? rows.length : end).map((line) => {
    const [client = '', mode = '', calls = '', trainable = '', hinted = ''] = line.trim().split(/ {2,}/);
    return { client, mode, calls, trainable, hinted };
  });
}

/** Returns the page with these rows in its table of modes. The index page also names the client. */
export function withModes(page: string, rows: readonly ModeRow[], isIndex = false): string {
  const head = [...(isIndex ? ['client'] : []), 'mode', 'calls', 'trainable', 'with `hint`'];
  const cells = rows.map(({ client, mode, calls, trainable, hinted }) => [
    ...(isIndex ? [`[${client}](${client}.md)`] : []),
    mode,
    calls,
    trainable,
    hinted,
  ]);
  const table = [head, head.map(() => '---'), ...cells].map((row) => `| ${row.join(' | ')} |`).join('\n');
  return page.replace(/<!-- modes -->[^]*<!-- \/modes -->/, `<!-- modes -->\n${table}\n<!-- /modes -->`);
}

const inlineName = (name: string): string => `\`~/${name}\`:`;
const fenced = (language: string, text: string): string => `\`\`\`${language}\n${text}\n\`\`\``;
const quoted = (word: string): string => (/^[\w@%+=:,./~-]+$/.test(word) ? word : `'${word}'`);
