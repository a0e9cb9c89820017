import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { resolveModel } from '../../activities/run/resolve-paths.ts';
import { isolation, requireBubblewrap } from '../../activities/sandbox/isolation.ts';
import { chooseModel, endOtherChoice } from '../config/engine-choice.ts';
import type { ResolvedConfig } from '../config/resolve.ts';
import type { Deployment } from '../config/schema.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { Component } from './component.ts';
import { componentsOf, type ComponentName, type Components } from './components/all.ts';
import { ranksHere } from './components/workers.ts';
import { serveControl, type SwitchModel } from './control.ts';
import { keepAlive } from './life.ts';
import { lockDeployment } from './lock.ts';
import { makePlan, type Plan } from './plan.ts';
import type { HeldPorts } from './ports.ts';
import { identify } from './processes.ts';
import { reap } from './reap.ts';
import { runningSettings } from './running-settings.ts';
import { hasModel, readState, writeState, type ComponentState, type StackState } from './state.ts';

export type StackOptions = {
  config: Deployment;
  /** The model that is configured where this starts (`ResolvedConfig`). `engine use` chooses another for as long as it stays. */
  configuredModel?: string | null;
  /** Where the settings come from (`ResolvedConfig`). A port that is a default may be another one, if the default is taken. */
  origins?: ResolvedConfig['origins'];
  /** The components to start; all of them by default. */
  only?: readonly ComponentName[];
  /** True when this process cancels its run at the end. */
  cancelsItsRun?: boolean;
  /** Replaces the deployment's own components. */
  components?: (plan: Plan) => Components;
  onChange?: (state: StackState) => void;
};

/** A running stack. Its components are restarted until `stop`. */
export type Stack = {
  plan: Plan;
  state(): StackState;
  /** Ends every component, those that depend on others first. Returns when no process is left. */
  stop(): Promise<void>;
};

/**
 * Starts the deployment's components, supervised by this process, and returns when all are ready. First ends what a dead supervisor left.
 * @throws TrialgateError when a component cannot start, after everything was stopped again, or when the deployment is already up.
 */
export async function startStack(options: StackOptions, signal: AbortSignal): Promise<Stack> {
  const { home, unsandboxed } = options.config;
  const runsAgents = !options.components && (options.only?.includes('activity-worker') ?? true);
  if (runsAgents) requireBubblewrap(await isolation(), unsandboxed);
  const lock = await lockDeployment(home, signal);
  let held: HeldPorts | undefined;
  try {
    recordSupervisor(home);
    await reap(home);
    const plan = await makePlan(options.config, options.origins);
    held = plan.held;
    const { components, notes } = options.components?.(plan) ?? componentsOf(plan, options.only);
    const watched = watch(plan, { components, notes: [...plan.notes, ...notes] }, options);
    let control: { close(): void } | undefined;
    const stop = async (): Promise<void> => {
      control?.close();
      await watched.stop();
      await lock.release();
    };
    try {
      if (components.some(({ name }) => name === 'vllm')) {
        endOtherChoice(home, options.config.model);
        control = await serveControl(home, modelSwitch(options, plan, watched));
      }
      await watched.allReady(signal);
    } catch (error) {
      watched.mark(signal.aborted ? 'stopping' : 'failed', signal.aborted ? null : error);
      await stop();
      throw error;
    }
    return { plan, state: watched.state, stop };
  } catch (error) {
    await lock.release();
    throw error;
  } finally {
    await held?.close();
  }
}

/** Returns what replaces the engine alone, and keeps the choice: gateways and workers reach the next one at the same socket. */
function modelSwitch(options: StackOptions, plan: Plan, watched: ReturnType<typeof watch>): SwitchModel {
  let model = plan.config.model;
  let isSwitching = false;
  const start = async (next: string): Promise<void> => {
    const { config } = plan;
    const changed = { ...plan, config: { ...config, model: next } };
    const { components } = options.components?.(changed) ?? componentsOf(changed, ['vllm']);
    const engine = components.find(({ name }) => name === 'vllm');
    if (engine) await watched.replace(engine, resolveModel(next));
  };
  const keep = (next: string): void => chooseModel(plan.config.home, next, options.configuredModel ?? null);
  return async (next, signal) => {
    if (isSwitching)
      throw new TrialgateError(
        'pool_busy',
        'the engine is being switched to another model already: try again when `npx trialgate status` shows that it is ready',
      );
    if (watched.hasModel(next)) return keep(next);
    isSwitching = true;
    try {
      await start(next);
      await watched.untilReady('vllm', signal);
      keep(next);
      model = next;
    } catch (error) {
      await start(model);
      throw new TrialgateError(
        error instanceof TrialgateError ? error.code : 'missing_prerequisite',
        `${error instanceof Error ? error.message : String(error)}. The engine starts again with ${model}: \`npx trialgate status\` shows when it is ready`,
        { cause: error },
      );
    } finally {
      isSwitching = false;
    }
  };
}

const STATE_AGAIN_MS = 500;

