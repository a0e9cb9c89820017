import { z } from 'zod';

const choice = (value: z.ZodNumber) =>
  z.union([value, z.strictObject({ default: value }), z.literal('agent')], 'a number, {default: number}, or `agent`');
const texts = z.array(z.string().min(1)).min(1);

/** Whether the thinking of earlier replies stays in a prompt: as the model's chat template has it, always, or never. */
export const keepThinking = z.enum(['as_template', 'always', 'never']);
export type KeepThinking = z.output<typeof keepThinking>;

/** The settings by which a trial's calls are sampled, with vLLM's names. */
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
    /** The texts at which a reply ends. */
    stop: z.union(
      [texts, z.strictObject({ default: texts }), z.literal('agent')],
      'a list of texts, {default: a list of texts}, or `agent`',
    ),
    /** Variables of the model's chat template, such as `enable_thinking`. They override the agent's. */
    chat_template_kwargs: z.record(z.string(), z.unknown()),
    /**
     * The way in which a forced tool or a schema determines the form of the reply: by the engine's grammar, or by words in the prompt,
     * which exclude no token.
     */
    constrained_decoding: z.enum(['enforce', 'hint']),
    keep_thinking: keepThinking,
  })
  .partial();

/** A plain value is forced on each call, a default applies where the agent does not choose, and `agent` leaves the choice to the agent. */
export type Sampling = z.output<typeof samplingChoices>;
