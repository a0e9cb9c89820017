/** One trainable token sequence. All per-token arrays have its length. */
export type Sample = {
  tokenIds: Int32Array;
  /** 1 where the policy sampled the token. */
  lossMask: Int8Array;
  /** In nats, at `temperature`; 0 where the mask is 0. */
  logprobs: Float32Array;
  /** Null where the mask is 0. */
  policyVersions: (number | null)[];
  temperature: number;
  rewards: Record<string, number>;
  groupId: string;
  trialId: string;
  attempt: number;
  callIds: string[];
};

/** What a call adds to its trial's samples. */
export type TrainableCall = {
  id: string;
  promptTokenIds: Int32Array;
  completionTokenIds: Int32Array;
  logprobs: Float32Array;
  policyVersion: number;
  temperature: number;
};
