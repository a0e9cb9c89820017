/**
 * Why a call is not trained that sampled more tool calls than its agent was shown (`parallel_tool_calls: false`). What follows it is not
 * continued from its ids.
 */
export const CALLS_NOT_SHOWN = 'calls_not_shown';
