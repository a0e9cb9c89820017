import type { TokenSample } from '../../store/samples/build-samples.ts';
import type { TeacherLogprobs } from './ask-teacher.ts';
import type { Earned } from '../rollout/rewards-of.ts';

/** A trial's sample with what the trainer needs to know of the trial. */
export type Sample = TokenSample & Earned & {
  /** What the group's other scored trials earned, which have no sample in this batch: they count in its baseline. */
  companions: Earned[];
  /** How probable the run's teacher finds each token; absent without a teacher. */
  teacherLogprobs?: TeacherLogprobs;
  groupId: string;
  trialId: string;
  attempt: number;
};
