import { Hono } from 'hono';
import { withTemplate } from '../calls/sampling/sampling.ts';
import { PROTOCOLS } from '../protocols/all.ts';
import type { Protocol, TokenCounting } from '../protocols/protocol.ts';
import { requestIdHeader } from '../request-id.ts';
import { askEngine } from './ask-engine.ts';
import { openTrialOf } from './auth.ts';
import { admit } from './bodies/admission.ts';
import { hasManyNodes, isHeavy } from './bodies/heavy.ts';
import { readBody } from './bodies/read-body.ts';
import type { GatewayDeps, GatewayEnv } from './deps.ts';

/** Counts a prompt's tokens for the protocols that have such a route. The engine counts its rendering. Nothing is sampled or recorded. */
export function countTokensRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  for (const protocol of PROTOCOLS) if (protocol.countTokens) serveCounting(app, deps, protocol, protocol.countTokens);
  return app;
}

function serveCounting(
  app: Hono<GatewayEnv>,
  deps: GatewayDeps,
  protocol: Protocol,
  { paths, promptOf, reply }: TokenCounting,
): void {
  app.on('POST', [...paths], async (c) => {
    const { headers, signal } = c.req.raw;
    const handOver = c.env?.handOver;
    if (handOver && isHeavy(c.req.raw)) return handOver(null);
    const trial = await openTrialOf(deps, c.req.param('trial'), headers);
    c.set('trial', trial);
    const { hold, release } = admit(deps, trial.id, c.req.raw);
    try {
      const { bytes, nodes } = await readBody(c.req.raw, deps.settings, hold);
      if (handOver && hasManyNodes(nodes)) return await handOver(bytes);
      const prompt = promptOf({ url: c.req.url, headers, bytes });
      const tokens = await askEngine(deps, trial, signal, (lease, until) =>
        lease.replica.engine.countTokens(lease, { ...prompt, ...withTemplate(prompt, trial) }, until),
      );
      return c.json(reply(tokens), 200, requestIdHeader(protocol));
    } finally {
      release();
    }
  });
}
