import { stringifyExact } from '../../core/exact-json.ts';
import { isObject, type JsonObject } from '../../core/json.ts';
import type { choicesOf } from '../../store/calls/choices.ts';
import type { calls, trials } from '../../store/schema.ts';

/** A span as mlflow has it. Times are in milliseconds. */
export type Span = {
  name: string;
  type: 'AGENT' | 'CHAT_MODEL' | 'LLM' | 'TOOL';
  start: number;
  end: number;
  inputs?: unknown;
  outputs?: unknown;
  attributes?: JsonObject;
  /** The reason why it failed; absent: it did not. */
  error?: string;
};

/** A trial as a trace. The first span is the trial, and the others are below it: its calls, and the tool calls of their replies. */
export type TrialTrace = { id: string; tags: Record<string, string>; rewards: Record<string, number>; spans: Span[] };

export type TracedTrial = Pick<
  typeof trials.$inferSelect,
  | 'id'
  | 'runId'
  | 'groupId'
  | 'task'
  | 'attempt'
  | 'outcome'
  | 'reason'
  | 'rewards'
  | 'policyVersion'
  | 'recorded'
  | 'attemptOpenedAt'
  | 'sealedAt'
> & { agent: string; kind: string };
export type TracedCall = Pick<
  typeof calls.$inferSelect,
  | 'status'
  | 'reason'
  | 'httpStatus'
  | 'finishReason'
  | 'policyVersion'
  | 'continuation'
  | 'untrainable'
  | 'startedAt'
  | 'firstTokenAt'
  | 'endedAt'
> & {
  request: JsonObject;
  choices: ReturnType<typeof choicesOf>;
  /** Null for a further reply of a request, whose prompt counts once, and when the engine returned none. */
  promptTokens: number | null;
  completionTokens: number | null;
};

/** The most characters of one text, of one message, of all messages of a request, and of another value. */
const MOST_TEXT = 4_000;
const MOST_MESSAGE = 16_000;
const MOST_MESSAGES = 32_000;
const MOST_VALUE = 16_000;
const MOST_TAG = 500;

/** Ends in which the trial itself did not fail. */
const GOOD_ENDS: readonly (string | null)[] = ['scored', 'truncated'];

/** Makes a trace of a trial and the calls of its last attempt. What is long is cut, and says so. */
export async function trialTrace(trial: TracedTrial, made: AsyncIterable<TracedCall>): Promise<TrialTrace> {
  const below: Span[] = [];
  /** The tool calls whose results no request has brought yet, by id. */
  const open = new Map<string, Span>();
  const sizes: Sizes = new WeakMap();
  let traced = 0;
  for await (const call of made) {
    traced += 1;
    takeResults(call, open);
    below.push(callSpan(call, traced, sizes));
    for (const [id, span] of toolSpans(call)) {
      below.push(span);
      if (id !== null) open.set(id, span);
    }
  }
  const times = below.flatMap(({ start, end }) => [start, end]);
  const opened = trial.attemptOpenedAt.getTime();
  const left = trial.recorded - traced;
  const { outcome, reason, rewards, attempt, agent } = trial;
  const root: Span = {
    name: trial.task?.split('/').findLast((part) => part !== '') ?? trial.id,
    type: 'AGENT',
    start: Math.min(opened, ...times),
    end: Math.max(trial.sealedAt?.getTime() ?? opened, ...times),
    inputs: { task: trial.task, agent },
    outputs: { outcome, rewards: rewards ?? {}, ...(reason === null ? {} : { reason: cutText(reason, MOST_TEXT) }) },
    attributes: {
      'trialgate.attempt': attempt,
      ...(left > 0 ? { 'trialgate.note': `${left} further calls are left out: the record has them` } : {}),
    },
    ...(GOOD_ENDS.includes(outcome) ? {} : { error: cutText(reason ?? outcome ?? 'open', MOST_TEXT) }),
  };
  const tags = {
    run: trial.runId,
    trial: trial.id,
    trial_group: trial.groupId,
    kind: trial.kind,
    task: trial.task,
    agent,
    outcome,
    reason,
    policy_version: trial.policyVersion,
    attempt,
  };
  return {
    id: trial.id,
    tags: Object.fromEntries(
      Object.entries(tags).flatMap(([name, value]) =>
        value === null ? [] : [[`trialgate.${name}`, cutText(String(value), MOST_TAG)]],
      ),
    ),
    rewards: rewards ?? {},
    spans: [root, ...below],
  };
}

