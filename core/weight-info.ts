import { z } from 'zod';

/** The route at which each kind of engine reports the weight version of its weights. */
export const WEIGHT_ROUTES = { vllm: '/weight_info', sglang: '/model_info' } as const;

/** A weight version with half a surrogate pair could not be written into a URL or a request. */
const weightInfo = z.object({ weight_version: z.string().transform((weightVersion) => weightVersion.toWellFormed()) });

/** Returns the weight version in a reply from such a route; null when the reply has none. */
export const weightVersionIn = (reply: unknown): string | null =>
  weightInfo.safeParse(reply).data?.weight_version ?? null;
