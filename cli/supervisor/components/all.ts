import { hasOwnEngine } from '../../config/schema.ts';
import type { Component } from '../component.ts';
import type { Plan } from '../plan.ts';
import { engine } from './engine.ts';
import { gateway } from './gateway.ts';
import { postgres } from './postgres.ts';
import { temporal } from './temporal.ts';
import { gpuWorker, worker } from './workers.ts';

export const COMPONENTS = [
  'vllm',
  'postgres',
  'temporal',
  'gateway',
  'workflow-worker',
  'activity-worker',
  'gpu-worker',
] as const;
export type ComponentName = (typeof COMPONENTS)[number];

export type Components = { components: Component[]; notes: string[] };

/** Returns the components of this deployment, without those that the configuration names as already running. */
export function componentsOf(plan: Plan, only: readonly ComponentName[] = COMPONENTS): Components {
  const { config } = plan;
  const notes: string[] = [];
  const make: Record<ComponentName, () => Component | Component[]> = {
    vllm: () => (hasOwnEngine(config) ? engine(plan) : []),
    postgres: () => {
      if (config.database_url) return [];
      const { note, ...component } = postgres(plan);
      if (note) notes.push(note);
      return component;
    },
    temporal: () => (config.temporal_address ? [] : temporal(plan)),
    gateway: () => plan.gateways.map((own) => gateway(plan, own)),
    'workflow-worker': () => worker(plan, 'workflows'),
    'activity-worker': () => worker(plan, 'activities'),
    'gpu-worker': () => gpuWorker(plan),
  };
  const components = COMPONENTS.filter((name) => only.includes(name)).flatMap((name) => make[name]());
  const present = new Set(components.map((component) => component.name));
  for (const component of components) component.needs = component.needs.filter((name) => present.has(name));
  return { components, notes };
}
