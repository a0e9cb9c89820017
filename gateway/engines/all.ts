import { engineAt } from '../../core/engine-url.ts';
import type { Engine } from './engine.ts';
import { openai } from './openai/openai.ts';
import { sglang } from './sglang/sglang.ts';
import { vllm } from './vllm/vllm.ts';

/** The kinds that a URL does not name, because calls to them can be trained on. The one whose route for the weight version answers is there, else the first. */
export const UNNAMED: readonly [Engine, ...Engine[]] = [vllm, sglang];

/** The kinds that a URL names by a word before it: `openai+http://…`. */
export const NAMED: readonly Engine[] = [openai];

export const ENGINES: readonly Engine[] = [...UNNAMED, ...NAMED];

/** Returns the kind of engine that the URL names, or null. */
export const engineIn = (url: string): Engine | null => NAMED.find(({ name }) => name === engineAt(url).kind) ?? null;
