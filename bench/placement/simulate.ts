import { Random } from '../../tests/support/scenarios/fuzz/random.ts';
import { Clock } from './clock.ts';
import { SimulatedEngine } from './engine.ts';
import { BLOCK } from './kv-cache.ts';
import type { Policy, RoutedCall, World } from './router.ts';
import type { Session } from './sessions.ts';

export type Scenario = {
  name: string;
  sessions: readonly Session[];
  /** The sessions that are open at once; the others begin as these end. */
  open: number;
  engines: number;
  kvTokens: number;
  gateways: number;
  /** The engines whose steps take longer, with the factor. */
  slow: Readonly<Record<number, number>>;
  /** Seconds after which each of the last engines joins. */
  joining: readonly number[];
};

export type Figures = {
  hitRate: number;
  wallSeconds: number;
  p50: number;
  p99: number;
  preemptions: number;
  /** The worst hit rate of any engine within any minute with enough prompts. */
  worstHitRate: number;
  calls: number;
};

const WINDOW_SECONDS = 60;
const BLOCKS_A_SESSION = 2_048;

/** Runs all sessions of the scenario under the policy, and returns the figures of the run. */
export function simulate(scenario: Scenario, policy: Policy, seed: number): Figures {
  const { sessions, kvTokens, slow } = scenario;
  const clock = new Clock();
  const engineAt = (i: number) => new SimulatedEngine(`http://engine-${i}:8000`, kvTokens, clock, slow[i]);
  const engines = Array.from({ length: scenario.engines }, (_, i) => engineAt(i));
  const world: World = { clock, engines, random: new Random(seed) };
  for (const [i, seconds] of scenario.joining.entries())
    clock.at(seconds, () => void engines.push(engineAt(scenario.engines + i)));
  const routers = Array.from({ length: scenario.gateways }, () => policy.create(world));
  const durations: number[] = [];
  const waiting = [...sessions];
  let left = sessions.length;
  let worstHitRate = 1;

  const before = new Map<string, { queried: number; hit: number }>();
  const look = () => {
    for (const { name, figures } of engines) {
      const { queried, hit } = before.get(name) ?? { queried: 0, hit: 0 };
      if (figures.queried - queried > kvTokens / 2 && clock.now > WINDOW_SECONDS)
        worstHitRate = Math.min(worstHitRate, (figures.hit - hit) / (figures.queried - queried));
      before.set(name, { queried: figures.queried, hit: figures.hit });
    }
    clock.after(WINDOW_SECONDS, look);
  };
  look();

  const open = () => {
    const session = waiting.shift();
    if (session) turn(session, 0, session.shared + session.task);
  };
  const turn = (session: Session, index: number, history: number) => {
    const step = session.turns[index];
    const router = routers[session.id % routers.length];
    if (!step || !router) {
      left -= 1;
      return open();
    }
    const began = clock.now;
    const prompt = history + step.appended;
    let engine: SimulatedEngine | null = null;
    const call: RoutedCall = {
      trial: session,
      isLast: index === session.turns.length - 1,
      prompt,
      output: step.output,
      keyAt: keysOf(session, sessions.length),
      onEnd: () => {
        durations.push(clock.now - began);
        if (engine) router.ended(call, engine);
        clock.after(step.toolSeconds, () => turn(session, index + 1, prompt + step.output));
      },
    };
    router.place(call, (chosen) => {
      engine = chosen;
      chosen.add(call);
    });
  };
  for (let i = 0; i < scenario.open; i++) open();
  clock.run(() => left === 0);

  const sum = (key: 'queried' | 'hit' | 'preemptions') =>
    engines.reduce((total, { figures }) => total + figures[key], 0);
  const sorted = durations.toSorted((a, b) => a - b);
  const quantile = (q: number) => sorted[Math.floor(q * (sorted.length - 1))] ?? Number.NaN;
  return {
    hitRate: sum('hit') / sum('queried'),
    wallSeconds: clock.now,
    p50: quantile(0.5),
    p99: quantile(0.99),
    preemptions: sum('preemptions'),
    worstHitRate,
    calls: durations.length,
  };
}

/** Returns the keys of a session's blocks. All sessions share the keys of the first blocks, and its group shares those of the next ones. */
function keysOf({ id, group, shared, task }: Session, sessions: number): (block: number) => number {
  const [common, grouped] = [Math.floor(shared / BLOCK), Math.floor((shared + task) / BLOCK)];
  return (block) => {
    if (block < common) return block;
    return (1 + (block < grouped ? sessions + group : id)) * BLOCKS_A_SESSION + block;
  };
}
