import { Pool } from 'undici';
import type { ProtocolName } from '../../../store/schema.ts';
import type { Target } from '../cell.ts';
import { body, conversation, FORMS, pathOf } from './bodies.ts';
import type { Line } from './wrk.ts';

const SIDE_BY_SIDE = 32;

type Priming = { turns?: number; tokens?: number; protocol?: ProtocolName; signal: AbortSignal };

/** Makes the first turns of each of the target's trials, so that later calls continue from them. */
export async function prime(
  target: Target,
  lines: readonly Line[],
  { turns = 1, tokens = 64, protocol = 'chat_completions', signal }: Priming,
): Promise<void> {
  const pool = new Pool(target.url, { connections: SIDE_BY_SIDE });
  const form = FORMS[protocol];
  const left = lines.map((line) => ({ ...line, path: pathOf(line.path, form, false) })).values();
  try {
    await Promise.all(
      Array.from({ length: SIDE_BY_SIDE }, async () => {
        for (const line of left) {
          for (let turn = 1; turn <= turns; turn++) {
            const text = body(
              conversation(line.name, turn, tokens, form),
              { stream: false, tokens, direct: target.direct },
              form,
            );
            await post(pool, line, text, signal);
          }
        }
      }),
    );
  } finally {
    await pool.destroy();
  }
}

/** Makes a call and returns the milliseconds until its reply was read completely. */
export async function post(
  pool: Pool,
  { path, key }: Line,
  text: string,
  signal: AbortSignal,
  more = '',
): Promise<number> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headersOf(more) };
  const start = performance.now();
  const reply = await pool.request({ method: 'POST', path, headers, body: text, signal });
  const bytes = await reply.body.bytes();
  if (reply.statusCode !== 200)
    throw new Error(`${path} answered ${reply.statusCode}: ${Buffer.from(bytes).toString().slice(0, 300)}`);
  return performance.now() - start;
}

const headersOf = (lines: string): Record<string, string> =>
  Object.fromEntries(
    lines
      .split('\r\n')
      .filter(Boolean)
      .map((line) => [line.slice(0, line.indexOf(': ')), line.slice(line.indexOf(': ') + 2)]),
  );
