import { drawSessions, type Shape } from './sessions.ts';
import type { Scenario } from './simulate.ts';

export const SESSIONS = 200;
const SHAPE = { sessions: SESSIONS, groupSize: 8, turns: [29, 0.5135], context: 120_000 } as const;

/** Returns the scenarios with the sessions of a seed: 4 engines, and 1 gateway that all calls go through, unless it says otherwise. */
export function scenariosOf(seed: number): { about: string; scenario: Scenario }[] {
  const sessions = (shape: Partial<Shape> = {}) => drawSessions({ ...SHAPE, ...shape, seed });
  const plain = { sessions: sessions(), engines: 4, kvTokens: 1_000_000, gateways: 1, slow: {}, joining: [] };
  return [
    { about: '48 open sessions, whose prefixes fit', scenario: { ...plain, name: 'balanced', open: 48 } },
    {
      about: '128 open sessions, which need several times the KV cache, as in prime-rl #3255',
      scenario: { ...plain, name: 'saturated', kvTokens: 400_000, open: 128 },
    },
    {
      about: '96 open sessions of 12 turns at the median, up to 99',
      scenario: { ...plain, name: 'skewed', sessions: sessions({ turns: [12, 1.2] }), open: 96 },
    },
    {
      about: '64 open sessions, one engine takes twice as long',
      scenario: { ...plain, name: 'slow engine', open: 64, slow: { 0: 2 } },
    },
    {
      about: '96 open sessions, 3 engines and a fourth after 300 s',
      scenario: { ...plain, name: 'joining', engines: 3, kvTokens: 700_000, joining: [300], open: 96 },
    },
    {
      about: '96 open sessions through 4 gateways, each of which sees its own calls only',
      scenario: { ...plain, name: '4 gateways', open: 96, gateways: 4 },
    },
  ];
}
