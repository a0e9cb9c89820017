import { Hono } from 'hono';
import type { TrialNow } from '../../store/queries/find-trials.ts';
import { openTrialOf } from './auth.ts';
import { unknownModel } from '../calls/place.ts';
import type { GatewayDeps } from './deps.ts';
import type { Model } from '../engines/engine.ts';
import { requestIdHeader } from '../request-id.ts';
import { askEngine } from './ask-engine.ts';
import { apiPaths } from '../protocols/paths.ts';

/** Lists the trial's policy in OpenAI's form with the fields that Anthropic's clients read. Leaves out an engine's paths. */
export function modelRoutes(deps: GatewayDeps): Hono {
  const app = new Hono();
  const modelsOf = (trial: TrialNow, signal: AbortSignal) =>
    askEngine(deps, trial, signal, ({ replica }) => replica.models());

  app.on('GET', apiPaths('/v1/models'), async (c) => {
    const trial = await openTrialOf(deps, c.req.param('trial'), c.req.raw.headers);
    const data = (await modelsOf(trial, c.req.raw.signal)).map(shown);
    return c.json(
      { object: 'list', data, has_more: false, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null },
      200,
      requestIdHeader(null),
    );
  });

  // A model's name may contain slashes.
  app.on('GET', apiPaths('/v1/models/:model{.+}'), async (c) => {
    const trial = await openTrialOf(deps, c.req.param('trial'), c.req.raw.headers);
    const asked = c.req.param('model') ?? '';
    const models = await modelsOf(trial, c.req.raw.signal);
    const [policy] = models;
    const model = models.find(({ id }) => id === asked) ?? (deps.settings.strictModel ? undefined : policy);
    if (!model) throw unknownModel(asked, policy?.id ?? null);
    return c.json({ ...shown(model), id: asked }, 200, requestIdHeader(null));
  });
  return app;
}

function shown({ id, created: at, contextLength }: Model) {
  const created = at ?? 0;
  return {
    id,
    object: 'model',
    type: 'model',
    display_name: id,
    created,
    created_at: new Date(created * 1000).toISOString(),
    owned_by: 'trialgate',
    max_model_len: contextLength ?? undefined,
  };
}
