import type { TokenSample } from '../../store/samples/build-samples.ts';
import type { TeacherLogprobs } from './ask-teacher.ts';
import type { Earned } from '../rollout/rewards-of.ts';

/** A trial's sample with the facts of its trial that the trainer uses. */
export type Sample = TokenSample & Earned & {
  /** The rewards of the group's other scored trials, which have no sample in this batch but count in its baseline. */
  companions: Earned[];
  /** The log-probabilities that the run's teacher gives each token; absent without a teacher. */
  teacherLogprobs?: TeacherLogprobs;
  groupId: string;
  trialId: string;
  attempt: number;
};
