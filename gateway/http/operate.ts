import { Hono } from 'hono';
import { RUN_ID } from '../../core/ids.ts';
import { failureFields } from '../../core/log.ts';
import { check } from '../check.ts';
import { Failure, shuttingDown, toFailure } from '../failure.ts';
import { parseBody } from '../json.ts';
import { jsonLines } from '../reply-formats.ts';
import { requireAdmin } from './auth.ts';
import { readBody } from './bodies/read-body.ts';
import type { GatewayDeps, GatewayEnv } from './deps.ts';
import { runStart, runVerb } from './openapi/run-schemas.ts';
import type { RunStart, RunVerb, VerbReply } from './openapi/run-schemas.ts';
import { requireJson, requireSameOrigin } from './same-origin.ts';
import { startLines } from './start-lines.ts';

/**
 * Does what a person asks of a run, as the command of that name does. It has the same checks and messages.
 * @throws TrialgateError as the command does
 */
export type OperateRun = (runId: string, asked: RunVerb, signal: AbortSignal) => Promise<VerbReply>;

/**
 * Checks and starts a run, as `npx trialgate train` does, with the same messages. `report` gets what is done, and warnings.
 * @throws TrialgateError as the command does
 */
export type StartRun = (asked: RunStart, report: (line: string) => void, signal: AbortSignal) => Promise<VerbReply>;

/** The body holds a few values, and at most a run file. */
const MAX_BYTES = 2 ** 19;
/** Each verb under way may take some hundred megabytes. */
const MOST_UNDER_WAY = 2;

/** Starts, pauses and ends runs for the page and for programs, where the gateway knows how. */
export function operateRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  const { adminKey, operateRun, startRun, stopping } = deps;
  // A cancel waits for no other verb.
  const [cancels, others] = [oncePerRun(1), oncePerRun(MOST_UNDER_WAY)];
  let isStarting = false;

  const bodyOf = async (raw: Request): Promise<unknown> => {
    requireAdmin(deps, raw.headers);
    if (adminKey === null) requireSameOrigin(raw);
    requireJson(raw.headers);
    const { bytes } = await readBody(raw, { ...deps.settings, maxBodyBytes: MAX_BYTES });
    return parseBody(bytes);
  };

  /** Logs a failure that no other place logs. Its stack has its causes, which another thread had. */
  const logged = (error: unknown): void => {
    const why = error instanceof Error ? (error.stack ?? error.message) : String(error);
    deps.log(`a run was not started or changed: ${why}`, { level: 'error', error: failureFields(error).error });
  };

  app.post('/runs', async (c) => {
    const asked = check(runStart, await bodyOf(c.req.raw));
    if (!startRun) throw notOperable(`npx trialgate train ${asked.file_name ?? 'FILE'}`);
    if (stopping.aborted) throw shuttingDown();
    if (isStarting) throw busy('another run is being checked before its start');
    isStarting = true;
    const answer = async (report: (line: string) => void): Promise<VerbReply> => {
      try {
        return await startRun(asked, report, stopping);
      } catch (error) {
        throw stopping.aborted && error === stopping.reason ? notStarted() : error;
      } finally {
        isStarting = false;
      }
    };
    return jsonLines(startLines(answer, { logged }), { cut: c.env?.cut, log: deps.log });
  });

  app.post('/runs/:run', async (c) => {
    const asked = check(runVerb, await bodyOf(c.req.raw));
    const runId = c.req.param('run');
    if (!RUN_ID.test(runId))
      throw new Failure(404, 'not_found', `there is no run ${JSON.stringify(runId)}`, { retryable: false });
    if (!operateRun) throw notOperable(commandOf(runId, asked));
    if (stopping.aborted) throw shuttingDown();
    const once = asked.verb === 'cancel' ? cancels : others;
    try {
      return c.json(await once(runId, asked, () => operateRun(runId, asked, stopping)));
    } catch (error) {
      if (toFailure(error).code === 'store_unavailable') logged(error);
      throw stopping.aborted && error === stopping.reason ? unanswered(runId, asked) : error;
    }
  });
  return app;
}

/** Returns a function that does one verb of a run at a time, and those of so many runs. Who asks for the same meanwhile gets the same reply. */
function oncePerRun(most: number) {
  const underWay = new Map<string, { asked: RunVerb; reply: Promise<VerbReply> }>();
  return async (runId: string, asked: RunVerb, ask: () => Promise<VerbReply>): Promise<VerbReply> => {
    const now = underWay.get(runId);
    if (now && JSON.stringify(now.asked) === JSON.stringify(asked)) return now.reply;
    if (now) throw busy(`run ${runId} has not yet answered to ${now.asked.verb}`);
    if (underWay.size >= most) throw busy('other runs have not yet answered');
    const reply = ask().finally(() => underWay.delete(runId));
    underWay.set(runId, { asked, reply });
    return reply;
  };
}

const busy = (why: string) =>
  new Failure(503, 'verb_under_way', `${why}: nothing was changed, try again when that has ended`, {
    headers: { 'retry-after': '5' },
  });

const unanswered = (runId: string, asked: RunVerb) =>
  new Failure(
    503,
    'verb_unanswered',
    `the gateway stopped before run ${runId} answered to ${asked.verb}: it may have followed, so look at its status before you ask again`,
    { retryable: false },
  );

const notStarted = () =>
  new Failure(
    503,
    'verb_unanswered',
    'the gateway stopped before it had checked and started the run: look for it in the list of runs before you start it again',
    { retryable: false },
  );

/** The command to type in place of the request. */
const commandOf = (runId: string, asked: RunVerb): string =>
  `npx trialgate ${asked.verb} ${runId}${asked.verb === 'fork' ? `@${asked.version}` : ''}`;

const notOperable = (command: string) =>
  new Failure(
    501,
    'not_operable',
    `this gateway changes no runs, because it was started without the address of Temporal or without an admin key: type \`${command}\` where the deployment runs`,
    { retryable: false },
  );
