import { expect, test } from 'vitest';
import { judgeAgentEnd, type ProcessEnd, type Witness } from './judge-agent-end.ts';

const done: ProcessEnd = { ending: 'done', reason: null, killed: false };
const crashed: ProcessEnd = { ending: 'agent_error', reason: 'the agent ended with exit code 75: the gateway failed', killed: false };
const killed: ProcessEnd = { ending: 'agent_error', reason: 'the agent ended with SIGKILL', killed: true };
const nothing: Witness = { isDiskFull: false, isMachineOutOfMemory: false, isGatewayAway: false, hasGatewayFailed: false, unanswered: null, earlier: 0, enginesAnswer: true };
const engine = { fault: 'engine', reason: 'engine_cut: the reply broke off' } as const;

test.each<[string, ProcessEnd, Partial<Witness>, string | null, string | undefined]>([
  ['an end without an event is the agent’s', done, {}, null, undefined],
  ['a crash without an event is the agent’s, whatever its exit code and its words', crashed, {}, 'agent_error', undefined],
  ['a kill without an event is the agent’s', killed, {}, 'agent_error', undefined],
  ['a full disk is the host’s', done, { isDiskFull: true }, 'infra_error', 'host'],
  ['a crash in front of a gateway that is away is the gateway’s', crashed, { isGatewayAway: true }, 'infra_error', 'gateway'],
  ['an end after a gateway that took no connection is the gateway’s, however the agent exits', done, { hasGatewayFailed: true }, 'infra_error', 'gateway'],
  ['a gateway that goes after the agent has ended well changes nothing', done, { isGatewayAway: true }, null, undefined],
  ['a kill on a machine without memory is the host’s', killed, { isMachineOutOfMemory: true }, 'infra_error', 'host'],
  ['a crash on a machine without memory is the agent’s', crashed, { isMachineOutOfMemory: true }, 'agent_error', undefined],
  ['a kill on a machine without memory is the agent’s when it comes a third time', killed, { isMachineOutOfMemory: true, earlier: 2 }, 'agent_error', undefined],
  ['a crash after a call that the engine failed is the engine’s', crashed, { unanswered: engine }, 'infra_error', 'engine'],
  ['a good end after a call that the engine failed is the engine’s too: how it exits does not count', done, { unanswered: engine }, 'infra_error', 'engine'],
  ['a crash after a failed call is the agent’s when it comes a third time and the engines answer others', crashed, { unanswered: engine, earlier: 2 }, 'agent_error', undefined],
  ['a crash after a failed call is the engine’s as often as it comes while the engines answer nobody', crashed, { unanswered: engine, earlier: 9, enginesAnswer: false }, 'infra_error', 'engine'],
  ['a gateway that is away is believed as often as it comes', crashed, { isGatewayAway: true, earlier: 9 }, 'infra_error', 'gateway'],
])('%s', (_, end, witness, outcome, evidence) => {
  expect(judgeAgentEnd(end, { ...nothing, ...witness })).toMatchObject({ outcome, ...(evidence ? { evidence } : {}) });
  expect(judgeAgentEnd(end, { ...nothing, ...witness }).evidence).toBe(evidence);
});
