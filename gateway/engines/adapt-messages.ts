import { isObject, type JsonObject } from '../json.ts';
import type { PreparedRequest } from './engine.ts';
import type { Replica } from './replica.ts';

/** An image of a gray square. */
const IMAGE =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PMQ0AAAwDoEqv9ErYvQQckD4XAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAYHLAB8+AWnmfUycAAAAAElFTkSuQmCC';
/** A tenth of a second of silence as a WAV file. */
const SOUND = `UklGRmQGAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YUAG${'A'.repeat(2136)}`;
const messageFrom = (role: string, content: unknown): JsonObject => ({ role, content });
const userMessageWith = (part: JsonObject): JsonObject[] => [messageFrom('user', [{ type: 'text', text: 'x' }, part])];
const call = { id: 'call', type: 'function', function: { name: 'f', arguments: '{}' } };

/**
 * Message features that not every engine's model or chat template accepts. `probe` is a conversation that uses the feature, `without` the
 * same number of messages without it.
 */
const FEATURES = {
  // A late system message becomes a user's message in its place. Moved to the front, it would change every later prompt from its start.
  late_system: {
    probe: ['system', 'user', 'system', 'user'].map((role) => messageFrom(role, 'x')),
    holds: (message: JsonObject, messageIndex: number) => messageIndex > 0 && isSystem(message),
    without: (message: JsonObject) => ({ ...message, role: 'user' }),
  },
  // A text model cannot read an image.
  image: {
    probe: userMessageWith({ type: 'image_url', image_url: { url: IMAGE } }),
    ...parted(isImage),
  },
  // A template that does not expand the tools found by a search gets their names instead.
  tool_reference: {
    probe: [
      messageFrom('user', 'x'),
      { ...messageFrom('assistant', ''), tool_calls: [call] },
      { ...messageFrom('tool', 'x'), tool_call_id: 'call' },
      { ...messageFrom('tool', [{ type: 'tool_reference', name: 'f' }]), tool_call_id: 'call' },
    ],
    holds: (message: JsonObject) => parts(message).some(isToolReference),
    without: (message: JsonObject) => ({
      ...message,
      content: inWords(
        parts(message).map((part) => (isToolReference(part) ? { type: 'text', text: String(part.name) } : part)),
      ),
    }),
  },
  // OpenAI's files.
  file: {
    probe: userMessageWith({ type: 'file', file: { filename: 'x.txt', file_data: 'data:text/plain;base64,eA==' } }),
    ...parted(isFile),
  },
  audio: {
    probe: userMessageWith({ type: 'input_audio', input_audio: { data: SOUND, format: 'wav' } }),
    ...parted(isAudio),
  },
  // A list of images is a video.
  video: {
    probe: userMessageWith({
      type: 'video_url',
      video_url: { url: `data:video/jpeg;base64,${[IMAGE, IMAGE].map((each) => each.split(',')[1]).join()}` },
    }),
    ...parted(isVideo),
  },
  // Types that no engine is known to read.
  other_part: {
    probe: userMessageWith({ type: 'unknown_to_all', text: 'x' }),
    ...parted(isOther),
  },
  // Calls of OpenAI's custom tools. They become calls of a function with one text, as in Responses.
  custom_call: {
    probe: [
      messageFrom('user', 'x'),
      {
        ...messageFrom('assistant', ''),
        tool_calls: [{ id: 'call', type: 'custom', custom: { name: 'f', input: 'x' } }],
      },
      { ...messageFrom('tool', 'x'), tool_call_id: 'call' },
    ],
    holds: (message: JsonObject) => callsOf(message).some(isCustom),
    without: (message: JsonObject) => ({
      ...message,
      tool_calls: callsOf(message).map((each) => (isCustom(each) ? asFunctionCall(each) : each)),
    }),
  },
};
type Feature = keyof typeof FEATURES;
const NAMES: readonly Feature[] = [
  'late_system',
  'image',
  'tool_reference',
  'file',
  'audio',
  'video',
  'other_part',
  'custom_call',
];
/** Features whose parts are left out of the prompt. */
const LEFT_OUT = new Set<Feature>(['image', 'file', 'audio', 'video', 'other_part']);

/** A result of a tool with an image. Not every template has a place for it. */
const IMAGE_IN_RESULT = [
  messageFrom('user', 'x'),
  { ...messageFrom('assistant', ''), tool_calls: [call] },
  { ...messageFrom('tool', [{ type: 'image_url', image_url: { url: IMAGE } }]), tool_call_id: 'call' },
];

/** Asks the engine whether its model and chat template accept such messages. */
export type Takes = (messages: JsonObject[], signal: AbortSignal) => Promise<boolean>;

/** Returns the body with only the message parts that this replica's model and template accept. The record keeps the messages as they came. */
export async function adaptMessages(
  replica: Pick<Replica, 'answer'>,
  body: JsonObject,
  asked: Takes,
): Promise<PreparedRequest> {
  const leftOut: PreparedRequest['leftOut'] = [];
  const takes = (feature: Feature) => replica.answer(feature, (signal) => asked(FEATURES[feature].probe, signal));
  if (!Array.isArray(body.messages) || body.messages.every(isPlain)) return { body, leftOut };
  let messages: unknown[] = body.messages;
  for (const name of NAMES) {
    const { holds, without } = FEATURES[name];
    const isHeld = (message: unknown, messageIndex: number): message is JsonObject =>
      isObject(message) && holds(message, messageIndex);
    if (!messages.some(isHeld) || (await takes(name))) continue;
    messages = messages.map((message, messageIndex) => {
      if (!isHeld(message, messageIndex)) return message;
      if (LEFT_OUT.has(name)) leftOut.push({ feature: name, messageIndex });
      return without(message);
    });
  }
  if (messages.some(isResultWithMedia) && !(await replica.answer('image_in_result', (s) => asked(IMAGE_IN_RESULT, s))))
    messages = withMediaAfterResults(messages);
  return { body: messages === body.messages ? body : { ...body, messages }, leftOut };
}

