import { stringifyExact } from '../../core/exact-json.ts';
import { Hono } from 'hono';
import { admit } from '../in-flight.ts';
import { openTrialOf } from '../auth.ts';
import type { GatewayDeps, GatewayEnv } from '../deps.ts';
import { readText } from '../engines/connection.ts';
import { adaptMessages } from '../engines/adapt-messages.ts';
import type { Lease } from '../engines/pool.ts';
import { Failure } from '../failure.ts';
import { parseObject, type JsonObject } from '../json.ts';
import { messages } from '../protocols/messages/messages.ts';
import { countRequest } from '../protocols/messages/shape.ts';
import { promptFieldsOf } from '../protocols/messages/to-chat.ts';
import { parseAs } from '../protocols/parse-as.ts';
import { withTemplate } from '../chat/sampling.ts';
import { hasManyNodes, isHeavy } from '../heavy.ts';
import { readBody } from '../read-body.ts';
import { requestIdHeader } from '../request-id.ts';
import { askEngine } from './ask-engine.ts';
import { apiPaths } from './paths.ts';

/** Counts a prompt's tokens as Anthropic's route does. The engine counts its rendering of the request. Nothing is sampled or recorded. */
export function countTokensRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  app.on('POST', apiPaths('/v1/messages/count_tokens'), async (c) => {
    const { headers, signal } = c.req.raw;
    const handOver = c.env?.handOver;
    if (handOver && isHeavy(c.req.raw)) return handOver(null);
    const trial = await openTrialOf(deps, c.req.param('trial'), headers);
    c.set('trial', trial);
    const { hold, release } = admit(deps, trial.id, c.req.raw);
    try {
      const { bytes, nodes } = await readBody(c.req.raw, deps.settings, hold);
      if (handOver && hasManyNodes(nodes)) return await handOver(bytes);
      const { checked } = parseAs(countRequest, bytes);
      const { tool_choice: _, parallel_tool_calls: __, ...prompt } = promptFieldsOf(checked);
      const input_tokens = await askEngine(deps, trial, signal, (lease, until) =>
        count(lease, { ...prompt, ...withTemplate(prompt, trial) }, until),
      );
      return c.json({ input_tokens }, 200, requestIdHeader(messages));
    } finally {
      release();
    }
  });
  return app;
}

async function count({ replica, model }: Lease, prompt: JsonObject, signal: AbortSignal): Promise<number> {
  const { body: adapted } = await adaptMessages(replica, model, {
    ...prompt,
    ...(model === null ? {} : { model }),
    add_generation_prompt: true,
  });
  const body = stringifyExact(adapted);
  const reply = await replica.connection.send({ method: 'POST', path: '/tokenize', body, signal });
  const { count: counted } = parseObject(await readText(reply.body)) ?? {};
  if (reply.status === 200 && typeof counted === 'number') return counted;
  throw new Failure(
    reply.status === 400 ? 400 : 502,
    'engine_error',
    `the engine does not count these tokens: it answered ${reply.status}`,
  );
}
