import { Hono } from 'hono';
import { openTrialOf } from '../auth.ts';
import type { GatewayDeps } from '../deps.ts';
import { askEngine } from './ask-engine.ts';

/** The trial's policy as OpenAI lists models. What an engine adds about its machine (paths) stays out. */
export function modelRoutes(deps: GatewayDeps): Hono {
  const app = new Hono();
  app.on('GET', ['/:trial/v1/models', '/v1/models'], async (c) => {
    const trial = await openTrialOf(deps, c.req.param('trial'), c.req.raw.headers);
    const models = await askEngine(deps, trial, c.req.raw.signal, ({ replica }) => replica.models());
    const data = models.map(({ id, created, max_model_len }) => ({
      id,
      object: 'model',
      created: typeof created === 'number' ? created : 0,
      owned_by: 'trialgate',
      max_model_len,
    }));
    return c.json({ object: 'list', data });
  });
  return app;
}
