import { EXPECTED_OUTPUT } from '../../gateway/calls/place.ts';
import { FairQueue } from '../../gateway/engines/fair-queue.ts';
import { PoolMemory } from '../../gateway/engines/pool.ts';
import type { SimulatedEngine } from './engine.ts';
import { BLOCK } from './kv-cache.ts';
import type { Policy, RoutedCall, Router, World } from './router.ts';

const ASK_SECONDS = 1;

type Start = (engine: SimulatedEngine) => void;

/**
 * Places calls by the gateway's own placement, room and queue, in simulated time. It takes the steps that `EnginePool` takes with real
 * engines: it places a call that comes, or lets it wait; the first call that waits looks again when another has ended and each second.
 */
class Gateway implements Router {
  readonly #world: World;
  readonly #memory: PoolMemory;
  readonly #queue = new FairQueue<{ call: RoutedCall; start: Start }>();
  readonly #ends = new Map<RoutedCall, () => void>();
  readonly #isLimited: boolean;

  constructor(world: World, isLimited: boolean) {
    this.#world = world;
    this.#memory = new PoolMemory(() => world.clock.now * 1000);
    this.#isLimited = isLimited;
    this.#ask();
  }

  place(call: RoutedCall, start: Start): void {
    if (!this.#tryPlace(call, start, this.#queue.size > 0, this.#queue.size > 0))
      this.#queue.add(String(call.trial.id), { call, start });
  }

  ended(call: RoutedCall): void {
    this.#ends.get(call)?.();
    this.#ends.delete(call);
    this.#lookAgain();
  }

  #tryPlace(call: RoutedCall, start: Start, behind: boolean, contended: boolean): boolean {
    const trial = `run-0.1-${call.trial.group}-${call.trial.id}`;
    const replicas = this.#world.engines.map((engine) => ({ url: engine.name, engine }));
    const tokens = call.prompt + EXPECTED_OUTPUT;
    const { placement, inFlight } = this.#memory;
    const choice = placement.choose(trial, replicas, { tokens, contended, behind });
    if (!choice || choice === 'full') return false;
    placement.settle(trial, choice);
    const { url, engine } = choice.to;
    const leave = inFlight.enter(url);
    const give = this.#memory.room(url).enter(trial, tokens);
    this.#ends.set(call, () => {
      leave();
      give(call.prompt + call.output);
    });
    start(engine);
    return true;
  }

  #lookAgain(): void {
    for (let next = this.#queue.first(); next; next = this.#queue.first()) {
      if (!this.#tryPlace(next.call, next.start, false, this.#queue.size > 1)) return;
      this.#queue.shift();
    }
  }

  /** Reads what the engines report, as the gateway does each second. */
  #ask(): void {
    const { clock, engines } = this.#world;
    for (const { name, kv, running, waiting } of engines) {
      const load = { running, waiting, kvUse: kv.used / kv.total, kvTokens: kv.total * BLOCK, prefix: null };
      this.#memory.noteLoad(name, load, this.#isLimited);
    }
    this.#lookAgain();
    clock.after(ASK_SECONDS, () => this.#ask());
  }
}

export const ours: Policy = { name: 'trialgate', create: (world) => new Gateway(world, true) };
export const withoutRoom: Policy = { name: 'trialgate, kv_wait 0', create: (world) => new Gateway(world, false) };
