import { expect, test } from 'vitest';
import { judgeAgentEnd, type ProcessEnd, type AgentEndEvidence } from './judge-agent-end.ts';

const done: ProcessEnd = { ending: 'done', reason: null, killed: false };
const crashed: ProcessEnd = {
  ending: 'agent_error',
  reason: 'the agent ended with exit code 75: the gateway failed',
  killed: false,
};
const killed: ProcessEnd = { ending: 'agent_error', reason: 'the agent ended with SIGKILL', killed: true };
const nothing: AgentEndEvidence = {
  isDiskFull: false,
  isMachineOutOfMemory: false,
  isGatewayAway: false,
  hasGatewayFailed: false,
  unanswered: null,
  earlier: 0,
  enginesAnswer: true,
  waited: null,
};
const late: ProcessEnd = { ending: 'timed_out', reason: 'the agent used up its time', killed: false };
const engine = { fault: 'engine', reason: 'engine_cut: the reply broke off' } as const;

test.each<[string, ProcessEnd, Partial<AgentEndEvidence>, string | null, string | undefined]>([
  ['an agent’s good end is its own when nothing else failed', done, {}, null, undefined],
  [
    'an agent’s crash is agent_error when nothing else failed, whatever its exit code and output say',
    crashed,
    {},
    'agent_error',
    undefined,
  ],
  ['an agent that was killed is agent_error when nothing else failed', killed, {}, 'agent_error', undefined],
  ['an agent that used up its time is timed_out', late, {}, 'timed_out', undefined],
  [
    'an agent whose time was up through waits for the engine is infra_error of the engine',
    late,
    { waited: 'it waited 300 s' },
    'infra_error',
    'engine',
  ],
  [
    'an agent that crashes after waits for the engine is agent_error',
    crashed,
    { waited: 'it waited 300 s' },
    'agent_error',
    undefined,
  ],
  [
    'an agent that ends while the disk is full is infra_error of the host',
    done,
    { isDiskFull: true },
    'infra_error',
    'host',
  ],
  [
    'an agent’s crash while the gateway cannot be reached is infra_error of the gateway',
    crashed,
    { isGatewayAway: true },
    'infra_error',
    'gateway',
  ],
  [
    'an agent whose last connection the gateway did not take is infra_error of the gateway, however the agent exits',
    done,
    { hasGatewayFailed: true },
    'infra_error',
    'gateway',
  ],
  [
    'an agent’s good end stays its own when the gateway fails afterwards',
    done,
    { isGatewayAway: true },
    null,
    undefined,
  ],
  [
    'an agent that was killed while the host was out of memory is infra_error of the host',
    killed,
    { isMachineOutOfMemory: true },
    'infra_error',
    'host',
  ],
  [
    'an agent’s crash without a kill is agent_error, also while the host was out of memory',
    crashed,
    { isMachineOutOfMemory: true },
    'agent_error',
    undefined,
  ],
  [
    'a trial’s third attempt that was killed while the host was out of memory is agent_error',
    killed,
    { isMachineOutOfMemory: true, earlier: 2 },
    'agent_error',
    undefined,
  ],
  [
    'an agent’s crash after a call that the engine failed is infra_error of the engine',
    crashed,
    { unanswered: engine },
    'infra_error',
    'engine',
  ],
  [
    'an agent’s good end after a call that the engine failed is infra_error of the engine too',
    done,
    { unanswered: engine },
    'infra_error',
    'engine',
  ],
  [
    'an agent’s crash after its client gave up a call that waited long is infra_error of the engine',
    crashed,
    { unanswered: { ...engine, excusesOnlyCrash: true } },
    'infra_error',
    'engine',
  ],
  [
    'an agent’s good end after its client gave up a call that waited long stays a good end',
    done,
    { unanswered: { ...engine, excusesOnlyCrash: true } },
    null,
    undefined,
  ],
  [
    'a trial’s third crash after a call that the engine failed is agent_error when the engines answer other trials',
    crashed,
    { unanswered: engine, earlier: 2 },
    'agent_error',
    undefined,
  ],
  [
    'an agent’s crash after a call that the engine failed stays infra_error of the engine while the engines answer no trial',
    crashed,
    { unanswered: engine, earlier: 9, enginesAnswer: false },
    'infra_error',
    'engine',
  ],
  [
    'an agent’s crash while the gateway cannot be reached is infra_error, however often the trial had one',
    crashed,
    { isGatewayAway: true, earlier: 9 },
    'infra_error',
    'gateway',
  ],
])('%s', (_, end, found, outcome, evidence) => {
  expect(judgeAgentEnd(end, { ...nothing, ...found })).toMatchObject({ outcome, ...(evidence ? { evidence } : {}) });
  expect(judgeAgentEnd(end, { ...nothing, ...found }).evidence).toBe(evidence);
});