function watch(plan: Plan, { components, notes }: Components, { onChange, only, cancelsItsRun = false }: StackOptions) {
  // A part of the deployment, such as its PostgreSQL alone, is no start whose settings the next one misses.
  const isWhole = only === undefined;
  const state = initialState(plan, { components, notes }, cancelsItsRun);
  const byName = new Map(state.components.map((each) => [each.name, each]));
  let again: NodeJS.Timeout | undefined;
  const publish = (): void => {
    onChange?.(state);
    try {
      writeState(plan.config.home, state);
    } catch (error) {
      // A full disk ends components. It must not end the supervisor that restarts them.
      if (again === undefined)
        console.error(
          `the state cannot be written and will be tried again: ${error instanceof Error ? error.message : String(error)}`,
        );
      clearTimeout(again);
      again = setTimeout(publish, STATE_AGAIN_MS).unref();
      return;
    }
    clearTimeout(again);
    again = undefined;
  };
  const whenReady = async (names: string[], signal: AbortSignal): Promise<void> => {
    while (!names.every((name) => byName.get(name)?.status === 'ready')) await sleep(50, undefined, { signal });
  };
  publish();
  const begin = (component: Component) => {
    const entry = byName.get(component.name);
    const report = (change: Partial<ComponentState>): void => {
      const since = change.status && change.status !== entry?.status ? { since: new Date().toISOString() } : {};
      if (entry) Object.assign(entry, change, since);
      publish();
    };
    const controller = new AbortController();
    const log = path.join(plan.folders.logs, `${component.name}.log`);
    return { component, controller, done: keepAlive(component, { log, report, whenReady }, controller.signal) };
  };
  const lives = components.map(begin);
  const requireReady = (): void => {
    if (state.status !== 'ready') throw new Error(`the deployment is ${state.status}`);
  };

  return {
    state: () => structuredClone(state),
    mark(status: StackState['status'], error: unknown) {
      state.status = status;
      if (status === 'ready' && isWhole && state.settings !== null) state.ready_settings = state.settings;
      if (error) state.failure = failureOf(error);
      publish();
    },
    async allReady(signal: AbortSignal) {
      while (!state.components.every((each) => each.status === 'ready')) {
        signal.throwIfAborted();
        const failing = state.components.find((each) => each.status === 'failing');
        if (failing) throw cannotStart(failing);
        await sleep(50, undefined, { signal }).catch(() => signal.throwIfAborted());
      }
      this.mark('ready', null);
    },
    hasModel: (model: string) => hasModel(state, model),
    /** Ends the component of the same name and starts this one in its place. From then on the deployment runs with `model`. */
    async replace(component: Component, model: string) {
      const at = lives.findIndex((life) => life.component.name === component.name);
      const [life, entry] = [lives[at], byName.get(component.name)];
      requireReady();
      life?.controller.abort();
      await life?.done;
      requireReady();
      if (entry) Object.assign(entry, { address: component.address, status: 'waiting', restarts: 0 });
      state.settings = { ...state.settings, model };
      lives[at] = begin(component);
      publish();
    },
    async untilReady(name: string, signal: AbortSignal) {
      for (;;) {
        signal.throwIfAborted();
        requireReady();
        const entry = byName.get(name);
        if (entry?.status === 'ready') return;
        if (entry?.status === 'failing') throw cannotStart(entry);
        await sleep(50, undefined, { signal });
      }
    },
    async stop() {
      if (state.status !== 'failed') state.status = 'stopping';
      const stopped = new Map<string, Promise<void>>();
      for (const { component, controller, done } of lives.toReversed()) {
        const users = lives.filter((other) => other.component.needs.includes(component.name));
        const afterUsers = Promise.all(users.map((user) => stopped.get(user.component.name)));
        stopped.set(
          component.name,
          afterUsers.then(() => (controller.abort(), done)),
        );
      }
      await Promise.all(stopped.values());
      if (state.status !== 'failed') state.status = 'stopped';
      publish();
    },
  };
}

/** Records this supervisor before anything takes time. The components of the last one stay recorded until they are ended. */
function recordSupervisor(home: string): void {
  const before = readState(home);
  const components = (before?.components ?? []).map((each) => ({ ...each, status: 'waiting' as const, detail: null }));
  const fresh = { supervisor: identify(process.pid), status: 'starting', failure: null } as const;
  writeState(home, {
    ports: before?.ports ?? {},
    engines: before?.engines ?? [],
    settings: null,
    ready_settings: before?.ready_settings,
    ranks: null,
    components,
    ...fresh,
    notes: [],
  });
}

function initialState(plan: Plan, { components, notes }: Components, cancelsItsRun: boolean): StackState {
  return {
    supervisor: identify(process.pid),
    status: 'starting',
    failure: null,
    ports: plan.ports,
    engines: plan.engines,
    settings: runningSettings(plan.config, plan.ports),
    cancels_its_run: cancelsItsRun,
    ready_settings: readState(plan.config.home)?.ready_settings,
    ranks: ranksHere(plan),
    notes,
    components: components.map(({ name, address, stopSignal }) => ({
      name,
      status: 'waiting',
      process: null,
      address,
      since: new Date().toISOString(),
      restarts: 0,
      detail: null,
      log: path.join(plan.folders.logs, `${name}.log`),
      stopSignal,
    })),
  };
}

function cannotStart({ name, detail, log }: ComponentState): TrialgateError {
  return new TrialgateError(
    'missing_prerequisite',
    `${name} cannot start: ${detail ?? 'no reason given'} (log: ${log})`,
  );
}

function failureOf(error: unknown): { code: string; message: string } {
  const code = error instanceof TrialgateError ? error.code : 'engine_unavailable';
  return { code, message: error instanceof Error ? error.message : String(error) };
}
