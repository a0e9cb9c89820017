import type { TokenSample } from '../../store/samples/build-samples.ts';

/** A trial's sample with what the trainer needs to know of the trial. */
export type Sample = TokenSample & {
  rewards: Record<string, number>;
  /** The rewards of the trials of the same group that an earlier batch trained: they count in the group's mean and deviation. */
  companions: Record<string, number>[];
  groupId: string;
  trialId: string;
  attempt: number;
};
