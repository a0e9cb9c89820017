import type { TokenSample } from '../../store/samples/build-samples.ts';
import type { TeacherLogprobs } from './ask-teacher.ts';
import type { ExpertRows, RecordedExperts } from './routed-experts.ts';
import type { TrialRewards } from '../rollout/rewards-of.ts';

/** A trial's sample with the facts of its trial that the trainer uses. */
export type Sample = TokenSample &
  TrialRewards & {
    /** The rewards of the group's other scored trials, which have no sample in this batch but count in its baseline. */
    companions: TrialRewards[];
    /** The log-probabilities that the run's teacher gives each token; absent without a teacher. */
    teacherLogprobs?: TeacherLogprobs;
    /** What its calls recorded of the experts of a mixture; absent without `enable_router_replay`. */
    routedExperts?: RecordedExperts[];
    /** The same, read; absent until the batch is written. */
    expertRows?: ExpertRows[];
    groupId: string;
    trialId: string;
    attempt: number;
  };
