import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import path from 'node:path';
import { Agent, request } from 'undici';
import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import { socketFolder } from './plan.ts';

/** Starts the deployment's engine with another model. Rejects, with the old model starting again, when it cannot or `signal` aborts. */
export type SwitchModel = (model: string, signal: AbortSignal) => Promise<void>;

const wanted = z.object({ model: z.string().min(1) });
const refusal = z.object({ message: z.string() });

/** The socket lies beside the engine's, in a folder that only the deployment's user and no sandbox reaches. */
const controlSocket = (home: string): string => path.join(socketFolder(home), 'supervisor.sock');

/** Lets other processes of the deployment's user change what the supervisor runs. */
export async function serveControl(home: string, switchModel: SwitchModel): Promise<{ close(): void }> {
  const socket = controlSocket(home);
  mkdirSync(path.dirname(socket), { recursive: true, mode: 0o700 });
  chmodSync(path.dirname(socket), 0o700);
  rmSync(socket, { force: true });
  const server = createServer((message, response) => void answer(message, response, switchModel));
  server.listen(socket);
  await once(server, 'listening');
  server.unref();
  return {
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

async function answer(message: IncomingMessage, response: ServerResponse, switchModel: SwitchModel): Promise<void> {
  const left = new AbortController();
  response.once('close', () => left.abort(new Error('nobody waits for the switch any more')));
  try {
    const { model } = wanted.parse(JSON.parse(await text(message)));
    await switchModel(model, left.signal);
    response.end('{}');
  } catch (error) {
    response.statusCode = 409;
    response.end(JSON.stringify({ message: error instanceof Error ? error.message : String(error) }));
  }
}

/**
 * Asks the supervisor to start its engine with another model, and returns when the engine is ready. When `signal` aborts, the old model
 * starts again.
 * @throws TrialgateError `missing_prerequisite` when the engine cannot start with it
 */
export async function requestModel(home: string, model: string, signal: AbortSignal): Promise<void> {
  const socketPath = controlSocket(home);
  if (!existsSync(socketPath))
    throw new TrialgateError(
      'missing_prerequisite',
      `this deployment was started in a way, or by a release, that cannot switch: \`npx trialgate down\`, then \`npx trialgate up --model ${model}\``,
    );
  // Loading a large model takes longer than an HTTP client usually waits.
  const dispatcher = new Agent({ connect: { socketPath }, headersTimeout: 0, bodyTimeout: 0 });
  try {
    const reply = await request('http://supervisor/model', {
      dispatcher,
      signal,
      method: 'POST',
      body: JSON.stringify({ model }),
    });
    const body = await reply.body.text();
    if (reply.statusCode === 200) return;
    throw new TrialgateError('missing_prerequisite', refusal.parse(JSON.parse(body)).message);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof TrialgateError) throw error;
    throw new TrialgateError(
      'missing_prerequisite',
      'the supervisor ended during the switch: `npx trialgate up` starts the deployment with the model that it had',
      { cause: error },
    );
  } finally {
    await dispatcher.destroy();
  }
}
