import { Pool } from 'undici';
import type { Target } from '../cell.ts';
import { body, question } from '../load/bodies.ts';
import { post } from '../load/prime.ts';
import type { Report } from '../report.ts';
import { PEERS } from './peers.ts';

/** Starts the peers and returns those that answer. The report says why another peer is missing. */
export async function startPeers(engine: string, stream: boolean, report: Report, signal: AbortSignal): Promise<Target[]> {
  const running: Target[] = [];
  for (const peer of PEERS) {
    let target: Target | null = null;
    try {
      target = await peer.start(engine, signal);
      await answers(target, stream, signal);
      running.push(target);
    } catch (error) {
      await target?.[Symbol.asyncDispose]();
      if (signal.aborted) for (const each of running) await each[Symbol.asyncDispose]();
      signal.throwIfAborted();
      report.print(`${peer.name} is left out${target ? ` of ${stream ? 'streams' : 'calls'}` : ''}: ${error instanceof Error ? error.message : String(error)}${target?.lastError?.() ? ` (${target.lastError()})` : ''}`);
    }
  }
  return running;
}

async function answers(target: Target, stream: boolean, signal: AbortSignal): Promise<void> {
  const pool = new Pool(target.url, { connections: 1, headersTimeout: 20_000, bodyTimeout: 20_000 });
  try {
    for (const line of await target.lines(1)) await post(pool, line, body(question(line.name, 1), { stream, tokens: 64, direct: true }), signal, target.headers);
  } finally {
    await pool.destroy();
  }
}
