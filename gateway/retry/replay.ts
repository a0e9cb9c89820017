import type { Replay } from '../../store/queries/replay-call.ts';
import type { ModelRequest } from '../chat/request.ts';
import { wholeReply } from '../chat/whole-reply.ts';

/** The reply of a call that completed, once more: no other call is made or recorded. */
export const replay = ({ id, reply }: Replay, request: ModelRequest): Response =>
  wholeReply(id, reply, request, { 'x-trialgate-replay': 'true' });
