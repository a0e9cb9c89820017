import type { RunConfig } from './run-config/run-config.ts';

/** Says how to start an engine with another option. The deployment starts only its own. */
export const restart = (
  { engines }: Pick<RunConfig, 'engines'>,
  { vllm, sglang }: { vllm: string; sglang: string },
): string =>
  engines.length > 0
    ? `start vLLM with ${vllm}, or SGLang with ${sglang}`
    : `start the deployment with it, besides its other flags: \`npx trialgate down\`, then \`npx trialgate up ${vllm}\``;

const PARSER = '--tool-call-parser NAME';
const VLLM_PARSER = `--enable-auto-tool-choice ${PARSER}`;

/**
 * True for the words with which vLLM refuses a request with tools because it was not told how to find tool calls in a reply. The whole message
 * counts, because other errors repeat what the agent sent.
 */
export const lacksToolParser = (message: string): boolean =>
  /^(?:engine_400: )?(?:\w+: )?(?:"auto" tool choice|tool_choice=.{1,200}) requires (?:--enable-auto-tool-choice and )?--tool-call-parser to be set$/.test(
    message,
  );

/** Returns what to do when an engine refused a call for want of a tool parser; null for every other reason. */
export function toolParserAdvice({ reason, engine }: { reason: string | null; engine: string | null }): string | null {
  if (reason === null || !lacksToolParser(reason)) return null;
  // The deployment's own vLLM listens on a Unix socket.
  const isOurs = engine === null || engine.startsWith('unix:');
  const how = restart(
    { engines: isOurs ? [] : [engine] },
    { vllm: isOurs ? `--engine-args '${VLLM_PARSER}'` : VLLM_PARSER, sglang: PARSER },
  );
  return `The agent offers tools, and the engine was not told how to find tool calls in a reply: ${how}. Which NAME depends on the model (hermes for Qwen2.5 and for the small model that is installed)`;
}
