import { asc, eq } from 'drizzle-orm';
import { z } from 'zod';
import type { JsonObject } from '../../core/json.ts';
import type { Database } from '../../store/database.ts';
import { readRun } from '../../activities/run/read-run.ts';
import { meantRun } from '../../activities/run/unknown-run.ts';
import { agentName } from '../../activities/sandbox/agent-name.ts';
import { TrialgateError } from '../../core/errors.ts';
import { toolParserAdvice } from '../../core/restart-engine.ts';
import { isInlineAgent } from '../../core/run-config/agent-file.ts';
import { explainUntrainable } from '../../gateway/calls/sampling/explain-untrainable.ts';
import { explainToolsNotShown } from '../../gateway/calls/sampling/tools-not-shown.ts';
import { readCalls } from '../../store/queries/read-calls.ts';
import { readOutputs } from '../../store/queries/outputs.ts';
import { readRefusals } from '../../store/queries/refusals.ts';
import { attempts, trials } from '../../store/schema.ts';

/** What an agent sent is shown as it is. OpenAI's API lets a message with tool calls leave out its content. */
const said = z.looseObject({ content: z.unknown().optional(), tool_calls: z.unknown().optional() });
const request = z.looseObject({
  messages: z
    .array(said.extend({ role: z.string().catch('message') }))
    .catch([])
    .default([]),
  tools: z.array(z.unknown()).default([]).catch([]),
});
const tool = z.object({ function: z.object({ name: z.string() }) });
const reply = z.looseObject({
  choices: z
    .array(
      z.looseObject({
        message: said.optional(),
        text: z.string().optional(),
      }),
    )
    .default([]),
});

export type TrialRecord = Awaited<ReturnType<typeof readTrialRecord>>;

/** Reads a trial with its attempts and calls, as `show TRIAL --json` prints it. */
export async function readTrialRecord(db: Database, trialId: string) {
  const [trial] = await db.select().from(trials).where(eq(trials.id, trialId));
  if (!trial)
    throw new TrialgateError(
      'not_found',
      `there is neither a run nor a trial ${trialId}${await meantRun(db, trialId)}: "npx trialgate show" lists the runs, "npx trialgate trials RUN" the trials of one`,
    );
  const tried = await db.select().from(attempts).where(eq(attempts.trialId, trialId)).orderBy(asc(attempts.attempt));
  const made = (await Promise.all(tried.map(({ attempt }) => readCalls(db, { trialId, attempt }))))
    .flat()
    .toSorted((a, b) => a.startedAt.getTime() - b.startedAt.getTime());
  return {
    ...trial,
    agent_name: await nameOf(db, trial),
    attempts: tried,
    outputs: await readOutputs(db, trialId),
    refusals: (await readRefusals(db, trialId)) ?? { count: 0, latest: [] },
    calls: made.map(({ request: body, response, promptTokenIds, completionTokenIds, logprobs, ...call }) => ({
      ...call,
      digest: call.digest?.toString('hex') ?? null,
      ...askedIn(body),
      reply:
        reply.safeParse(response).data?.choices.map(({ message, text }) => message ?? { content: text })[0] ?? null,
      prompt_tokens: promptTokenIds?.length ?? null,
      completion_tokens: completionTokenIds?.length ?? null,
      logprob_sum: logprobs ? logprobs.reduce((sum, value) => sum + value, 0) : null,
    })),
  };
}

/** In trials that an earlier release opened, `agent` is a label that only the run file explains. */
async function nameOf(db: Database, { runId, agent }: Pick<typeof trials.$inferSelect, 'runId' | 'agent'>) {
  if (agent === null) return null;
  const { agents } = runId !== null && isInlineAgent(agent) ? await readRun(db, runId) : { agents: [] };
  return agentName(agents, agent);
}

/** Sums of decimals end in digits that nobody wrote: 0.1 + 0.7 is 0.7999999999999999. */
const withoutTail = (reward: number): number => Number(reward.toPrecision(12));

