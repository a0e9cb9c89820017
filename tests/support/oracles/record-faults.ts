import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { startsWith } from '../../../core/token-ids.ts';
import type { Step } from '../scenarios/converse.ts';
import { same, type TurnMatcher } from '../scenarios/generated.ts';
import { textOf, type Reading } from './readings.ts';
import { sampleFaults } from './sample-faults.ts';
import { isVisibleText, showsPrompt, cutAtStop } from './visible-text-oracle.ts';

const ids = z.array(z.number());
const turn = z
  .object({
    call_id: z.string(),
    prompt_token_ids: ids,
    completion_token_ids: ids,
    completion_logprobs: ids,
    completion_text: z.string(),
    tool_calls: z
      .array(z.object({ id: z.string(), function: z.object({ name: z.string(), arguments: z.string() }) }))
      .nullable(),
    policy_version: z.number().nullable(),
    version_spans: z.array(z.object({ version: z.number(), start: z.number(), end: z.number() })).nullable(),
    continuation: z.string().nullable(),
    parent_call_id: z.string().nullable(),
    untrainable: z.string().nullable(),
  })
  .transform(
    ({
      prompt_token_ids: prompt,
      completion_token_ids: completion,
      completion_logprobs: logprobs,
      policy_version,
      version_spans,
      ...said
    }) => {
      const versions =
        version_spans?.flatMap(({ version, start, end }) => Array<number>(end - start).fill(version)) ??
        completion.map(() => policy_version);
      return { ...said, prompt, completion, logprobs, versions };
    },
  );
const session = z.object({ turns: z.array(turn) });
type Turn = z.output<typeof turn>;

export type Observation = {
  steps: Step[];
  /** The replies of `GET /sessions/{id}` and `/samples`. */
  session: unknown;
  samples: unknown;
  reading: Reading;
  matches: TurnMatcher;
};

/** Lists where a trial's record or samples differ from what its agent saw, or from what the engine was given and gave. */
export async function recordFaults({
  steps,
  session: record,
  samples,
  reading,
  matches,
}: Observation): Promise<string[]> {
  const { turns } = session.parse(record);
  const faults = turns.length === steps.length ? [] : [`${steps.length} calls were made, and ${turns.length} recorded`];
  for (const [i, each] of turns.entries()) {
    if (!matches(each, i)) faults.push(`turn ${i} differs from what the engine was given or gave`);
    const step = steps[i];
    if (!step) continue;
    const found = [await replyFault(step, each, reading), await promptFault({ steps, turns, reading }, i)];
    faults.push(...found.flatMap((fault) => (fault === null ? [] : [`turn ${i} ${fault}`])));
  }
  return [...faults, ...sampleFaults(samples, new Map(turns.map((each) => [each.call_id, each])))];
}

async function replyFault(
  step: Step,
  { completion_text, tool_calls, prompt, completion }: Turn,
  reading: Reading,
): Promise<string | null> {
  const { decode, parses } = reading;
  const seen = step.calls.map(({ id, function: { name, arguments: given } }) => ({
    id,
    function: { name, arguments: given },
  }));
  if (step.text !== completion_text || !isDeepStrictEqual(seen, tool_calls ?? [])) {
    return `was seen as ${JSON.stringify([step.text, seen])} and recorded as ${JSON.stringify([completion_text, tool_calls])}`;
  }
  const whole = await decode(completion);
  const said = { ...step, text: reading.plain(step.text) };
  const isShown =
    (reading.isShown?.(said, whole) ?? isVisibleText(said, whole, { parses, within: false })) ||
    ((await decode(prompt)).endsWith('\uFFFD') && isVisibleText(said, whole, { parses, within: true })) ||
    (await repeatsPrompt(said, { prompt, completion }, reading));
  return isShown ? null : `was seen as ${JSON.stringify([step.text, seen])}, and its ids say ${JSON.stringify(whole)}`;
}

/** The stop string matches in the repeated prompt at the token that ends the character, before which nothing is shown. */
async function repeatsPrompt(
  step: Step,
  { prompt, completion }: Pick<Turn, 'prompt' | 'completion'>,
  { repeats, decode }: Reading,
): Promise<boolean> {
  if (!repeats || !(await decode(prompt)).endsWith('\uFFFD')) return false;
  const [before, both] = [
    await decode([...prompt, ...completion.slice(0, -1)]),
    await decode([...prompt, ...completion]),
  ];
  return (before.endsWith('\uFFFD') || cutAtStop(before, step.asked.stop) === null) && showsPrompt(step, both);
}

