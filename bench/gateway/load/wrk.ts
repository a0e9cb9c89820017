import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ProtocolName } from '../../../store/schema.ts';
import { textOf } from '../engine/replies.ts';
import { after, FORMS, pathOf } from './bodies.ts';
import type { Wrk } from './wrk-install.ts';

const SCRIPT = fileURLToPath(new URL('wrk.lua', import.meta.url));

/** A trial's path for chat completions, its key, and the name in its questions. */
export type Line = { path: string; key: string; name: string };

export type WrkJob = {
  url: string;
  lines: readonly Line[];
  connections: number;
  seconds: number;
  stream: boolean;
  direct: boolean;
  /** Chat completions by default. */
  protocol?: ProtocolName;
  /** More header lines, each with its end. */
  headers?: string;
  tokens?: number;
  /** Conversations that continue: the number side by side, the turns that each has had, and the turns that it gets. */
  turns?: { set: number; had: number; more: number };
  signal: AbortSignal;
};

export type WrkResult = {
  seconds: number;
  /** The number of replies that were read to their end. */
  requests: number;
  bytes: number;
  connect: number;
  read: number;
  write: number;
  status: number;
  timeout: number;
  meanMs: number;
  p50Ms: number;
  p90Ms: number;
  p99Ms: number;
  maxMs: number;
};

/** Runs wrk once: a closed loop on one thread. Connections under way are cut at its end. */
export async function runWrk(wrk: Wrk, job: WrkJob): Promise<WrkResult> {
  const {
    url,
    lines,
    connections,
    seconds,
    stream,
    direct,
    tokens = 64,
    protocol = 'chat_completions',
    headers = '',
    turns,
    signal,
  } = job;
  const form = FORMS[protocol];
  signal.throwIfAborted();
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-bench-wrk-'));
  try {
    const file = join(folder, 'trials');
    writeFileSync(file, lines.map(({ path, key, name }) => `${pathOf(path, form, stream)} ${key} ${name}\n`).join(''));
    const more = turns ? [form.reply(textOf(tokens)), turns.set, turns.had, turns.more] : [];
    const args = [
      '-t1',
      `-c${connections}`,
      `-d${seconds}s`,
      '--timeout',
      '30s',
      '-s',
      SCRIPT,
      url,
      '--',
      form.before,
      after(form, { stream, tokens, direct }),
      form.question,
      file,
      headers,
      ...more,
    ];
    const child = spawn(wrk.file, args.map(String), {
      env: wrk.env,
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    const end = () => void child.kill('SIGKILL');
    signal.addEventListener('abort', end, { once: true });
    let text = '';
    for (const output of [child.stdout, child.stderr]) output.on('data', (data: Buffer) => (text += data.toString()));
    await once(child, 'close');
    signal.removeEventListener('abort', end);
    signal.throwIfAborted();
    const found = /^result (\{.*\})$/m.exec(text)?.[1];
    if (!found) throw new Error(`wrk gave no result: ${text.slice(-500)}`);
    return JSON.parse(found) as WrkResult;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
