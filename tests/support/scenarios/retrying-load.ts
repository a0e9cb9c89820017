import type { Database } from '../../../store/database.ts';
import type { EngineLog } from '../fakes/engine-log.ts';
import { auditKills, type Audit } from '../oracles/kill-audit.ts';
import { runRetryingAgent, type AgentObservation } from './retrying-agent.ts';

export type LoadCounts = Audit & {
  /** Requests that agents sent, retries included. */
  tries: number;
  /** Tries that no gateway accepted, and tries that were cut. */
  refused: number;
  cut: number;
  /** Replies that engines began, and those that they sent whole. */
  sampled: number;
  sent: number;
  /** Replies that agents saw end, and those of them that an earlier process had recorded. */
  ended: number;
  replayed: number;
  /** Answers that no agent may get. */
  odd: string[];
};

const TURNS = 4;

type Load = {
  /** Returns the gateway of an agent's next trial. */
  gateway: (agent: number) => string;
  adminKey: string;
  agents: number;
  /** Aborts the agents. */
  signal: AbortSignal;
};

/** Lets agents play one trial after the other until `over` aborts, and returns what they saw. */
export async function agentsUntil(
  over: AbortSignal,
  { gateway, adminKey, agents, signal }: Load,
): Promise<AgentObservation[]> {
  const all = await Promise.all(
    Array.from({ length: agents }, async (_, agent) => {
      const observations: AgentObservation[] = [];
      while (!over.aborted) {
        observations.push(
          await runRetryingAgent({
            gateway: gateway(agent),
            adminKey,
            trialId: `agent-${agent}.${observations.length}`,
            turns: TURNS,
            keyed: agent % 2 === 0,
            isOver: () => over.aborted,
            signal,
          }),
        );
      }
      return observations;
    }),
  );
  return all.flat();
}

function countObservations(observations: readonly AgentObservation[]) {
  const sum = (count: (observation: AgentObservation) => number) =>
    observations.reduce((total, observation) => total + count(observation), 0);
  return {
    tries: sum((observation) => observation.tries),
    refused: sum((observation) => observation.refused),
    cut: sum((observation) => observation.cut),
    ended: sum((observation) => observation.ended.length),
    replayed: sum((observation) => observation.ended.filter((reply) => reply.replayed).length),
    odd: observations.flatMap((observation) => observation.odd),
  };
}

/** Compares what the agents saw end, what the engines sent, and the record. */
export async function auditLoad(
  db: Database,
  observations: readonly AgentObservation[],
  { sampled }: EngineLog,
): Promise<LoadCounts> {
  return {
    ...countObservations(observations),
    sampled: sampled.length,
    sent: sampled.filter(({ finished }) => finished).length,
    ...(await auditKills(
      db,
      observations.flatMap(({ ended }) => ended),
      sampled,
    )),
  };
}
