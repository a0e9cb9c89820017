import type { TokenSample } from '../../store/samples/build-samples.ts';

/** A trial's sample with what the trainer needs to know of the trial. */
export type Sample = TokenSample & {
  rewards: Record<string, number>;
  /** The rewards of the group's other scored trials, which have no sample in this batch: they count in its baseline. */
  companions: Record<string, number>[];
  groupId: string;
  trialId: string;
  attempt: number;
};
