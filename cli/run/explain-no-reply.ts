import type { TrialRecord } from '../show/trial-transcript.ts';

/** In quotes, because an agent may be named like a word of the sentence. */
export const theAgent = (name: string | null): string => (name === null ? 'the agent' : `the agent "${name}"`);

type Tried = Pick<TrialRecord, 'agent_name' | 'calls' | 'refusals' | 'outcome'>;

/**
 * Says why an agent got no reply in a trial; null when it got one. An agent can end well without a reply, because most
 * frameworks catch the error of a call.
 */
export function explainNoReply({ agent_name: agent, calls, refusals, outcome }: Tried): string | null {
  if (calls.some(({ status, completion_tokens: tokens }) => status === 'completed' || (tokens ?? 0) > 0)) return null;
  const who = theAgent(agent);
  const failed = calls.find(({ status, reason }) => status === 'failed' && reason !== null);
  if (failed) return `${who} got no reply: ${failed.reason}`;
  if (calls.length > 0) return `${who} got no reply: it gave up each of its calls`;
  const [refused] = refusals.latest;
  if (refused) return `${who} got no reply: its requests were refused (${refused.code}: ${refused.message})`;
  const how =
    'must ask the base URL that it is given, with the key that it is given (OPENAI_BASE_URL and OPENAI_API_KEY; docs/agents.md)';
  if (outcome === 'scored' || outcome === 'truncated') return `${who} made no call: it ${how}`;
  // Its own error has been shown, and is the cause more often.
  return outcome === 'agent_error' || outcome === 'timed_out'
    ? `${who} made no call before it ended. If it tried to: it ${how}`
    : `${who} made no call`;
}
