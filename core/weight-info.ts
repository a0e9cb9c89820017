import { z } from 'zod';

/** The route at which vLLM reports the weight version that it serves its weights under. */
export const WEIGHT_INFO = '/weight_info';

/** A weight version with half a surrogate pair could not be written into a URL or a request. */
const weightInfo = z.object({ weight_version: z.string().transform((weightVersion) => weightVersion.toWellFormed()) });

/** Returns the weight version in a reply from this route; null when the reply has none. */
export const weightVersionIn = (reply: unknown): string | null =>
  weightInfo.safeParse(reply).data?.weight_version ?? null;
