import { readdirSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TrialgateError } from '../../core/errors.ts';
import { homeFolders } from '../folders.ts';
import { isGateway } from './gateways.ts';
import { lastLines } from './logs.ts';

export type LogOptions = { component?: string; lines: string; follow: boolean };

/** Prints the last lines of the logs and, with `follow`, new lines until `signal` aborts. With several logs each line has its log's name. */
export async function showLogs(home: string, options: LogOptions, signal: AbortSignal): Promise<void> {
  const count = Number(options.lines);
  if (!Number.isInteger(count) || count < 0)
    throw new TrialgateError('bad_input', `--lines: expected a count, found ${options.lines}`);
  const files = logFiles(home, options.component);
  const followed = files.map((file) => {
    const prefix = files.length > 1 ? `${path.basename(file, '.log').padEnd(15)} | ` : '';
    const offset = statSync(file).size;
    if (count > 0) for (const line of lastLines(file, count)) console.log(prefix + line);
    return { file, prefix, offset, rest: '' };
  });
  while (options.follow && !signal.aborted) {
    for (const log of followed) {
      const added = await readFrom(log.file, log.offset);
      log.offset = added.end;
      const lines = (log.rest + added.text).split('\n');
      log.rest = lines.pop() ?? '';
      for (const line of lines) console.log(log.prefix + line);
    }
    await sleep(250, undefined, { signal }).catch(() => {});
  }
}

function logFiles(home: string, component: string | undefined): string[] {
  const { logs } = homeFolders(home);
  let names: string[] = [];
  try {
    names = readdirSync(logs)
      .filter((name) => name.endsWith('.log'))
      .toSorted();
  } catch {
    // The folder does not exist yet, so there are no logs.
  }
  const wanted =
    component === undefined
      ? names
      : names.filter(
          (name) => name === `${component}.log` || (component === 'gateway' && isGateway(path.basename(name, '.log'))),
        );
  if (wanted.length) return wanted.map((name) => path.join(logs, name));
  const there = names.map((name) => path.basename(name, '.log')).join(', ');
  throw new TrialgateError(
    'bad_input',
    component === undefined
      ? `no logs in ${logs} yet`
      : `no log of ${component} in ${logs}; there are: ${there || 'none'}`,
  );
}

async function readFrom(file: string, offset: number): Promise<{ text: string; end: number }> {
  const handle = await open(file, 'r');
  try {
    const { size } = await handle.stat();
    const from = size < offset ? 0 : offset;
    const { bytesRead, buffer } = await handle.read({ buffer: Buffer.alloc(size - from), position: from });
    return { text: buffer.subarray(0, bytesRead).toString('utf8'), end: from + bytesRead };
  } finally {
    await handle.close();
  }
}
