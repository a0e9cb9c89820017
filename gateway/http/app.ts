import { Hono, type Context } from 'hono';
import { failureFields } from '../../core/log.ts';
import { requireReader } from './auth.ts';
import { opensByUrl } from './sessions/verl.ts';
import type { GatewayDeps, GatewayEnv } from './deps.ts';
import { errorResponse, Failure, toFailure } from '../failure.ts';
import { noteRefusal } from './note-refusal.ts';
import { withRequestId } from '../request-id.ts';
import { protocolOf } from '../protocols/all.ts';
import { checkpointRoutes } from './checkpoints.ts';
import { countTokensRoutes } from './count-tokens.ts';
import { deploymentRoutes } from './deployment.ts';
import { docsRoutes } from './openapi/docs.ts';
import { engineRoutes } from './engines.ts';
import { healthRoutes } from './health.ts';
import { modelRoutes } from './models.ts';
import { modelCallRoutes } from './model-calls.ts';
import { externalRoutes } from './sessions/external.ts';
import { relayRoutes } from './relay.ts';
import { rewardRoutes } from './sessions/rewards.ts';
import { sessionListRoutes } from './sessions/session-list.ts';
import { sessionRoutes } from './sessions/sessions.ts';
import { transcriptRoutes } from './sessions/transcript.ts';
import { operateRoutes } from './operate.ts';
import { pageRoutes } from './page.ts';
import { runRoutes } from './runs.ts';

/** Creates the gateway for any runtime with web-standard requests. */
export function createGateway(deps: GatewayDeps): Hono<GatewayEnv> {
  // Ignores a slash at the end of a path.
  const app = new Hono<GatewayEnv>({ strict: false });
  for (const path of [
    '/sessions',
    '/sessions/*',
    '/runs',
    '/runs/*',
    '/health',
    '/metrics',
    '/openapi.json',
    '/docs',
    '/docs/*',
    '/relay/*',
    '/engines',
    '/deployment',
    '/ui',
    '/ui/*',
  ])
    app.use(path, withRequestId);
  app.route('/', healthRoutes(deps));
  app.route('/', docsRoutes(deps));
  app.route('/', engineRoutes(deps));
  app.route('/', deploymentRoutes(deps));
  app.route('/', relayRoutes(deps));
  app.route('/', checkpointRoutes(deps));
  app.route('/', pageRoutes(deps));
  app.route('/', runRoutes(deps));
  app.route('/', operateRoutes(deps));
  app.route('/', rewardRoutes(deps));
  app.route('/', externalRoutes(deps));
  app.use('/sessions/*', async (c, next) => {
    if (!(await opensByUrl(deps, c.req.raw))) requireReader(deps, c.req.raw);
    await next();
  });
  app.route('/', sessionListRoutes(deps));
  app.route('/', sessionRoutes(deps));
  app.route('/', transcriptRoutes(deps));
  app.route('/', modelCallRoutes(deps));
  app.route('/', countTokensRoutes(deps));
  app.route('/', modelRoutes(deps));
  const refuse = (c: Context<GatewayEnv>, error: Error) => {
    const failure = toFailure(error);
    const protocol = protocolOf(c.req.path);
    noteRefusal(deps, c, failure, protocol);
    if (failure.status === 500) {
      const because =
        failure.cause instanceof Error && failure.cause !== error ? `; because of ${failure.cause.stack}` : '';
      deps.log(`${c.req.method} ${c.req.path}: ${String(error)}${because}`, {
        level: 'error',
        ...failureFields(error),
      });
    }
    return errorResponse(failure, protocol);
  };
  app.notFound((c) =>
    refuse(
      c,
      c.req.header('upgrade')?.toLowerCase() === 'websocket' ? noWebSocket() : noRoute(c.req.method, c.req.path),
    ),
  );
  app.onError((error, c) => refuse(c, error));
  return app;
}

const noRoute = (method: string, path: string) =>
  new Failure(404, 'not_found', `this gateway has no route ${method} ${path}: its routes are at /docs`);

/** A client that speaks WebSockets falls back to HTTP at once on this status. On other statuses it first tries several times. */
const noWebSocket = () =>
  new Failure(426, 'upgrade_required', 'this gateway does not support WebSockets: send the request by HTTP', {
    retryable: false,
    headers: { upgrade: 'HTTP/1.1' },
  });
