import type { findCompletedCall } from '../../store/queries/find-completed-call.ts';
import type { ModelRequest } from '../chat/request.ts';
import { wholeReply } from '../chat/whole-reply.ts';

type Done = NonNullable<Awaited<ReturnType<typeof findCompletedCall>>>;

/** The reply of a call that completed, once more: no other call is made or recorded. */
export const replay = ({ id, reply }: Done, request: ModelRequest): Response =>
  wholeReply(reply, request, { 'x-trialgate-call': id, 'x-trialgate-replay': 'true' });
