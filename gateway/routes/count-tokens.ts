import { Hono } from 'hono';
import { openTrialOf } from '../auth.ts';
import type { GatewayDeps } from '../deps.ts';
import { readText } from '../engines/connection.ts';
import { Failure } from '../failure.ts';
import { parseObject } from '../json.ts';
import { countRequest } from '../protocols/messages/shape.ts';
import { promptFieldsOf } from '../protocols/messages/to-chat.ts';
import { parseAs } from '../protocols/parse-as.ts';
import { readBody } from '../read-body.ts';

/** How long a prompt would be, as Anthropic tells it. The engine counts what its template makes of the request; nothing is sampled or recorded. */
export function countTokensRoutes(deps: GatewayDeps): Hono {
  const app = new Hono();
  app.on('POST', ['/:trial/v1/messages/count_tokens', '/v1/messages/count_tokens'], async (c) => {
    const { headers, signal } = c.req.raw;
    const trial = await openTrialOf(deps, c.req.param('trial'), headers);
    const { checked } = parseAs(countRequest, await readBody(c.req.raw, deps.settings.maxBodyBytes));
    const { replica, model, leave } = await deps.engines.lease(trial, Date.now() + deps.settings.holdMs, signal);
    // What is asked here is no load on the engine.
    leave();
    const { tool_choice: _, parallel_tool_calls: __, ...prompt } = promptFieldsOf(checked);
    const body = JSON.stringify({ ...prompt, ...(model === null ? {} : { model }), add_generation_prompt: true });
    const reply = await replica.connection.ask({ method: 'POST', path: '/tokenize', body, signal });
    const said = parseObject(await readText(reply.body));
    if (reply.status !== 200 || typeof said?.count !== 'number') throw new Failure(reply.status === 400 ? 400 : 502, 'engine_error', `the engine does not count these tokens: it answered ${reply.status}`);
    return c.json({ input_tokens: said.count });
  });
  return app;
}
