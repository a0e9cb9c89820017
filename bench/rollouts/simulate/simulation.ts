import { startableGroups } from '../../../activities/rollout/startable-groups.ts';
import type { Durations } from './durations.ts';
import { cloneGroups, countOf, isOpen, makeGroup, type Group, type Trial } from './group.ts';
import { groupTrials, type Rules } from './rules.ts';

type Trainer = { doing: 'nothing' } | { doing: 'train' | 'publish'; until: number };

/** Returns the time at which a step that can start shall start. A time up to now means at once. Called again after every event. */
export type Pace = (simulation: Simulation) => number;

/** Called for each trial that is trained on or lost. */
export type OnSettled = (trial: Trial, staleness: number) => void;

/** Simulates one run under `Rules`, event by event. Groups start in their order, and their trials take free slots in that order. */
export class Simulation {
  readonly rules: Rules;
  readonly durations: Pick<Durations, 'of'>;
  now = 0;
  /** The engines' clock, which stops during a publication. */
  engineNow = 0;
  /** The policy version of the engines. */
  version = 0;
  /** The number of successful steps. */
  steps = 0;
  trained = 0;
  /** Slot-time without a trial, by what the trainer did meanwhile. */
  readonly idle = { nothing: 0, train: 0, publish: 0 };
  /** The time since which the next step could start, or null. */
  readySince: number | null = null;
  running: Trial[] = [];
  /** Groups with a trial that a step may still use. */
  groups: Group[] = [];
  settled: OnSettled = () => {};
  pace: Pace;
  #queue: Trial[] = [];
  #opened = 0;
  #trainer: Trainer = { doing: 'nothing' };

  constructor(rules: Rules, durations: Pick<Durations, 'of'>, pace: Pace = whenFewGoStale) {
    this.rules = rules;
    this.durations = durations;
    this.pace = pace;
    this.#pump();
  }

  /** Returns an independent copy with the same future. It reports no trials. */
  fork(pace: Pace): Simulation {
    const twin = new Simulation(this.rules, this.durations, pace);
    const { groups, copyOf } = cloneGroups(this.groups);
    const { now, engineNow, version, steps, trained, readySince } = this;
    Object.assign(twin, {
      now,
      engineNow,
      version,
      steps,
      trained,
      readySince,
      groups,
      running: this.running.map(copyOf),
    });
    twin.#queue = this.#queue.map(copyOf);
    twin.#opened = this.#opened;
    twin.#trainer = this.#trainer;
    return twin;
  }

  /** The number of trials that run or wait for a slot. */
  get underWay(): number {
    return this.running.length + this.#queue.length;
  }

  get isTraining(): boolean {
    return this.#trainer.doing !== 'nothing';
  }

  /** Returns the running trials that the next step would make stale. */
  atLimit(): Trial[] {
    const oldest = this.version + 1 - this.rules.maxStaleness;
    return this.running.filter(({ version }) => version < oldest);
  }

  /** Advances to the next event, and runs everything that follows from it at the same time. */
  advance(): void {
    const trainer = this.#trainer;
    const wait = this.readySince !== null && !this.isTraining ? this.pace(this) : Number.POSITIVE_INFINITY;
    if (wait <= this.now) return this.#step();
    const ends = trainer.doing === 'nothing' ? wait : trainer.until;
    const first = trainer.doing === 'publish' ? undefined : this.#firstToEnd();
    const trialEnds = first
      ? this.now + Math.max(0, first.startedAt + first.duration - this.engineNow)
      : Number.POSITIVE_INFINITY;
    const at = Math.min(ends, trialEnds);
    if (at === Number.POSITIVE_INFINITY) throw new Error(`nothing can happen any more after ${this.steps} steps`);
    const isStanding = trainer.doing === 'publish';
    this.idle[trainer.doing] += (at - this.now) * (this.rules.slots - (isStanding ? 0 : this.running.length));
    if (!isStanding) this.engineNow += at - this.now;
    this.now = at;
    if (first && trialEnds <= ends) this.#end(first);
    else if (trainer.doing === 'train') {
      this.steps += 1;
      this.#trainer = { doing: 'publish', until: at + this.rules.publishTime };
    } else if (trainer.doing === 'publish') {
      this.version += 1;
      this.#trainer = { doing: 'nothing' };
      this.#dropStale(this.version - this.rules.maxStaleness);
    }
    this.#pump();
  }

