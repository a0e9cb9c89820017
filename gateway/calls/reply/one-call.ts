import { choicesOf } from '../../../store/calls/choices.ts';
import { asObject, isToken, type Answer, type Chunk } from '../../engines/engine.ts';
import { isObject, type JsonObject } from '../../json.ts';

/**
 * Returns the answer with the first tool call of each reply alone, as `parallel_tool_calls: false` asks. `onCut` gets the index of each
 * reply that lost a call.
 */
export function withOneCall(answer: Answer, onCut: (index: number) => void): Answer {
  return {
    ...answer,
    whole: async () => {
      const { result, shown } = await answer.whole();
      return { result: { ...result, reply: result.reply && cut(result.reply, onCut) }, shown: cut(shown, onCut) };
    },
    chunks: () => cutChunks(answer.chunks(), onCut),
  };
}

async function* cutChunks(chunks: AsyncIterable<Chunk[]>, onCut: (index: number) => void): AsyncGenerator<Chunk[]> {
  for await (const came of chunks)
    yield came.map((chunk) => {
      if (isToken(chunk)) return chunk;
      const object = asObject(chunk);
      return { ...object, shown: cut(object.shown, onCut) };
    });
}

/** Cuts a whole reply or a chunk of one. The calls of a chunk have their index, those of a whole reply their position. */
function cut(reply: JsonObject, onCut: (index: number) => void): JsonObject {
  const choices = choicesOf(reply);
  if (!choices.some((choice) => callsIn(choice).length > 0)) return reply;
  return {
    ...reply,
    choices: choices.map((choice, place) => {
      const calls = callsIn(choice);
      const first = calls.filter(
        (call, i) => (isObject(call) && typeof call.index === 'number' ? call.index : i) === 0,
      );
      if (first.length === calls.length) return choice;
      onCut(typeof choice.index === 'number' ? choice.index : place);
      const key = isObject(choice.message) ? 'message' : 'delta';
      const { tool_calls: _, ...rest } = isObject(choice[key]) ? choice[key] : {};
      return { ...choice, [key]: first.length > 0 ? { ...rest, tool_calls: first } : rest };
    }),
  };
}

function callsIn({ message, delta }: JsonObject): unknown[] {
  const said = isObject(message) ? message : delta;
  return isObject(said) && Array.isArray(said.tool_calls) ? said.tool_calls : [];
}
