import { choicesOf } from '../../../store/calls/choices.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { openingChunks, usageBefore, type ChunkHead } from '../completion.ts';
import { badReply } from '../engine-failed.ts';

type Reply<T> = {
  prompt: number[];
  model: unknown;
  n: number;
  /** Reads each chunk that this makes. */
  as: (chunk: JsonObject) => T;
};

/** Converts vLLM's stream of generated text into the chunks that its chat route would send. */
export async function* chatChunks<T>(
  generated: AsyncIterable<JsonObject[]>,
  { prompt, model, n, as }: Reply<T>,
): AsyncGenerator<T[]> {
  const created = Math.floor(Date.now() / 1000);
  let begun = false;
  for await (const chunks of generated) {
    yield chunks
      .flatMap((chunk) => {
        const head: ChunkHead = { id: chunk.request_id, object: 'chat.completion.chunk', created, model };
        const opening = begun ? [] : openingChunks(head, n, prompt);
        begun = true;
        const counts = isObject(chunk.usage) ? { usage: usageBefore(chunk.usage) } : {};
        return [...opening.map((each) => ({ ...each, ...counts })), ...chatChunk(head, chunk)];
      })
      .map(as);
  }
}

function chatChunk(head: ChunkHead, chunk: JsonObject): JsonObject[] {
  const choices = choicesOf(chunk).map(({ text, ...rest }) => {
    if (typeof text !== 'string') throw badReply('has no text');
    return { ...rest, delta: { content: text } };
  });
  const usage = isObject(chunk.usage) ? { usage: chunk.usage } : {};
  return choices.length > 0 || 'usage' in usage ? [{ ...head, choices, ...usage }] : [];
}
