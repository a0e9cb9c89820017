import { InFlight } from '../../gateway/engines/in-flight.ts';
import { hash } from '../../gateway/engines/preference.ts';
import { blocksOf } from './kv-cache.ts';
import type { SimulatedEngine } from './engine.ts';
import type { Policy, RoutedCall, World } from './router.ts';

/*
 * The policies of vllm-project/router, with its defaults, written after its source in `src/policies/`: round_robin, random,
 * consistent_hash.rs, sticky_least_loaded.rs, power_of_two.rs, cache_aware.rs (16917f4).
 */

type Choose = (call: RoutedCall, load: (engine: SimulatedEngine) => number) => SimulatedEngine;

/** Returns a policy that starts each call at once. `load` counts the calls that its own router has in flight. */
function atOnce(
  name: string,
  create: (world: World) => { choose: Choose; ended?: (call: RoutedCall) => void },
): Policy {
  return {
    name,
    create: (world) => {
      const inFlight = new InFlight();
      const releases = new Map<RoutedCall, () => void>();
      const { choose, ended } = create(world);
      return {
        place: (call, start) => {
          const engine = choose(call, ({ name: url }) => inFlight.count(url));
          releases.set(call, inFlight.enter(engine.name));
          start(engine);
        },
        ended: (call) => {
          releases.get(call)?.();
          releases.delete(call);
          ended?.(call);
        },
      };
    },
  };
}

const roundRobin = atOnce('round_robin', ({ engines }) => {
  let count = 0;
  return { choose: () => at(engines, count++ % engines.length) };
});

const random = atOnce('random', (world) => ({
  choose: () => at(world.engines, world.random.below(world.engines.length)),
}));

const VIRTUAL_NODES = 160;
const consistentHash = atOnce('consistent_hash', ({ engines }) => ({
  choose: ({ trial }) => {
    const ring = engines.flatMap((engine) =>
      Array.from({ length: VIRTUAL_NODES }, (_, i) => ({ at: hash(`${engine.name}:${i}`), engine })),
    );
    const own = hash(`session ${trial.id}`);
    return ring.reduce((best, node) => ((node.at - own) >>> 0 < (best.at - own) >>> 0 ? node : best)).engine;
  },
}));

const stickyLeastLoaded = atOnce('sticky_least_loaded', ({ engines }) => {
  const homes = new Map<number, SimulatedEngine>();
  const sessions = new InFlight();
  const leave = new Map<number, () => void>();
  return {
    choose: ({ trial }) => {
      const home = homes.get(trial.id);
      if (home) return home;
      const engine = leastOf(engines, ({ name }) => sessions.count(name));
      homes.set(trial.id, engine);
      leave.set(trial.id, sessions.enter(engine.name));
      return engine;
    },
    ended: ({ trial, isLast }) => void (isLast && leave.get(trial.id)?.()),
  };
});

/** The policy reads the engines' own counts again when they are this old. */
const LOADS_SECONDS = 5;
const powerOfTwo = atOnce('power_of_two', ({ engines, random: draws, clock }) => {
  let cached = new Map<string, number>();
  let readAt = -Infinity;
  return {
    choose: (_, load) => {
      if (clock.now - readAt >= LOADS_SECONDS) {
        readAt = clock.now;
        cached = new Map(engines.map(({ name, running, waiting }) => [name, running + waiting]));
      }
      const first = draws.below(engines.length);
      const second = (first + 1 + draws.below(engines.length - 1)) % engines.length;
      return leastOf([at(engines, first), at(engines, second)], (each) => (cached.get(each.name) ?? 0) + load(each));
    },
  };
});

const CACHE_AWARE = { threshold: 0.3, absolute: 64, relative: 1.5 };
/** The tree names for each prefix the engine that got it last. Here it has an entry for each block of tokens and forgets none. */
const cacheAware = atOnce('cache_aware', ({ engines }) => {
  const tree = new Map<number, SimulatedEngine>();
  return {
    choose: (call, load) => {
      const loads = engines.map(load);
      const [least, most] = [Math.min(...loads), Math.max(...loads)];
      const isImbalanced = most - least > CACHE_AWARE.absolute && most > least * CACHE_AWARE.relative;
      const blocks = blocksOf(call.prompt);
      let matched = 0;
      while (matched < blocks && tree.has(call.keyAt(matched))) matched += 1;
      const holder = matched > blocks * CACHE_AWARE.threshold ? tree.get(call.keyAt(matched - 1)) : undefined;
      const engine = (isImbalanced ? undefined : holder) ?? leastOf(engines, load);
      for (let i = 0; i < blocks; i++) tree.set(call.keyAt(i), engine);
      return engine;
    },
  };
});

export const ROUTER_POLICIES: readonly Policy[] = [
  roundRobin,
  random,
  consistentHash,
  stickyLeastLoaded,
  powerOfTwo,
  cacheAware,
];

export function leastOf<T>(items: readonly T[], value: (item: T) => number): T {
  return items.reduce((best, item) => (value(item) < value(best) ? item : best));
}

function at<T>(items: readonly T[], index: number): T {
  const item = items[index];
  if (item === undefined) throw new RangeError(`no item ${index}`);
  return item;
}
