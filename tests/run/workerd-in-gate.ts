/**
 * The test files that `npm test` runs in workerd. Project `fast` runs the gateway's tests on Node already, so these show the gateway's own parts for
 * workerd, and what only workerd can show. `npm run test:all` runs all files of project `workerd`.
 */
export const WORKERD_IN_GATE: readonly string[] = [
  // A plain call and a stream of each protocol are recorded, and end as the protocol says when a budget is used up.
  'gateway/protocols/any-protocol.test.ts',
  // Conversations, retries, errors and keep-alive events over Messages and Responses.
  'gateway/protocols/through-the-gateway.test.ts',
  // Conversations with Google's client.
  'gateway/protocols/gemini/gemini-client.test.ts',
  // A stream ends only after its commit, and with an error if the engine breaks off.
  'gateway/protocols/broken-streams.test.ts',
  // Conversations over chat completions continue the sampled ids, also at another gateway.
  'gateway/conversations/exact-tokens.test.ts',
  // Conversations over completions, and conversations that several gateways share.
  'gateway/conversations/many-gateways.test.ts',
  // In workerd a retry waits for its first try in the store, and not in memory.
  'gateway/record/retry.test.ts',
  // In workerd each call has a commit of its own. Without it, the reply has no end.
  'gateway/record/postgres-away.test.ts',
  // Refusals: wrong keys and ended attempts, a used-up budget, bad requests and unknown routes.
  'gateway/http/auth.test.ts',
  'gateway/calls/budgets/budget-races.test.ts',
  'gateway/http/refusals.test.ts',
  // In workerd a Durable Object holds a relay worker's socket.
  'gateway/relay/relay.test.ts',
  // Only a Durable Object hibernates. This file waits for most of its time.
  'gateway/runtimes/workerd/relay-hibernation.workerd.test.ts',
  // Only a Worker may have a cache of queries before its database.
  'gateway/runtimes/workerd/stale-reads.workerd.test.ts',
  // The Worker that is deployed starts with the commands of docs/workers.md, and its upload is small.
  'tests/e2e/wrangler-dev.workerd.test.ts',
];
