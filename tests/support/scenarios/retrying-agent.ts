import { setTimeout as pause } from 'node:timers/promises';
import { createParser } from 'eventsource-parser';
import { z } from 'zod';
import { DONE } from '../../../gateway/reply-formats.ts';

/** A reply whose end the agent saw, and the request as it was sent. */
export type DeliveredReply = { trialId: string; body: string; callId: string; text: string; replayed: boolean };

/** The replies that an agent got, and counts of its tries. */
export type AgentObservation = { ended: DeliveredReply[]; tries: number; refused: number; cut: number; odd: string[] };

type Options = {
  gateway: string;
  adminKey: string;
  trialId: string;
  turns: number;
  /** True to name requests by `Idempotency-Key`; otherwise tries are counted, as by OpenAI's SDKs. */
  keyed: boolean;
  /** True when no further request must begin. */
  isOver: () => boolean;
  /** Aborts the agent. */
  signal: AbortSignal;
};
type Try = { text: string; end: 'whole' | 'cut' | 'refused' | 'odd'; callId: string; replayed: boolean };

const PAUSE_MS = 150;
const opened = z.object({ api_key: z.string(), base_url: z.string() });
const completion = z.object({
  choices: z.array(z.object({ message: z.object({ content: z.string() }), finish_reason: z.string() })).length(1),
});
const chunk = z.object({
  choices: z
    .array(z.object({ delta: z.object({ content: z.string().nullish() }), finish_reason: z.string().nullish() }))
    .optional(),
});

/** Plays one trial of several turns, plain and streamed. A request that was cut or refused is sent again with the same bytes until its reply ends. */
export async function runRetryingAgent({
  gateway,
  adminKey,
  trialId,
  turns,
  keyed,
  isOver,
  signal,
}: Options): Promise<AgentObservation> {
  const observation: AgentObservation = { ended: [], tries: 0, refused: 0, cut: 0, odd: [] };
  const { api_key, base_url } = await open(`${gateway}/sessions/${trialId}`, adminKey, signal);
  const messages = [{ role: 'user', content: `I am ${trialId}` }];
  for (let turn = 0; turn < turns && !isOver(); turn++) {
    const stream = Math.random() < 0.5;
    const body = JSON.stringify({ messages, stream, cue: { log: `${trialId}/${turn}` } });
    for (let tries = 0; ; tries++) {
      const retry: Record<string, string> = keyed
        ? { 'idempotency-key': `${trialId}/${turn}` }
        : { 'x-stainless-retry-count': `${tries}` };
      const headers = { authorization: `Bearer ${api_key}`, 'content-type': 'application/json', ...retry };
      const { end, text, ...reply } = await once(
        () => fetch(`${base_url}/chat/completions`, { method: 'POST', headers, body, signal }),
        stream,
      );
      observation.tries += 1;
      if (end === 'whole') {
        observation.ended.push({ trialId, body, text, ...reply });
        messages.push({ role: 'assistant', content: text }, { role: 'user', content: `and ${turn}?` });
        break;
      }
      if (end === 'odd') return { ...observation, odd: [...observation.odd, `${trialId}/${turn}: ${text}`] };
      observation[end] += 1;
      await pause(PAUSE_MS * (0.5 + Math.random()), undefined, { signal });
    }
  }
  return observation;
}

async function open(session: string, adminKey: string, signal: AbortSignal) {
  for (;;) {
    const reply = await fetch(session, {
      method: 'POST',
      headers: { authorization: `Bearer ${adminKey}` },
      signal,
    }).catch(() => null);
    const body: unknown = reply?.ok ? await reply.json().catch(() => null) : null;
    if (body !== null) return opened.parse(body);
    await pause(PAUSE_MS, undefined, { signal });
  }
}

async function once(ask: () => Promise<Response>, stream: boolean): Promise<Try> {
  const unknown = { text: '', callId: '', replayed: false };
  let reply: Response;
  try {
    reply = await ask();
  } catch (error) {
    return { ...unknown, end: isRefusal(error) ? 'refused' : 'cut' };
  }
  const head = {
    callId: reply.headers.get('x-trialgate-call') ?? '',
    replayed: reply.headers.has('x-trialgate-replay'),
  };
  if (reply.status === 429 || reply.status >= 500)
    return {
      ...unknown,
      end: await reply.text().then(
        () => 'refused',
        () => 'cut',
      ),
    };
  if (reply.status !== 200)
    return { ...unknown, end: 'odd', text: `${reply.status}: ${await reply.text().catch(String)}` };
  return { ...head, ...(await (stream ? readChunks(reply) : readWhole(reply))) };
}

const isRefusal = (error: unknown): boolean =>
  error instanceof Error &&
  error.cause instanceof Error &&
  'code' in error.cause &&
  error.cause.code === 'ECONNREFUSED';

async function readWhole(reply: Response): Promise<Pick<Try, 'text' | 'end'>> {
  const text = await reply.text().catch(() => null);
  if (text === null) return { text: '', end: 'cut' };
  const parsed = completion.safeParse(JSON.parse(text));
  return parsed.success ? { text: parsed.data.choices[0]?.message.content ?? '', end: 'whole' } : { text, end: 'odd' };
}

/** The reply ends with its finish and the event after it. */
async function readChunks(reply: Response): Promise<Pick<Try, 'text' | 'end'>> {
  const events: string[] = [];
  const [parser, decoder] = [createParser({ onEvent: ({ data }) => events.push(data) }), new TextDecoder()];
  const readAll = async () => {
    for await (const bytes of reply.body ?? []) parser.feed(decoder.decode(bytes, { stream: true }));
  };
  const isWhole = await readAll().then(
    () => true,
    () => false,
  );
  const choices = events.filter((data) => data !== DONE).map((data) => chunk.parse(JSON.parse(data)).choices?.[0]);
  const text = choices.map((choice) => choice?.delta.content ?? '').join('');
  const finished = choices.some((choice) => typeof choice?.finish_reason === 'string');
  const done = events.includes(DONE);
  // A finish alone is an end that an agent may believe. An end without it, or a connection that closes cleanly without either, does not
  // come from the gateway.
  if (finished && (done || !isWhole)) return { text, end: 'whole' };
  return { text, end: finished || done || isWhole ? 'odd' : 'cut' };
}