/** Moves the media of tools' results behind the last of the results that follow each other, to the user's message that stands there. */
export function withMediaAfterResults(messages: readonly unknown[]): unknown[] {
  const moved: unknown[] = [];
  let media: JsonObject[] = [];
  const flush = () => {
    if (media.length > 0) moved.push({ role: 'user', content: media });
    media = [];
  };
  for (const message of messages) {
    if (isResultWithMedia(message)) {
      media.push(...parts(message).filter(isMedia));
      moved.push({ ...message, content: inWords(parts(message).filter((part) => !isMedia(part))) });
    } else if (isObject(message) && message.role === 'user' && media.length > 0) {
      const { content } = message;
      const own = typeof content === 'string' ? [{ type: 'text', text: content }] : parts(message);
      moved.push({ ...message, content: [...media, ...own] });
      media = [];
    } else {
      if (!isObject(message) || message.role !== 'tool') flush();
      moved.push(message);
    }
  }
  flush();
  return moved;
}

export const isResultWithMedia = (message: unknown): message is JsonObject =>
  isObject(message) && message.role === 'tool' && parts(message).some(isMedia);

/** True when a message contains something that a prompt of token ids cannot carry. */
export const hasMedia = (messages: readonly unknown[]): boolean =>
  messages.some((message) => isObject(message) && parts(message).some(isMedia));

/** True when a message shows the model something that is no text. The trainer, which has token ids alone, cannot compute such a call again. */
export const showsMedia = ({ messages }: JsonObject): boolean =>
  Array.isArray(messages) && messages.some((message) => isObject(message) && parts(message).some(isSeen));

const EMBEDDED = new Set(['image_pil', 'image_embeds', 'audio_embeds', 'prompt_embeds']);
// Engines tell a part without a type by its key, such as `image_url`.
const isSeen = (part: JsonObject): boolean =>
  [isImage, isFile, isAudio, isVideo].some((is) => is(part)) ||
  EMBEDDED.has(String(part.type)) ||
  (part.type === undefined && part.text === undefined);

const isMedia = ({ type }: JsonObject): boolean => !TEXTS.has(String(type)) && type !== 'tool_reference';
const TEXTS = new Set(['text', 'refusal', 'thinking']);

/** Types that are passed on: engines' own names of what they read, and parts without a type. */
const PASSED = new Set(['undefined', 'input_text', 'output_text', ...EMBEDDED]);

/** True when no engine refuses the message for its form. Most requests have only such messages and need no closer look. */
const isPlain = (message: unknown, messageIndex: number): boolean =>
  isObject(message) &&
  !Array.isArray(message.content) &&
  !(messageIndex > 0 && isSystem(message)) &&
  !callsOf(message).some(isCustom);

/** Builds the feature of messages that have such parts. */
function parted(isPart: (part: JsonObject) => boolean) {
  return {
    holds: (message: JsonObject) => parts(message).some(isPart),
    without: (message: JsonObject) => ({
      ...message,
      content: inWords(parts(message).filter((part) => !isPart(part))),
    }),
  };
}

function callsOf({ tool_calls: calls }: JsonObject): JsonObject[] {
  return Array.isArray(calls) ? calls.filter(isObject) : [];
}

function isCustom({ type }: JsonObject): boolean {
  return type === 'custom';
}

function asFunctionCall({ id, custom }: JsonObject): JsonObject {
  const { name, input } = isObject(custom) ? custom : {};
  return { id, type: 'function', function: { name, arguments: JSON.stringify({ input }) } };
}

const parts = ({ content }: JsonObject): JsonObject[] => (Array.isArray(content) ? content.filter(isObject) : []);

/** Joins parts into one text if all are text, because every template accepts that. */
const inWords = (left: JsonObject[]): JsonObject[] | string =>
  left.every(({ type }) => type === 'text') ? left.map(({ text }) => String(text)).join('\n') : left;

const isSystem = ({ role }: JsonObject): boolean => role === 'system' || role === 'developer';
const isToolReference = ({ type }: JsonObject): boolean => type === 'tool_reference';

function isImage({ type }: JsonObject): boolean {
  return type === 'image_url' || type === 'input_image';
}

function isFile({ type }: JsonObject): boolean {
  return type === 'file' || type === 'input_file';
}

function isAudio({ type }: JsonObject): boolean {
  return type === 'input_audio' || type === 'audio_url';
}

function isVideo({ type }: JsonObject): boolean {
  return type === 'video_url';
}

function isOther(part: JsonObject): boolean {
  const type = String(part.type);
  return (
    !TEXTS.has(type) &&
    !PASSED.has(type) &&
    ![isImage, isFile, isAudio, isVideo, isToolReference].some((is) => is(part))
  );
}
