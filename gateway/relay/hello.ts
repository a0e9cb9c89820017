import { z } from 'zod';
import { RELAY_WORKER } from '../../core/engine-url.ts';

/** The name of our own frames. A worker that does not list it in its hello gets those of verl-recipe PR 83. */
export const OWN_FRAMES = 'trialgate.relay.v1';

/** The codes with which the gateway closes a worker's WebSocket. The first three are verl-recipe's. */
export const CLOSE = { badHello: 4000, noHello: 4001, noRelay: 4002, replaced: 4003, badFrame: 4004 } as const;

/** The code with which a worker closes its WebSocket for good. */
export const CLOSED_BY_WORKER = 1000;

/** The gateway's route at which workers dial in. */
export const WORKER_SOCKETS = '/ws/worker';

/** verl's worker takes messages up to this size. */
export const MAX_MESSAGE_BYTES = 100 * 2 ** 20;

export const workerId = z.string().regex(RELAY_WORKER, 'letters, digits, `.`, `_` and `-`, at most 64');

/** A worker's first message. All but the id belong to our own frames. */
export const hello = z.object({
  type: z.literal('worker_hello'),
  worker_id: workerId,
  protocols: z.array(z.string()).default([]),
  /** Names the worker's process, which continues its session over several sockets. */
  session: z.string().max(64).optional(),
  /** The number of the last frame that it received in this session. */
  received: z.int().min(0).default(0),
  /** The kind of its engine; null for one that can be trained. */
  engine: z.string().max(32).nullable().default(null),
});
export type Hello = z.input<typeof hello>;

export const helloAck = z.object({
  type: z.literal('worker_hello_ack'),
  worker_id: z.string(),
  status: z.literal('connected'),
  protocol: z.string().optional(),
  /** True when the gateway still has the worker's session. */
  resumed: z.boolean().default(false),
  received: z.int().min(0).default(0),
});
export type HelloAck = z.input<typeof helloAck>;

/** Returns the headers of a request at `WORKER_SOCKETS`. verl's worker sends none, so the key may also be in the URL. */
export function withKeyOf(url: string, headers: Headers): Headers {
  const key = new URL(url, 'http://gateway').searchParams.get('key');
  if (key !== null && !headers.has('authorization')) headers.set('authorization', `Bearer ${key}`);
  return headers;
}

/** Returns the URL of a worker as a replica. */
export const relayUrl = (id: string, kind: string | null): string => `${kind === null ? '' : `${kind}+`}relay:${id}`;

/** The header in which a gateway says which lease of a worker it means, when it asks the gateway that has the worker. */
export const EPOCH_HEADER = 'x-trialgate-relay-epoch';

/** The status with which a gateway answers another one when no reply of the worker's engine began. */
export const NO_REPLY = 421;

/** A worker sends `PING` to learn whether its connection stands, and gets `PONG`, whichever frames it speaks. verl's worker writes `PING` in this way. */
export const PING = '{"type": "ping"}';
export const PONG = '{"type": "pong"}';
