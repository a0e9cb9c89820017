import { z } from 'zod';

/** The route at which vLLM reports the label that it serves its weights under. */
export const WEIGHT_INFO = '/weight_info';

/** A label with half a surrogate pair could not be written into a URL or a request. */
const weightInfo = z.object({ weight_version: z.string().transform((label) => label.toWellFormed()) });

/** Returns the label in a reply from this route; null when the reply has none. */
export const labelIn = (reply: unknown): string | null => weightInfo.safeParse(reply).data?.weight_version ?? null;
