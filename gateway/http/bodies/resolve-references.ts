import type { TrialNow } from '../../../store/queries/find-trials.ts';
import { readCall } from '../../../store/queries/read-call.ts';
import { TooMuchToRead } from '../../../store/queries/read-limit.ts';
import { readReplies } from '../../../store/queries/read-replies.ts';
import type { ModelRequest } from '../../protocols/model-request.ts';
import type { GatewayDeps } from '../deps.ts';
import { Failure } from '../../failure.ts';
import { HEAVY_BYTES, HEAVY_NODES } from './heavy.ts';
import { isObject } from '../../json.ts';
import { isTooComplex, JsonBounds } from './json-bounds.ts';
import { withStoreRetry } from '../../with-store-retry.ts';
import { onlyChoice } from '../../protocols/message-parts.ts';
import type { Hold } from './read-body.ts';

/** `isLight`: leaves requests that would block this thread to the heavy thread. */
type Bounds = { hold: Hold; isLight: boolean };

/**
 * Returns the request with the content of the recorded calls that it names by id, whichever process recorded them. The content has the
 * limits of a body and counts as bytes of an open call, because a small body can name much of it. Returns null when it is too much for this
 * thread.
 */
export async function resolveReferences<R extends ModelRequest>(
  deps: GatewayDeps,
  { id: trialId, attempt }: TrialNow,
  request: R,
  { hold, isLight }: Bounds,
): Promise<R | null> {
  const { fromRecord } = request;
  if (!fromRecord) return request;
  const { maxBodyBytes, maxBodyNodes } = deps.settings;
  const maxBytes = isLight ? HEAVY_BYTES : maxBodyBytes;
  const bounds = new JsonBounds({ maxBodyNodes: isLight ? HEAVY_NODES : maxBodyNodes, maxBodyDepth: Infinity });
  const limit = { maxBytes, onRead: (json: Uint8Array) => bounds.add(json) };
  let gained = 0;
  try {
    const resolved = await fromRecord({
      call: async (id) => {
        const call = await withStoreRetry(deps, () => readCall(deps.db, { trialId, attempt, id }, limit));
        // The empty reply after a used-up budget also counts, although it is recorded as failed.
        const message = call?.httpStatus === 200 ? onlyChoice(call.response ?? {}).message : null;
        return call && isObject(message) ? { request: call.request, message } : null;
      },
      replies: (ids) => withStoreRetry(deps, () => readReplies(deps.db, { trialId, attempt, ids }, limit)),
      gain: (bytes) => {
        gained += bytes;
        if (gained > maxBytes) throw new TooMuchToRead(gained);
        hold(bytes);
      },
    });
    return { ...request, ...resolved };
  } catch (error) {
    const isTooMuch = error instanceof TooMuchToRead || isTooComplex(error);
    if (isTooMuch && isLight) return null;
    throw error instanceof TooMuchToRead ? tooLarge(maxBodyBytes) : error;
  }
}

const tooLarge = (maxBodyBytes: number) =>
  new Failure(
    413,
    'request_too_large',
    `the recorded calls that the request names are larger than ${maxBodyBytes} bytes (setting max_body_bytes): send the part of the conversation that is needed`,
    { retryable: false },
  );
