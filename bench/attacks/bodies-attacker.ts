import { request } from 'node:http';
import { computeOnlyWhenIdle } from './idle-thread.ts';
import { parentPort, workerData } from 'node:worker_threads';
import { makeBody, type BodyKind } from './bodies-made.ts';

export type Attack = { url: string; key: string; kind: BodyKind; streams: number; seconds: number; most: number };
/** The number of responses by status. `broken` counts connections that ended without one. */
export type AttackResult = { statuses: Record<string, number>; broken: number; lastAnswer: string };

// A real attacker uses another machine, so this must not take processor time from the measured processes.
computeOnlyWhenIdle();
const { url, key, kind, streams, seconds, most }: Attack = workerData;
const { body, headers } = makeBody(kind);
const result: AttackResult = { statuses: {}, broken: 0, lastAnswer: '' };
const end = Date.now() + seconds * 1000;
let sent = 0;

async function keepSending(): Promise<void> {
  while (Date.now() < end && sent < most) {
    sent += 1;
    try {
      const { status, text } = await send();
      result.statuses[status] = (result.statuses[status] ?? 0) + 1;
      result.lastAnswer = text.slice(0, 300);
    } catch {
      result.broken += 1;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

function send(): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const asking = request(
      url,
      {
        method: 'POST',
        headers: {
          authorization: `Bearer ${key}`,
          'content-type': 'application/json',
          'content-length': body.length,
          ...headers,
        },
      },
      (reply) => {
        let text = '';
        reply.on('data', (part: Buffer) => (text = (text + part.toString('latin1')).slice(0, 1000)));
        reply.on('end', () => resolve({ status: reply.statusCode ?? 0, text }));
        reply.on('error', reject);
      },
    );
    // A refusal may come before everything is sent, and its connection then ends.
    asking.on('error', reject);
    asking.end(body);
  });
}

await Promise.all(Array.from({ length: streams }, keepSending));
parentPort?.postMessage(result);