type All = { steps: Step[]; turns: Turn[]; reading: Reading };

/**
 * Returns a fault unless the prompt is what its agent asked for: after the ids of the continued turn exactly what the agent added, else the
 * whole request.
 */
async function promptFault(all: All, i: number): Promise<string | null> {
  const { steps, turns, reading } = all;
  const [step, each] = [steps[i], turns[i]];
  if (!step || !each) return null;
  const { asked, after } = step;
  if (!after) {
    if (each.continuation === 'clean') return 'is glued onto what it does not continue';
    return (await reads(each.prompt, reading.written(asked), reading))
      ? null
      : 'has another prompt than its agent asked for';
  }
  if (each.continuation !== 'clean' && (await mayDrift(all, step))) {
    return (await reads(each.prompt, reading.written(asked), reading))
      ? null
      : 'has another prompt than its agent asked for';
  }
  const from = turns.findIndex(({ call_id }) => call_id === each.parent_call_id);
  const before = turns[from];
  const past = before ? [...before.prompt, ...before.completion] : [];
  if (each.continuation !== 'clean' || !before || !startsWith(each.prompt, past)) {
    const [other, said] = [steps[after.step], await reading.decode(turns[after.step]?.completion ?? [])];
    return `is ${each.continuation}: it asks ${JSON.stringify(asked)} after ${JSON.stringify([other?.asked, other?.text])}, whose ids say ${JSON.stringify(said)}`;
  }
  const added = await addedTo(all, step, from);
  if (added === null) return `goes on from turn ${from}, and its agent from turn ${after.step}`;
  return (await reads(each.prompt.slice(past.length), added, reading))
    ? null
    : 'has another prompt than its agent went on with';
}

const stopOf = async ({ steps, turns, reading }: All, at: number) =>
  cutAtStop(await reading.decode(turns[at]?.completion ?? []), steps[at]?.asked.stop);

/**
 * True where drift is allowed: a parser changes what a stop string cut, or the ids alone read differently than that string and the text
 * before it.
 */
async function mayDrift(all: All, { asked, after }: Step): Promise<boolean> {
  if (typeof asked.prompt !== 'string') return all.reading.parses && asked.stop !== undefined;
  const at = after?.step ?? -1;
  const [found, step, before] = [await stopOf(all, at), all.steps[at], all.turns[at]];
  if (!step || !before) return false;
  const said = { ...step, text: all.reading.plain(step.text) };
  return found ? found.rest !== '' || found.text !== said.text : repeatsPrompt(said, before, all.reading);
}

/** Returns what a step adds to a turn, or null if it does not continue that turn's reply. */
async function addedTo(all: All, { asked, after }: Step, from: number): Promise<number[] | string | null> {
  const { steps, turns, reading } = all;
  const [parent, other] = [steps[from], steps[after?.step ?? -1]];
  if (!after || !parent || !other) return null;
  if (typeof asked.prompt === 'string') {
    // An agent that continues after a stop string writes it itself, and the ids have it.
    const { stop = '', rest = '' } = (await stopOf(all, from)) ?? {};
    const past = `${parent.asked.prompt}${parent.text}${stop}${rest}`;
    return asked.prompt.startsWith(past) ? reading.written({ prompt: asked.prompt.slice(past.length) }) : null;
  }
  return isSameTalk(parent, other)
    ? reading.written(asked, { messages: after.messages, completion: turns[from]?.completion ?? [] })
    : null;
}

/** True when two steps have the same conversation, which may occur by chance. */
function isSameTalk(one: Step, other: Step): boolean {
  const [a, b] = [one, other].map(({ asked, text, calls }) => {
    const messages = z.array(z.record(z.string(), z.unknown())).parse(asked.messages);
    return {
      tools: asked.tools,
      messages: messages.map(({ role, content, tool_calls, tool_call_id }) => [
        role,
        textOf(content),
        tool_calls,
        tool_call_id,
      ]),
      text,
      calls,
    };
  });
  return isDeepStrictEqual(a, b);
}

const reads = async (prompt: number[], written: number[] | string, { decode }: Reading): Promise<boolean> =>
  typeof written === 'string' ? (await decode(prompt)) === written : same(prompt, written);
