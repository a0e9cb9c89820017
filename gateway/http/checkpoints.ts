import { Hono } from 'hono';
import { Failure } from '../failure.ts';
import {
  CHECKPOINTS,
  isCheckpointName,
  NO_CHECKPOINT,
  type CheckpointFile,
  type CheckpointReader,
} from '../relay/checkpoints.ts';
import { requireAdmin } from './auth.ts';
import type { GatewayDeps } from './deps.ts';
import { streamOf } from './stream-of.ts';

/**
 * Gives relay workers the files of checkpoints that their engines load. A file is asked for by its digest in the checkpoint's list, so no
 * request names a path.
 */
export function checkpointRoutes(deps: Pick<GatewayDeps, 'relay' | 'checkpoints' | 'adminKey'>): Hono {
  const app = new Hono();
  const { relay, checkpoints } = deps;
  if (!relay || !checkpoints) return app;
  app.use(`${CHECKPOINTS}/*`, async (c, next) => {
    requireAdmin(deps, c.req.raw.headers);
    await next();
  });
  app.get(`${CHECKPOINTS}/:name`, async (c) => c.json({ files: await listOf(checkpoints, c.req.param('name')) }));
  app.get(`${CHECKPOINTS}/:name/:sha256`, async (c) => {
    const { name, sha256 } = c.req.param();
    const files = await listOf(checkpoints, name);
    const file = files.find((each) => each.sha256 === sha256);
    if (!file) throw notFound(`checkpoint ${name} has no file of this digest`);
    return reply(checkpoints, name, file, c.req.header('range'));
  });
  return app;
}

async function listOf(checkpoints: CheckpointReader, name: string): Promise<CheckpointFile[]> {
  const files = isCheckpointName(name) ? await checkpoints.list(name) : null;
  if (files) return files;
  throw notFound(
    `this gateway sees no checkpoint ${name}: it was removed, or the gateway was started with another --home than the deployment's`,
  );
}

const notFound = (message: string) => new Failure(404, NO_CHECKPOINT, message, { retryable: false });

/** Answers with the file from the byte at which the range begins. A range of another form is ignored, as HTTP allows. */
function reply(checkpoints: CheckpointReader, name: string, file: CheckpointFile, range: string | undefined): Response {
  const { bytes } = file;
  const from = Number(/^bytes=(\d{1,15})-$/.exec(range ?? '')?.[1] ?? 0);
  if (from > 0 && from >= bytes)
    throw new Failure(416, 'range_not_satisfiable', `this file has ${bytes} bytes`, { retryable: false });
  return new Response(streamOf(checkpoints.read(name, file, from)), {
    status: from === 0 ? 200 : 206,
    headers: {
      'content-type': 'application/octet-stream',
      'content-length': String(bytes - from),
      'accept-ranges': 'bytes',
      ...(from === 0 ? {} : { 'content-range': `bytes ${from}-${bytes - 1}/${bytes}` }),
    },
  });
}
