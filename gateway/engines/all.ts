import { engineAt } from '../../core/engine-url.ts';
import type { Engine } from './engine.ts';
import { openai } from './openai/openai.ts';
import { sglang } from './sglang/sglang.ts';
import { vllm } from './vllm/vllm.ts';

export const ENGINES: readonly Engine[] = [vllm, sglang, openai];

/** The kinds that a URL does not name. The one whose route for the weight version answers is there, else the first. */
export const UNNAMED: readonly [Engine, ...Engine[]] = [vllm, sglang];

/** Returns the kind of engine that the URL names, or null. */
export const engineIn = (url: string): Engine | null => ENGINES.find(({ name }) => name === engineAt(url).kind) ?? null;
