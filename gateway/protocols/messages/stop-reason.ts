type StopReason = {
  stop_reason: 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use';
  stop_sequence: string | null;
};

/** Returns a reply's end in Anthropic's words. A stop string that cut a tool call short wins over the call, which must not be run. */
export function stopReasonOf(
  finish: unknown,
  matched: unknown,
  { callsTools, isWhole }: { callsTools: boolean; isWhole: boolean },
): StopReason {
  if (finish === 'length') return { stop_reason: 'max_tokens', stop_sequence: null };
  if (callsTools && isWhole) return { stop_reason: 'tool_use', stop_sequence: null };
  // If a token ended the reply, the engine names it by its number.
  if (typeof matched === 'string') return { stop_reason: 'stop_sequence', stop_sequence: matched };
  return { stop_reason: callsTools || finish === 'tool_calls' ? 'tool_use' : 'end_turn', stop_sequence: null };
}
