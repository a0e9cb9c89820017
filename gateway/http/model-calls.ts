import { Hono } from 'hono';
import { callPipeline } from '../calls/pipeline.ts';
import { PROTOCOLS } from '../protocols/all.ts';
import { retryOf } from '../record/retry.ts';
import { claimOf, openClaimed, openTrialOf } from './auth.ts';
import { admit } from './bodies/admission.ts';
import { hasManyNodes, isHeavy } from './bodies/heavy.ts';
import { checkAnnounced, isLarge, readBody } from './bodies/read-body.ts';
import { resolveReferences } from './bodies/resolve-references.ts';
import type { GatewayDeps, GatewayEnv } from './deps.ts';
import { traceparentOf } from './traceparent.ts';

/** The most characters of a client's name that are recorded. */
const LONGEST_CLIENT = 200;

/** Serves calls of the model in any protocol. The trial's policy answers, and each is recorded. */
export function modelCallRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  const answerCall = callPipeline(deps);
  for (const protocol of PROTOCOLS) {
    app.on('POST', [...protocol.paths], async (c) => {
      const { headers, signal } = c.req.raw;
      const agent = { signal, cut: c.env?.cut, delivered: c.env?.delivered ?? (async () => true) };
      const handOver = c.env?.handOver;
      const claim = claimOf(deps, c.req.param('trial'), headers);
      if (claim.attempt !== null) c.set('trial', { id: claim.trialId, attempt: claim.attempt });
      // Refuses a request without a valid key before its body is read or handed over, and one whose attempt has ended before a large body
      // is read.
      if (handOver && isHeavy(c.req.raw)) {
        if (claim.attempt === null) await openClaimed(deps, claim, headers);
        checkAnnounced(c.req.raw, deps.settings);
        return await handOver(null);
      }
      const id =
        claim.attempt === null || isLarge(c.req.raw) ? (await openClaimed(deps, claim, headers)).id : claim.trialId;
      const { hold, release } = admit(deps, id, c.req.raw);
      try {
        const { bytes, nodes } = await readBody(c.req.raw, deps.settings, hold);
        const passToHeavy =
          handOver &&
          (() => {
            release();
            return handOver(bytes);
          });
        if (passToHeavy && hasManyNodes(nodes)) return await passToHeavy();
        // Read again, because the trial's budgets may be used while a slow body comes.
        const trial = await openClaimed(deps, claim, headers);
        const retry = retryOf(headers, bytes);
        c.set('trial', trial);
        c.set('body', { size: bytes.byteLength, digest: retry.digest });
        const asked = {
          ...protocol.parse({ url: c.req.url, headers, bytes }),
          size: bytes.byteLength,
          client: headers.get('user-agent')?.slice(0, LONGEST_CLIENT) ?? null,
          traceparent: traceparentOf(headers),
          retry,
        };
        const request = await resolveReferences(deps, trial, asked, { hold, isLight: passToHeavy !== undefined });
        if (!request) return await passToHeavy?.();
        const reopen = () => openTrialOf(deps, trial.id, headers);
        return await answerCall({ trial, request, agent, reopen, release });
      } catch (error) {
        release();
        throw error;
      }
    });
  }
  return app;
}