function callSpan(call: TracedCall, number: number, sizes: Sizes): Span {
  const { status, finishReason, policyVersion, continuation, untrainable, startedAt, firstTokenAt, endedAt } = call;
  const { messages, tools, prompt, ...fields } = call.request;
  const isText = prompt !== undefined;
  const shownTools = tools === undefined ? undefined : bounded(tools, MOST_VALUE);
  const facts = {
    policy_version: policyVersion,
    finish_reason: finishReason,
    continuation,
    untrainable,
    seconds_to_first_token: firstTokenAt && (firstTokenAt.getTime() - startedAt.getTime()) / 1000,
  };
  const known = Object.entries(facts).filter(([, value]) => value !== null);
  const input = call.promptTokens ?? 0;
  const output = call.completionTokens ?? 0;
  const replies = call.choices.map(({ message, text, finish_reason: finish }) =>
    bounded({ ...(isText ? { text } : { message }), finish_reason: finish }, MOST_MESSAGE),
  );
  return {
    name: `call ${number}`,
    type: isText ? 'LLM' : 'CHAT_MODEL',
    start: startedAt.getTime(),
    end: endedAt.getTime(),
    inputs: {
      ...(isText ? { prompt: bounded(prompt, MOST_MESSAGES) } : { messages: fitting(messages, sizes) }),
      ...(shownTools === undefined ? {} : { tools: shownTools }),
      ...ownFields(bounded(fields, MOST_VALUE)),
    },
    ...(replies.length > 0 ? { outputs: { choices: replies } } : {}),
    attributes: {
      'mlflow.message.format': 'openai',
      ...(typeof fields['model'] === 'string' ? { 'mlflow.llm.model': cutText(fields['model'], MOST_TAG) } : {}),
      ...(Array.isArray(shownTools) ? { 'mlflow.chat.tools': shownTools } : {}),
      ...(input + output > 0
        ? {
            'mlflow.chat.tokenUsage': { input_tokens: input, output_tokens: output, total_tokens: input + output },
          }
        : {}),
      ...Object.fromEntries(known.map(([name, value]) => [`trialgate.${name}`, value])),
    },
    ...(status === 'completed'
      ? {}
      : { error: cutText(call.reason ?? `${status}, HTTP ${call.httpStatus}`, MOST_TEXT) }),
  };
}

const ownFields = (fields: unknown): JsonObject => (isObject(fields) ? fields : { other_fields: fields });

/** Returns a span for each tool call of a reply, with its id. It lasts until a later request has its result. */
function toolSpans({ choices, endedAt }: TracedCall): [id: string | null, span: Span][] {
  const at = endedAt.getTime();
  const asked = choices.flatMap(({ message }) =>
    isObject(message) && Array.isArray(message.tool_calls) ? message.tool_calls.filter(isObject) : [],
  );
  return asked.map(({ id, function: called }) => {
    const { name, arguments: given } = isObject(called) ? called : {};
    const span: Span = {
      name: typeof name === 'string' && name !== '' ? cutText(name, MOST_TAG) : 'tool',
      type: 'TOOL',
      start: at,
      end: at,
      inputs: bounded(parsed(given), MOST_VALUE),
      attributes: { 'trialgate.note': 'no later request has its result' },
    };
    return [typeof id === 'string' ? id : null, span];
  });
}

/** Gives each open tool call the result that this request has: the last one of its id, because some agents count the ids of each reply anew. */
function takeResults({ request, startedAt }: TracedCall, open: Map<string, Span>): void {
  if (open.size === 0 || !Array.isArray(request.messages)) return;
  for (const message of request.messages.toReversed()) {
    if (!isObject(message) || message.role !== 'tool' || typeof message.tool_call_id !== 'string') continue;
    const span = open.get(message.tool_call_id);
    if (!span) continue;
    open.delete(message.tool_call_id);
    span.outputs = bounded(message.content ?? '', MOST_VALUE);
    span.end = Math.max(span.start, startedAt.getTime());
    delete span.attributes;
  }
}

/** The shown forms of messages: the requests of a trial have the same ones again and again. */
type Sizes = WeakMap<object, { shown: unknown; size: number }>;

/** Returns the first message of a request and as many of the last as have room, with a note in the place of the others. */
function fitting(messages: unknown, sizes: Sizes): unknown {
  if (!Array.isArray(messages)) return bounded(messages ?? [], MOST_MESSAGES);
  const [first, ...rest] = messages.map((message: unknown) => sized(message, sizes));
  if (!first) return [];
  let room = MOST_MESSAGES - first.size;
  let kept = 0;
  for (const { size } of rest.toReversed()) {
    if (size > room) break;
    room -= size;
    kept += 1;
  }
  const left = rest.length - kept;
  const note = { role: 'system', content: `[${left} messages are left out here: the record has them]` };
  return [first.shown, ...(left > 0 ? [note] : []), ...rest.slice(left).map(({ shown }) => shown)];
}

function sized(message: unknown, sizes: Sizes): { shown: unknown; size: number } {
  const known = isObject(message) ? sizes.get(message) : undefined;
  if (known) return known;
  const cut = bounded(message, MOST_MESSAGE);
  const shown = isObject(message) && !isObject(cut) ? { role: message.role, content: cut } : cut;
  const made = { shown, size: JSON.stringify(shown).length };
  if (isObject(message)) sizes.set(message, made);
  return made;
}

/** Returns a value of JSON with its long texts cut; as a text that is cut if it is still too long. */
function bounded(value: unknown, most: number): unknown {
  const text = stringifyExact(withShortTexts(value));
  return text.length <= most ? JSON.parse(text) : cutText(text, most);
}

function withShortTexts(value: unknown): unknown {
  if (typeof value === 'string') return cutText(value, MOST_TEXT);
  if (Array.isArray(value)) return value.map(withShortTexts);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withShortTexts(each)]));
}

const cutText = (text: string, most: number): string =>
  text.length <= most ? text : `${text.slice(0, most)}… [${text.length - most} more characters are in the record]`;

/** Returns the arguments of a tool call, which are JSON unless the model wrote something else. */
function parsed(given: unknown): unknown {
  if (typeof given !== 'string') return given ?? {};
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
}
