import { BLOCK, blocksOf } from './kv-cache.ts';
import { COST, type SimulatedEngine } from './engine.ts';
import { leastOf } from './policies.ts';
import type { Policy, RoutedCall } from './router.ts';

/** Both oracles know what each engine has cached and what is left of each of its calls. */
export const ORACLES: readonly Policy[] = [
  // Gives a call to the engine that will end it first.
  oracle('oracle: first to end', completion),
  // Counts the time for which the call's prompt holds up the engine's other calls too.
  oracle('oracle: least delay', (engine, call) => completion(engine, call) + delayOfOthers(engine, call)),
];

function oracle(name: string, cost: (engine: SimulatedEngine, call: RoutedCall) => number): Policy {
  return {
    name,
    create: ({ engines }) => ({
      place: (call, start) => start(leastOf(engines, (engine) => cost(engine, call))),
      ended: () => {},
    }),
  };
}

function delayOfOthers(engine: SimulatedEngine, call: RoutedCall): number {
  const uncached = call.prompt - engine.cachedTokens(call, call.prompt);
  const step = COST.prefillToken * uncached + COST.sequence * call.output;
  return engine.slowness * step * (engine.running + engine.waiting);
}

/** Returns the seconds until the call would end on the engine. */
function completion(engine: SimulatedEngine, call: RoutedCall): number {
  let prefill = call.prompt - engine.cachedTokens(call, call.prompt);
  let sequences = 1;
  let ahead = 0;
  const running: { left: number; blocks: number }[] = [];
  for (const work of engine.work()) {
    prefill += work.prefill;
    if (work.isRunning) running.push(work);
    else ahead += work.blocks;
    sequences += 1;
  }
  // Calls that end give their blocks back, the shortest first, until all that waits fits.
  let free = engine.kv.total - engine.kv.used - ahead - blocksOf(call.prompt + call.output);
  let waited = 0;
  for (const { left, blocks } of running.toSorted((a, b) => a.left - b.left)) {
    if (free >= 0) break;
    free += blocks;
    waited = left;
  }
  const step = COST.step + COST.sequence * sequences + COST.kvToken * engine.kv.used * BLOCK;
  return engine.slowness * (prefill * COST.prefillToken + step * (waited + call.output));
}
