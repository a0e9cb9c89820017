import type { Random } from '../../tests/support/scenarios/fuzz/random.ts';
import type { Clock } from './clock.ts';
import type { EngineCall, SimulatedEngine } from './engine.ts';
import type { Session } from './sessions.ts';

/** A call as a router sees it. `isLast` is true for the last call of its session. */
export type RoutedCall = EngineCall & { trial: Session; isLast: boolean };

/** The state that the routers of a scenario share. `engines` has those that have joined until now. */
export type World = {
  clock: Clock;
  engines: SimulatedEngine[];
  random: Random;
};

/** One gateway's or router's way to place calls. It starts a call by `start`, at once or later, and hears of its end. */
export interface Router {
  place: (call: RoutedCall, start: (engine: SimulatedEngine) => void) => void;
  ended: (call: RoutedCall, engine: SimulatedEngine) => void;
}

export type Policy = { name: string; create: (world: World) => Router };
