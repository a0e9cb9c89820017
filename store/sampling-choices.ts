import { z } from 'zod';

const choice = (value: z.ZodNumber) => z.union([value, z.strictObject({ default: value }), z.literal('agent')], 'a number, {default: number}, or `agent`');

/** How a trial's calls are to be sampled, by vLLM's names. */
export const samplingChoices = z
  .strictObject({
    temperature: choice(z.number().min(0)),
    top_p: choice(z.number().gt(0).max(1)),
    /** -1 switches it off. */
    top_k: choice(z.int().min(-1)),
    min_p: choice(z.number().min(0).max(1)),
    presence_penalty: choice(z.number()),
    frequency_penalty: choice(z.number()),
    repetition_penalty: choice(z.number().gt(0)),
    max_tokens: choice(z.int().min(1)),
    seed: choice(z.int()),
    /** The means that hold a reply to a form (a forced tool, a schema): the engine's grammar, or words in the prompt, which leave all tokens possible. */
    constrained_decoding: z.enum(['enforce', 'hint']),
  })
  .partial();

/** A number is forced, a default set where the agent does not choose, `agent` leaves it to it. */
export type Sampling = z.output<typeof samplingChoices>;
