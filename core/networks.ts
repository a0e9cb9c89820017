import { z } from 'zod';
import { hostRule } from './host-rules.ts';

/** The networks of an agent that have a name: with `gateway` it reaches only its gateway, with `host` all that its host reaches. */
export const NETWORKS = ['gateway', 'host'] as const;

/** An agent's network. With a list it reaches the gateway, and the listed hosts through the egress proxy. */
export const agentNetwork = z.union([
  z.array(hostRule).min(1, 'a list without hosts: say `gateway`').max(100),
  z.enum(NETWORKS, 'expected `gateway`, `host` or a list of host names, such as [pypi.org]'),
]);
export type AgentNetwork = z.output<typeof agentNetwork>;