/** Returns the trial's conversation. Each call shows only the messages that the call before it lacks. */
export function transcript(trial: TrialRecord): string {
  const rewards = Object.entries(trial.rewards ?? {}).map(([name, value]) => {
    const turns = trial.turnRewards?.[name];
    const sum = `${name} ${withoutTail(value)}`;
    return turns ? `${sum} (by turn ${turns.map(withoutTail).join(', ')})` : sum;
  });
  const lines = [`trial ${trial.id}   task ${trial.task?.split('/').at(-1) ?? '–'}   agent ${trial.agent_name ?? '–'}`];
  lines.push(
    `outcome ${trial.outcome ?? 'open'}   ${rewards.join('   ') || 'no reward'}${trial.reason ? `   (${trial.reason})` : ''}`,
  );
  for (const attempt of trial.attempts) {
    if (trial.attempts.length > 1)
      lines.push('', `── attempt ${attempt.attempt}: ${attempt.outcome ?? 'open'} ${attempt.reason ?? ''}`);
    const { engine_wait: waited } = attempt.seconds;
    if (waited !== undefined) lines.push('', `(it waited ${waited.toFixed(1)} s for its engine)`);
    let shown = 0;
    let tools = '[]';
    for (const call of trial.calls.filter((each) => each.attempt === attempt.attempt)) {
      // The request of a refused call is not kept.
      if (call.messages.length > 0 && JSON.stringify(call.tools) !== tools) {
        tools = JSON.stringify(call.tools);
        lines.push('', '▌tools', call.tools.map(nameOfTool).join(', ') || 'none from here on');
      }
      for (const message of call.messages.slice(shown)) lines.push('', `▌${message.role}`, textOf(message));
      if (call.messages.length > 0) shown = call.messages.length + 1;
      const facts = [
        `policy ${call.policyVersion ?? '–'}`,
        `${call.completion_tokens ?? 0} tokens`,
        call.finishReason ?? call.status,
      ];
      if (call.untrainable) facts.push(`not trainable: ${call.untrainable}`);
      if (call.reason) facts.push(call.reason);
      lines.push('', `▌assistant   [${facts.join(', ')}]`, textOf(call.reply ?? {}));
    }
    for (const { program, stdout, stderr } of trial.outputs.filter((each) => each.attempt === attempt.attempt)) {
      const heading = program.endsWith(' network') ? `${program}, other hosts` : `${program}, standard output`;
      if (stdout.trim()) lines.push('', `▌${heading}`, stdout.trimEnd());
      if (stderr.trim()) lines.push('', `▌${program}, standard error`, stderr.trimEnd());
    }
  }
  const { count, latest } = trial.refusals;
  if (count > 0) lines.push('', `── ${count} request(s) were refused and made no call; the latest ${latest.length}:`);
  for (const { at, attempt, status, code, message, ...each } of latest)
    lines.push(`${at}   attempt ${attempt}   ${each.request}   ${status} ${code}: ${message}`);
  const advice = adviceOn(trial);
  if (advice.length > 0) lines.push('', ...advice.map((each) => `── ${each}`));
  return lines.join('\n');
}

const PACKAGES =
  'the packages that an agent imports are named in its agent file, and installed for it (docs/agents.md#packages); those of an image are installed in the image';

/** Says which packages are missing, why calls are not trained or were refused, and what the model was not shown, each reason once. */
function adviceOn({ calls, outcome, reason }: Pick<TrialRecord, 'calls' | 'outcome' | 'reason'>): string[] {
  const packages = outcome === 'agent_error' && reason?.includes('ModuleNotFoundError: ') ? [PACKAGES] : [];
  const why = calls.flatMap((call) => explainUntrainable(call) ?? []);
  const untrained = [...Map.groupBy(why, (each) => each)].map(
    ([sentence, { length }]) => `${length} ${length === 1 ? 'call is' : 'calls are'} not trained: ${sentence}`,
  );
  return [
    ...packages,
    ...untrained,
    ...new Set(calls.flatMap((call) => toolParserAdvice(call) ?? [])),
    ...toolNotices(calls),
  ];
}

/** Returns a sentence for each number of tools that requests had and the model was not shown. */
export const toolNotices = (calls: readonly Pick<TrialRecord['calls'][number], 'sampling'>[]): string[] => [
  ...new Set(calls.flatMap((call) => explainToolsNotShown(call) ?? [])),
];

const nameOfTool = (sent: unknown): string => tool.safeParse(sent).data?.function.name ?? JSON.stringify(sent);

const toolCall = z.object({ function: z.object({ name: z.string(), arguments: z.string() }) });
const textPart = z.object({ type: z.literal('text'), text: z.string() });

/** Returns a message as text: its content, and each tool call on a line. Parts and calls of other forms stay JSON. */
function textOf({ content, tool_calls: calls }: z.output<typeof said>): string {
  const text = Array.isArray(content)
    ? content.map((part: unknown) => textPart.safeParse(part).data?.text ?? JSON.stringify(part)).join('\n')
    : typeof content === 'string'
      ? content
      : JSON.stringify(content ?? '').replace(/^""$/, '');
  const called = (Array.isArray(calls) ? calls : []).map((call: unknown) => {
    const { function: made } = toolCall.safeParse(call).data ?? {};
    return `→ ${made ? `${made.name}(${made.arguments})` : JSON.stringify(call)}`;
  });
  return [...(text === '' && called.length > 0 ? [] : [text]), ...called].join('\n');
}

/** Returns the request's messages and tools. The prompt of a text completion counts as a user's message. */
function askedIn(body: JsonObject) {
  const { messages, tools } = request.parse(body);
  return { messages: 'prompt' in body ? [{ role: 'user', content: body.prompt }] : messages, tools };
}
