import { Failure } from '../../failure.ts';

/** The refusal of an unknown session, in the form of verl-recipe's server too. */
export const sessionNotFound = () =>
  new Failure(404, 'session_not_found', 'Session not found', {
    retryable: false,
    beside: { detail: 'Session not found' },
  });
