import { z } from 'zod';
import { readText, type EngineConnection } from '../../../gateway/engines/connection.ts';

const detokenized = z.object({ prompt: z.string() });

/** Special tokens of SmolLM2's vocabulary. */
const SPECIAL =
  /<\|(?:im_start|im_end|endoftext)\|>|<(?:repo_name|reponame|file_sep|filename|gh_stars|issue_(?:start|comment|closed)|jupyter_(?:start|text|code|output|script)|empty_output)>/g;

/** Returns ids as text in the form of a chat reply of the small model's engine, without special tokens. */
export async function detokenize(engine: EngineConnection, tokens: number[], signal: AbortSignal): Promise<string> {
  const reply = await engine.ask({ method: 'POST', path: '/detokenize', body: JSON.stringify({ tokens }), signal });
  const { prompt } = detokenized.parse(JSON.parse(await readText(reply.body)));
  return withoutSpecial(prompt);
}

export const withoutSpecial = (text: string): string => text.replace(SPECIAL, '');
