import type { TokenSample } from '../../store/samples/build-samples.ts';

/** A trial's sample with what the trainer needs to know of the trial. */
export type Sample = TokenSample & {
  rewards: Record<string, number>;
  groupId: string;
  trialId: string;
  /** Rewards of the group's trials that an earlier batch trained: part of its baseline. */
  companions: Record<string, number>[];
  attempt: number;
};
