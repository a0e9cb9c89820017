import type { Evidence } from '../store/schema.ts';

/** How the process of an agent ended, by what its host saw. */
export type ProcessEnd = {
  ending: 'done' | 'agent_error';
  /** For people; null when done. */
  reason: string | null;
  /** It was killed by SIGKILL, by whomever. */
  killed: boolean;
};

/** What others than the agent know of its end. */
export type Witness = {
  isDiskFull: boolean;
  /** The machine, not the sandbox, ran out of memory while the agent ran. */
  isMachineOutOfMemory: boolean;
  /** The gateway does not answer now. */
  isGatewayAway: boolean;
  /** The host could not bring the agent to the gateway, and the agent got no answer after that. */
  hasGatewayFailed: boolean;
  /** A call that failed by no fault of the agent's shortly before its end, and after which it got no answer. */
  unanswered: { fault: Exclude<Evidence, 'host'>; reason: string } | null;
  /** Earlier attempts of the trial that ended by such evidence. */
  earlier: number;
  /** The engines have answered a call of the run since this attempt began. */
  enginesAnswer: boolean;
};

export type Judgement = { outcome: 'agent_error' | 'infra_error' | null; reason: string | null; evidence?: Evidence };

/** How often one trial may end because of a failed call, or a machine without memory: both can be provoked in ways that nobody has thought of. */
const BELIEVED = 2;

/**
 * Decides whether an agent's end is the agent's own. Evidence decides, from the host and the gateway; neither how the agent exits nor
 * what it prints counts: a model learns to say whatever gives it another try.
 */
export function judgeAgentEnd({ ending, reason, killed }: ProcessEnd, witness: Witness): Judgement {
  const { isDiskFull, isGatewayAway, hasGatewayFailed, isMachineOutOfMemory, unanswered, earlier, enginesAnswer } = witness;
  const infra = (evidence: Evidence, what: string): Judgement => ({ outcome: 'infra_error', evidence, reason: reason === null ? what : `${what}; ${reason}` });
  if (isDiskFull) return infra('host', "the host's disk is full");
  if (hasGatewayFailed || (isGatewayAway && ending !== 'done')) return infra('gateway', 'the gateway was away');
  if (isMachineOutOfMemory && killed && earlier < BELIEVED) return infra('host', 'the machine ran out of memory');
  if (unanswered && (earlier < BELIEVED || !enginesAnswer)) return infra(unanswered.fault, `its last call failed: ${unanswered.reason}`);
  return { outcome: ending === 'done' ? null : ending, reason };
}