  #firstToEnd(): Trial | undefined {
    let first: Trial | undefined;
    for (const trial of this.running)
      if (!first || trial.startedAt + trial.duration < first.startedAt + first.duration) first = trial;
    return first;
  }

  #end(trial: Trial): void {
    this.#leaveSlot(trial, 'ended');
    const { group } = trial;
    const { quorum, stragglers, groupSize, overSampling } = this.rules;
    if (group.state !== 'running') return;
    const ended = countOf(group, 'ended');
    if (ended < quorum && group.trials.some(isOpen)) return;
    group.state = 'eligible';
    if (stragglers === 'cancel' || (overSampling > 0 && ended >= groupSize))
      for (const other of group.trials) this.#cut(other);
  }

  #cut(trial: Trial): void {
    if (trial.state === 'queued') {
      this.#queue.splice(this.#queue.indexOf(trial), 1);
      trial.state = 'cut';
    } else if (trial.state === 'running') {
      this.#leaveSlot(trial, 'cut');
      this.settled(trial, 0);
    }
  }

  #leaveSlot(trial: Trial, as: 'ended' | 'stale' | 'cut'): void {
    this.running.splice(this.running.indexOf(trial), 1);
    trial.used = as === 'ended' ? trial.duration : this.engineNow - trial.startedAt;
    trial.state = as;
  }

  /** Starts the groups that invariant 10 allows, and their trials on free slots. */
  #pump(): void {
    const { slots, groupSize, overSampling, holds, deadline } = this.rules;
    for (let capacity = holds !== 'nothing' && this.isTraining ? 0 : this.#capacity(); capacity >= 1; capacity--) {
      const group = makeGroup(
        this.#opened,
        this.durations.of(this.#opened).slice(0, groupSize + overSampling),
        deadline,
      );
      this.#opened += 1;
      this.groups.push(group);
      this.#queue.push(...group.trials);
    }
    const isHeld = this.#trainer.doing === 'publish' || (holds === 'trials' && this.isTraining);
    const free = isHeld ? 0 : slots - this.running.length;
    for (const next of this.#queue.splice(0, free)) {
      Object.assign(next, { state: 'running', version: this.version, startedAt: this.engineNow });
      this.running.push(next);
    }
    if (this.isTraining || !this.#nextBatch().full) this.readySince = null;
    else this.readySince ??= this.now;
  }

  /** Returns the number of groups that may start. */
  #capacity(): number {
    const { maxConcurrentGroups: maxConcurrent, maxConcurrentTrials, maxStaleness, groupsPerStep } = this.rules;
    const size = groupTrials(this.rules);
    const runningGroups = this.groups.filter(({ state }) => state === 'running').length;
    // The step under way has taken its batch, so one batch less may run ahead.
    const stale = this.isTraining ? maxStaleness - 1 : maxStaleness;
    return startableGroups({
      live: this.#live(),
      runningGroups,
      groupTrials: size,
      batchTrials: groupsPerStep * size,
      stepsLeft: Number.POSITIVE_INFINITY,
      maxStaleness: stale,
      maxConcurrent,
      maxConcurrentTrials,
      startedTrials: this.rules.groupSize + this.rules.overSampling,
      runningTrials: this.underWay,
    });
  }

  /** Returns the number of trials that are neither trained on nor dropped. */
  #live(): number {
    const size = groupTrials(this.rules);
    return this.groups.reduce((sum, { state, trials }) => {
      const live = trials.reduce((count, trial) => count + (isOpen(trial) || trial.state === 'ended' ? 1 : 0), 0);
      return sum + (state === 'running' ? Math.min(size, live) : live);
    }, 0);
  }

  /** Returns the groups that a step that starts now takes, the oldest first, besides late trials of consumed groups. */
  #nextBatch(): { groups: Group[]; full: boolean } {
    const wanted = this.rules.groupsPerStep * groupTrials(this.rules);
    const candidates = this.groups.filter((group) => group.state === 'eligible' || this.#isLastCall(group));
    let trials = this.groups.reduce(
      (sum, group) => sum + (group.state === 'consumed' ? countOf(group, 'ended') : 0),
      0,
    );
    const taken = candidates.filter((group) => {
      if (trials >= wanted) return false;
      trials += countOf(group, 'ended');
      return true;
    });
    return { groups: taken, full: trials >= wanted };
  }

  #isLastCall(group: Group): boolean {
    const { lastCall, maxStaleness } = this.rules;
    if (lastCall === 0 || group.state !== 'running' || countOf(group, 'ended') < lastCall) return false;
    return group.trials.some((trial) => trial.state === 'ended' && trial.version <= this.version - maxStaleness);
  }

  #step(): void {
    for (const group of this.#nextBatch().groups) group.state = 'consumed';
    for (const group of this.groups) {
      if (group.state !== 'consumed') continue;
      for (const trial of group.trials) {
        if (trial.state !== 'ended') continue;
        const staleness = this.version - trial.version;
        trial.state = staleness <= this.rules.maxStaleness ? 'trained' : 'stale';
        if (trial.state === 'trained') this.trained += 1;
        this.settled(trial, staleness);
      }
    }
    if (this.rules.endsStale === 'step') this.#dropStale(this.version + 1 - this.rules.maxStaleness);
    this.#trainer = { doing: 'train', until: this.now + this.rules.trainTime };
    this.#pump();
  }

  /** Drops trials that started before version `oldest`, because every later step would find them too old. */
  #dropStale(oldest: number): void {
    for (const group of this.groups) {
      for (const trial of group.trials) {
        if (trial.version >= oldest) continue;
        if (trial.state === 'running') this.#leaveSlot(trial, 'stale');
        else if (trial.state === 'ended') trial.state = 'stale';
        else continue;
        this.settled(trial, 0);
      }
      if ((group.state === 'running' || group.state === 'eligible') && !group.trials.some(isOpen)) {
        group.state = countOf(group, 'ended') > 0 ? 'eligible' : 'dropped';
      }
    }
    this.groups = this.groups.filter(
      ({ state, trials }) =>
        state === 'running' ||
        state === 'eligible' ||
        (state === 'consumed' && trials.some((trial) => isOpen(trial) || trial.state === 'ended')),
    );
  }
}

/** Waits while more running trials than the rules allow would become stale. */
export const whenFewGoStale: Pace = (simulation) => {
  const { maxStaleStragglers, maxConcurrentTrials } = simulation.rules;
  const idle = Number.isFinite(maxConcurrentTrials) ? Math.max(0, maxConcurrentTrials - simulation.underWay) : 0;
  return simulation.atLimit().length > maxStaleStragglers + idle ? Number.POSITIVE_INFINITY : simulation.now;
};
