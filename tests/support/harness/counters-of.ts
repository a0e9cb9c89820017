/** Returns the counts of calls in `/metrics` by name. */
export function countersOf(metrics: Record<string, number>) {
  const ended = (status: string) => metrics[`trialgate_calls_total{status="${status}"}`];
  return {
    accepted: metrics.trialgate_calls_accepted_total,
    completed: ended('completed'),
    failed: ended('failed'),
    cancelled: ended('cancelled'),
    inFlight: metrics.trialgate_calls_in_flight,
  };
}
