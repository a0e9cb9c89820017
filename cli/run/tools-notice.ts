import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { Database } from '../../store/database.ts';
import { readCalls } from '../../store/queries/read-calls.ts';

/** Returns a warning when a trial's calls offered tools that the chat template of this model does not show to it; null if they did not. */
export async function toolsNotice(
  db: Database,
  attempt: { trialId: string; attempt: number },
  model: string,
): Promise<string | null> {
  const offered = (await readCalls(db, attempt)).some(({ request }) => Array.isArray(request['tools']));
  if (!offered || (await showsTools(model))) return null;
  return (
    `WARNING: the agent offers tools, and the chat template of ${basename(model)} does not show them to the model, so it calls none. ` +
    'Use a model whose template has tools (such as Qwen/Qwen2.5-0.5B-Instruct), or describe the tools in the prompt'
  );
}

/** True when the template uses the variable `tools`, and also when the model's files are not here. */
async function showsTools(model: string): Promise<boolean> {
  const files = ['chat_template.jinja', 'tokenizer_config.json'].map((name) => join(model, name)).filter(existsSync);
  const texts = await Promise.all(files.map((file) => readFile(file, 'utf8')));
  return texts.length === 0 || texts.some((text) => /\btools\b/.test(text));
}
