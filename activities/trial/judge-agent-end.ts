import type { Evidence } from '../../store/schema.ts';

/** The end of an agent's process, as its host saw it. */
export type ProcessEnd = {
  ending: 'done' | 'timed_out' | 'agent_error';
  /** An explanation for people. It is null when the agent is done. */
  reason: string | null;
  /** True when SIGKILL ended the process. It does not matter who sent it. */
  killed: boolean;
};

/** Evidence about the agent's end that does not come from the agent. */
export type AgentEndEvidence = {
  isDiskFull: boolean;
  /** True when the machine, not the sandbox, ran out of memory while the agent ran. */
  isMachineOutOfMemory: boolean;
  /** True when the gateway does not answer now. */
  isGatewayAway: boolean;
  /** True when the host could not connect the agent to the gateway, and the agent got no answer after that. */
  hasGatewayFailed: boolean;
  /** A call that failed shortly before the agent's end through no fault of the agent, and after which the agent got no answer. */
  unanswered: { fault: Exclude<Evidence, 'host'>; reason: string; excusesOnlyCrash?: boolean } | null;
  /** The number of earlier attempts of the trial that ended because of such evidence. */
  earlier: number;
  /** True when the engines have answered a call of the run since this attempt began. */
  enginesAnswer: boolean;
  /** How long it waited for its engine, if its time was up although half of it were such waits; else null. */
  waited: string | null;
};

export type Judgement = {
  outcome: 'timed_out' | 'agent_error' | 'infra_error' | null;
  reason: string | null;
  evidence?: Evidence;
};

/** The number of times that one trial may end because of a failed call or a machine without memory. An agent may find ways to cause both. */
export const MOST_EXCUSED_ATTEMPTS = 2;

/**
 * Decides whether an agent's end is the agent's own fault. Only evidence from the host and the gateway counts. The agent's exit status
 * and its output do not count, because a model learns to produce whatever gives it another try.
 */
export function judgeAgentEnd(
  { ending, reason, killed }: ProcessEnd,
  {
    isDiskFull,
    isGatewayAway,
    hasGatewayFailed,
    isMachineOutOfMemory,
    unanswered,
    earlier,
    enginesAnswer,
    waited,
  }: AgentEndEvidence,
): Judgement {
  const infra = (evidence: Evidence, what: string): Judgement => ({
    outcome: 'infra_error',
    evidence,
    reason: reason === null ? what : `${what}; ${reason}`,
  });
  if (isDiskFull) return infra('host', "the host's disk is full");
  if (hasGatewayFailed || (isGatewayAway && ending !== 'done')) return infra('gateway', 'the gateway was away');
  if (isMachineOutOfMemory && killed && earlier < MOST_EXCUSED_ATTEMPTS)
    return infra('host', 'the machine ran out of memory');
  if (
    unanswered &&
    !(unanswered.excusesOnlyCrash && ending === 'done') &&
    (earlier < MOST_EXCUSED_ATTEMPTS || !enginesAnswer)
  )
    return infra(unanswered.fault, `its last call failed: ${unanswered.reason}`);
  if (ending === 'timed_out' && waited !== null) return infra('engine', waited);
  return { outcome: ending === 'done' ? null : ending, reason };
}
