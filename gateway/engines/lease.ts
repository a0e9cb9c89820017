import type { Replica } from './replica.ts';

/**
 * A replica that had `weightVersion` when it got the call. It counts one call in flight until `release` is called, which may happen more than
 * once. `tokens` counts the tokens of the call's prompt and reply. It is left out while they are unknown.
 */
export type Lease = {
  replica: Replica;
  weightVersion: string | null;
  changes: number;
  model: string | null;
  release: (tokens?: number) => void;
  /** Headers that keep the trial at one engine if a router stands before several. */
  headers: Readonly<Record<string, string>>;
};

/**
 * True when the call asks for a LoRA adapter, whose name is its pool's weight version. The whole reply is then the adapter's, whatever weight version the
 * engine reports of its base.
 */
export const isAdapter = ({ weightVersion, model }: Pick<Lease, 'weightVersion' | 'model'>): boolean =>
  weightVersion !== null && weightVersion === model;
