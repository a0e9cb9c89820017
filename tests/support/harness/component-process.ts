import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Component } from '../../../cli/supervisor/component.ts';
import { endGroup, groupOf, identify, isAlive, send, type ProcessId } from '../../../cli/supervisor/processes.ts';

/** A component without a supervisor. A killed one stays dead until it is started again. */
export class ComponentProcess {
  readonly #component: Component;
  readonly #log: string;
  #process: ProcessId | null = null;

  constructor(component: Component, log: string) {
    this.#component = component;
    this.#log = log;
  }

  get pid(): number {
    if (!this.#process) throw new Error(`${this.#component.name} was never started`);
    return this.#process.pid;
  }

  /** Starts the process and returns when it serves. */
  async start(): Promise<void> {
    const { launch, isReady, readyWithinMs, name, prepare } = this.#component;
    const never = new AbortController().signal;
    await prepare?.(never);
    const { file, args, env, cwd } = launch();
    const log = openSync(this.#log, 'a');
    const child = spawn(file, args, { env, cwd, detached: true, stdio: ['ignore', log, log] });
    closeSync(log);
    this.#process = identify(child.pid ?? 0);
    for (
      const end = Date.now() + readyWithinMs;
      !(await isReady(this.pid, never).catch(() => false));
      await sleep(100)
    ) {
      if (child.exitCode !== null || Date.now() > end) throw new Error(`${name} does not serve: see ${this.#log}`);
    }
  }

  /** Sends SIGKILL to its whole process group. */
  kill(): void {
    if (!this.#process || !isAlive(this.#process)) throw new Error(`${this.#component.name} does not run`);
    for (const pid of groupOf(this.#process)) send(pid, 'SIGKILL');
  }

  async stop(): Promise<void> {
    if (this.#process) await endGroup(this.#process, this.#component.stopSignal, this.#component.stopWithinMs);
  }
}
